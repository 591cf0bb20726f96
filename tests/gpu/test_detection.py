"""TensorRT draws boxes on a real GPU, behind a real tritonserver: of a Hugging Face folder as its processor does, and
of YOLO's layout behind non-maximum suppression."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest, ServingChoice
from enginewright_builder.engines.base import BuildContext
from enginewright_builder.engines.tensorrt import TensorRtEngine
from enginewright_builder.export import export_model
from enginewright_builder.load import Channels, encode, run_on_time
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model
from enginewright_builder.same_boxes import agreements
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.detectors import FOLDER, PIXELS, SENT, SUPPRESSED, images, yolo, yolos

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
MODEL, BATCH = "model", 4


def pixels(seed: int) -> Tensors:
    return {"pixel_values": images(BATCH, *SENT, seed=seed)}


def planes(seed: int) -> Tensors:
    return {"images": images(BATCH, PIXELS, PIXELS, seed=seed).transpose(0, 3, 1, 2).astype(np.float32) / 255}


async def served(root: Path, sent: Tensors) -> Tensors:
    async with (TritonServer(root, models=(MODEL,), gpus=(0,)) as server,
                Channels(server.grpc_url) as channels):
        return decode(await channels.call(encode(MODEL, sent).payload, 60.0))


@pytest.mark.parametrize(("written", "interface", "made"), [(yolos, FOLDER, pixels), (yolo, SUPPRESSED, planes)])
def test_boxes_of_a_plan_are_the_sources(written: Callable[[Path], Path], interface: Interface,
                                         made: Callable[[int], Tensors], tmp_path: Path) -> None:
    source = load_model(locate(written(tmp_path / "source.onnx")), interface, tmp_path / "loaded", "cpu")
    exported = export_model(source, tmp_path / "export", [made(0)])
    context = BuildContext(device=DeviceRequest(accelerator="gpu", gpu_count=1), max_batch_size=BATCH, calibration=(),
                           runtime=RuntimeRequest(backends=("python",), python_runtimes=("tensorrt",)),
                           workspace=tmp_path / "work", source=source, example=made(0), buckets=(1, BATCH),
                           progress=lambda fraction, detail: None)
    engine = TensorRtEngine()
    rung, = engine.rungs("fp32", context)
    artifact = engine.build(rung, exported, context)
    write_model(tmp_path / "repository", MODEL, artifact, ServingChoice(max_batch_size=BATCH), gpus=(0,),
                warmup=made(0))
    sent = made(1)
    got, expected = run_on_time(served(tmp_path / "repository", sent)), source.run(sent)
    assert (expected["labels"] >= 0).sum() > BATCH
    assert agreements(expected, got).min() > 0.95

"""Clients send bytes to a real tritonserver, and are answered as the source answers what they used to send."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import DeviceRequest, Interface, Normalise, RuntimeRequest, ServingChoice, TensorSpec
from enginewright_builder.engines.base import BuildContext
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.export import export_model
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.sources.formats import locate
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SENT = TensorSpec(name="image", dtype="uint8", shape=("batch", 6, 8, 3), normalise=Normalise(
    scale=1 / 255, mean=MEAN, std=STD, channels="last"))


def convolution(folder: Path) -> Path:
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("Conv", ["image", "weights"], ["scores"])], "net",
                              [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 6, 8])],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 4, 4, 6])],
                              [numpy_helper.from_array(weights, "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


async def test_bytes_are_answered_as_floats_were(tmp_path: Path) -> None:
    path = convolution(tmp_path)
    plain, model = load_model(locate(path)), load_model(locate(path), Interface(inputs=(SENT,)))
    images = example_inputs(model.interface, 3)["image"]
    exported = export_model(model, tmp_path / "export", [{"image": images}])
    engine = OnnxRuntimeEngine()
    context = BuildContext(device=DeviceRequest(accelerator="cpu"), runtime=RuntimeRequest(backends=("python",)),
                           max_batch_size=4, calibration=(), workspace=tmp_path / "work", source=model,
                           progress=lambda fraction, detail: None)
    rung = next(one for one in engine.rungs("fp32", context) if not one.unavailable)
    folder = write_model(tmp_path / "root", "adds", engine.build(rung, exported, context),
                         ServingChoice(max_batch_size=4), cores=1, warmup={"image": images})
    config = parse_text((folder / "config.pbtxt").read_text()).input[0]
    assert (config.data_type, list(config.dims)) == (2, [6, 8, 3]), "TYPE_UINT8, as clients have it"
    async with (TritonServer(tmp_path / "root", models=("adds",)) as server,
                Channels(server.grpc_url) as channels):
        answer = decode(await channels.call(encode("adds", {"image": images}).payload, 30.0))["scores"]
    used_to_send = ((images.astype(np.float32) / 255 - np.array(MEAN, np.float32))
                    / np.array(STD, np.float32)).transpose(0, 3, 1, 2)
    expected = plain.run({"image": np.ascontiguousarray(used_to_send)})["scores"]
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-4)

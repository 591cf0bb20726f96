"""Clients send images of their own size to a real tritonserver, and are answered as the source answers behind its own
processor."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BatchingRequest,
    BuildRequest,
    EngineRequest,
    Interface,
    Preprocess,
    SourceRequest,
    TensorSpec,
)
from enginewright_builder.load import Channels, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.triton, pytest.mark.torch]
SENT = TensorSpec(name="pixel_values", dtype="uint8", shape=("batch", "40..90", "48..120", 3),
                  preprocess=Preprocess(from_source=True))


def vit(folder: Path) -> Path:
    """A classifier of images of 32 × 32, which CLIP's processor makes of larger ones."""
    import torch
    import transformers

    torch.manual_seed(0)
    library: Any = transformers  # its classes have half of their types
    library.ViTForImageClassification(library.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        num_labels=5)).save_pretrained(folder, safe_serialization=True)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 36}, "resample": 3,
        "do_center_crop": True, "crop_size": 32, "image_mean": [0.5] * 3, "image_std": [0.3] * 3}))
    return folder


def answers(folder: Path, images: list[Any]) -> Any:
    """As its authors use it."""
    import torch
    import transformers

    library: Any = transformers
    processor = library.AutoImageProcessor.from_pretrained(folder, backend="pil")
    with torch.no_grad():
        model = library.ViTForImageClassification.from_pretrained(folder).eval()
        return model(**processor(images, return_tensors="pt")).logits.numpy()


def test_the_whole_build_of_images_of_the_clients_own_size(tmp_path: Path) -> None:
    source = vit(tmp_path / "vit")
    request = BuildRequest(
        model_name="vit", source=SourceRequest(uri=str(source)), store_path=str(tmp_path / "store"),
        interface=Interface(inputs=(SENT,)),
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=4, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.1),
        batching=BatchingRequest(preferred_batch_sizes=(2, 4), max_queue_delay_us=100))
    outcome = run_build(request, tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    folder = tmp_path / "store" / outcome.fingerprint
    asked = parse_text((folder / "model_repository/model/config.pbtxt").read_text()).input[0]
    assert (asked.data_type, list(asked.dims)) == (2, [-1, -1, 3]), "TYPE_UINT8, of any size"
    report = json.loads((folder / "build-report.json").read_text())
    told = report["performance"]["not_apart"]
    assert bool(report["sweep"]["best"]["layers"]["preprocess_ms"]) == (not told), "measured, or told to be in compute"
    assert bool(told) == (outcome.engine is None or outcome.engine.backend != "onnxruntime")
    asyncio.run(_served(folder, source))


async def _served(folder: Path, source: Path) -> None:
    recorded = json.loads((folder / "smoke.json").read_text())
    async with (TritonServer(folder / "model_repository", models=("model",)) as server,
                Channels(server.grpc_url) as channels):
        port = int(server.address.http.rpartition(":")[2])
        assert await asyncio.to_thread(smoke.check, recorded, "model", port, 30.0)
        for seed, (height, width) in enumerate(((40, 48), (71, 119), (90, 120))):
            noise = np.random.default_rng(seed).integers(0, 256, (2, height, width, 3))
            images = (noise * 0.5 + np.linspace(0, 127, width)[:, None]).astype(np.uint8)
            answer = decode(await channels.call(encode("model", {"pixel_values": images}).payload, 30.0))["logits"]
            expected = answers(source, list(images))
            assert np.linalg.norm(answer - expected) < 0.05 * np.linalg.norm(expected)

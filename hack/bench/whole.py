"""The whole request, from an image of a client's own size to the answer: the client resizes and normalises it, or the
engine does. ``python -m bench.whole`` writes one JSON file.

Both sides ask the same ResNet-50 (random weights) behind a real tritonserver by gRPC, one request at a time, and start
from the decoded image: JPEG is the client's either way. The client's work is Pillow and NumPy without any library
around them, which is the least that it can take.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.machine import hardware, processor, versions
from enginewright_builder.contract import (
    DeviceRequest,
    Interface,
    Preprocess,
    RuntimeRequest,
    ServingChoice,
    TensorSpec,
)
from enginewright_builder.engines.base import Artifact, BuildContext
from enginewright_builder.engines.registry import all_engines
from enginewright_builder.export import export_model
from enginewright_builder.load import Channels, encode, run_on_time
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

log = logging.getLogger("whole")
NAME, INPUT = "model", "pixel_values"
SIZES = ((375, 500), (768, 1024))
SHORTEST, CROP = 256, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SECONDS, WARMUP_SECONDS, TIMEOUT = 3.0, 1.0, 30.0
# Of cosine between both sides' answers: a pixel may be rounded the other way.
LEAST_COSINE = 0.99
BACKENDS = {"gpu": ("tensorrt", "fp16"), "cpu": ("onnxruntime", "fp32")}
Prepare = Callable[[Array], Array]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.whole", description=__doc__)
    parser.add_argument("--accelerator", choices=sorted(BACKENDS), default="gpu")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="whole-") as scratch:
        rows = measured(Path(scratch), given.accelerator)
    told = {"hardware": hardware() if given.accelerator == "gpu" else processor(), "versions": versions(),
            "command": f"make bench-whole ACCELERATOR={given.accelerator}", "rows": rows}
    given.output.write_text(json.dumps(told, indent=1) + "\n")
    return 0


def measured(scratch: Path, accelerator: str) -> list[dict[str, Any]]:
    folder = _source(scratch / "source")
    rows = []
    for height, width in SIZES:
        image = np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)
        sent = TensorSpec(name=INPUT, dtype="uint8", shape=("batch", height, width, 3),
                          preprocess=Preprocess(from_source=True))
        sides: dict[str, tuple[Interface | None, Prepare]] = {
            "client": (None, by_client), "engine": (Interface(inputs=(sent,)), lambda image: image[None])}
        row: dict[str, Any] = {"height": height, "width": width}
        answers = {}
        for side, (stated, prepare) in sides.items():
            root = scratch / f"{side}-{height}"
            _write(folder, stated, root, accelerator, scratch / f"work-{side}-{height}")
            row[f"{side}_p50_ms"], answers[side] = run_on_time(_timed(root, image, prepare, accelerator))
        row["speedup"] = round(row["client_p50_ms"] / row["engine_p50_ms"], 3)
        row["cosine"] = round(_cosine(answers["client"], answers["engine"]), 6)
        if row["cosine"] < LEAST_COSINE:
            raise ValueError(f"the answers' cosine is {row['cosine']}")
        log.info("%s", row)
        rows.append(row)
    return rows


def by_client(image: Array) -> Array:
    """As ``preprocessor_config.json`` says."""
    height, width = image.shape[:2]
    new = (SHORTEST * width // min(height, width), SHORTEST * height // min(height, width))
    left, top = (new[0] - CROP) // 2, (new[1] - CROP) // 2
    resized = np.asarray(Image.fromarray(image).resize(new, Image.Resampling.BICUBIC))[top:top + CROP, left:left + CROP]
    normalised = (resized.astype(np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return np.ascontiguousarray(normalised.transpose(2, 0, 1)[None])


def _source(folder: Path) -> Path:
    import torch
    import transformers

    library: Any = transformers  # its classes have half of their types
    torch.manual_seed(0)
    library.ResNetForImageClassification(library.ResNetConfig(num_labels=1000)).eval().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": SHORTEST}, "resample": 3,
        "do_center_crop": True, "crop_size": CROP, "image_mean": MEAN, "image_std": STD}))
    return folder


def _write(folder: Path, stated: Interface | None, root: Path, accelerator: str, work: Path) -> None:
    source = load_model(locate(folder), stated, work, "cuda" if accelerator == "gpu" else "cpu")
    example: Tensors = example_inputs(source.interface, 1)
    exported = export_model(source, work / "export", [example])
    backend, precision = BACKENDS[accelerator]
    context = BuildContext(
        device=DeviceRequest(accelerator=accelerator, gpu_count=int(accelerator == "gpu")), max_batch_size=1,
        runtime=RuntimeRequest(backends=("python",), python_runtimes=(backend,)), calibration=(),
        workspace=work / "engine", source=source, example=example, buckets=(1,),
        progress=lambda fraction, detail: None)
    engine = next(one for one in all_engines() if one.name == backend)
    rung = next(one for one in engine.rungs(precision, context) if not one.unavailable)
    artifact: Artifact = engine.build(rung, exported, context)
    write_model(root, NAME, artifact, ServingChoice(max_batch_size=1), gpus=(0,) if accelerator == "gpu" else (),
                warmup=example)


async def _timed(root: Path, image: Array, prepare: Prepare, accelerator: str) -> tuple[float, Array]:
    """Median milliseconds from the decoded image to the answer, and the answer."""
    gpus = (0,) if accelerator == "gpu" else ()
    async with (TritonServer(root, models=(NAME,), gpus=gpus, ready_seconds=300) as server,
                Channels(server.grpc_url) as channels):
        times, begin = list[float](), time.perf_counter()
        while (before := time.perf_counter()) - begin < WARMUP_SECONDS + SECONDS:
            answer = decode(await channels.call(encode(NAME, {INPUT: prepare(image)}).payload, TIMEOUT))["logits"]
            if before - begin > WARMUP_SECONDS:
                times.append((time.perf_counter() - before) * 1e3)
    return round(float(np.median(times)), 4), answer


def _cosine(one: Array, other: Array) -> float:
    left, right = (array.astype(np.float64).ravel() for array in (one, other))
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


if __name__ == "__main__":
    sys.exit(main())

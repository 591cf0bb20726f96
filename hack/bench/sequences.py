"""Steps of sequences joined into one run, and each by itself: a streaming LSTM with made-up weights behind one real
tritonserver, in turns. ``python -m bench.sequences`` writes one JSON file.

Both sides have the same engine in one instance without a queue delay, so that what differs is ``max_batch_size`` alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.machine import hardware, processor, versions
from enginewright_builder.contract import (
    DeviceRequest,
    Interface,
    RuntimeRequest,
    SequenceBatching,
    ServingChoice,
    StateTensor,
)
from enginewright_builder.engines.base import Artifact, BuildContext
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.sequenced import sequenced
from enginewright_builder.export import export_model
from enginewright_builder.load import encode, run_on_time
from enginewright_builder.models import load_model
from enginewright_builder.models.sequenced import Sequenced
from enginewright_builder.sources.formats import locate
from enginewright_builder.sweep.bench import window
from enginewright_builder.tensors import Steps
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

FEATURES, ANSWERS, STEPS = 64, 8, 200
STATE = (StateTensor(input_name="h", output_name="hn"), StateTensor(input_name="c", output_name="cn"))
MODES = {"joined": 64, "apart": 1}
# Short turns, many of them and in any order: what else runs on the machine slows both sides.
AT_ONCE, ROUNDS, SECONDS, WARMUP_SECONDS = (1, 16, 64), 15, 0.7, 0.3
# The server forgets none while others are measured.
IDLE_US = 60_000_000


def lstm(width: int) -> onnx.ModelProto:
    """``x [batch, 64]`` and the state ``[1, batch, width]`` to ``y [batch, 8]`` and the next state."""
    drawn = np.random.default_rng(26)
    shapes = {"w": (1, 4 * width, FEATURES), "r": (1, 4 * width, width), "b": (1, 8 * width), "v": (width, ANSWERS)}
    constants = {name: (drawn.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)
                 for name, shape in shapes.items()}
    values: dict[str, list[int | str]] = {"x": ["batch", FEATURES], "y": ["batch", ANSWERS]}
    values |= {name: [1, "batch", width] for name in ("h", "c", "hn", "cn")}
    info = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()}
    graph = helper.make_graph(
        [helper.make_node("Unsqueeze", ["x", "zero"], ["steps"]),
         helper.make_node("LSTM", ["steps", "w", "r", "b", "", "h", "c"], ["", "hn", "cn"], hidden_size=width),
         helper.make_node("Squeeze", ["hn", "zero"], ["out"]), helper.make_node("MatMul", ["out", "v"], ["y"])],
        "lstm", [info["x"], info["h"], info["c"]], [info["y"], info["hn"], info["cn"]],
        [numpy_helper.from_array(array, name) for name, array in {**constants, "zero": np.array([0])}.items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def engine(width: int, accelerator: str, folder: Path) -> Artifact:
    onnx.save(lstm(width), folder / "model.onnx")
    how = SequenceBatching(state=STATE, max_sequence_idle_us=IDLE_US)
    source = load_model(locate(folder / "model.onnx"), Interface(sequence_batching=how), folder / "workspace",
                        "cuda" if accelerator == "gpu" else "cpu")
    assert isinstance(source, Sequenced)
    inputs = {"x": sequences(4)}
    exported = export_model(source.inner, folder / "export", source.calls(inputs, 3))
    context = BuildContext(device=DeviceRequest(accelerator=accelerator, gpu_count=int(accelerator == "gpu")),
                           runtime=RuntimeRequest(backends=("python",), python_runtimes=("onnxruntime",)),
                           max_batch_size=max(MODES.values()), example=source.begun(inputs), source=source.inner,
                           workspace=folder / "engines", calibration=(), progress=lambda share, detail: None)
    (built,) = sequenced([OnnxRuntimeEngine()], source.inner.interface)
    rung = next(one for one in built.rungs("fp32", context) if not one.unavailable)
    return built.build(rung, exported, context)


def sequences(count: int) -> Any:
    return np.random.default_rng(0).normal(size=(count, STEPS, 1, FEATURES)).astype(np.float32)


async def measure(artifact: Artifact, root: Path, gpus: tuple[int, ...]) -> list[dict[str, Any]]:
    for name, size in MODES.items():
        write_model(root, name, artifact, ServingChoice(max_batch_size=size), gpus=gpus)
    cells = [(count, name) for count in AT_ONCE for name in MODES]
    seen: dict[tuple[int, str], list[dict[str, float]]] = {cell: [] for cell in cells}
    async with TritonServer(root, models=tuple(MODES), ready_seconds=120, gpus=gpus) as server:
        for _ in range(ROUNDS):
            for count, name in random.sample(cells, len(cells)):
                requests = [encode(name, Steps(x=one)) for one in sequences(max(AT_ONCE))]
                found = await window(server, name, requests, concurrency=count, seconds=SECONDS,
                                     warmup_seconds=WARMUP_SECONDS)
                if found.load.failed:
                    raise RuntimeError(f"{count} sequences {name}: {dict(found.load.errors)} {found.load.messages}")
                seen[count, name].append({"steps_per_second": found.load.throughput, "p50_ms": found.load.p50_ms,
                                          "steps_a_run": found.mean_batch})
    return [row(count, seen[count, "joined"], seen[count, "apart"]) for count in AT_ONCE]


def row(count: int, joined: Sequence[dict[str, float]], apart: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians of all turns, and how they relate."""
    sides = {name: {key: round(statistics.median(one[key] for one in turns), 3) for key in turns[0]}
             for name, turns in (("joined", joined), ("apart", apart))}
    return {"sequences": count, **sides, **{
        f"times_{key}": round(sides["joined"][key] / sides["apart"][key], 2) for key in ("steps_per_second", "p50_ms")}}


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sequences", description=__doc__.splitlines()[0])
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 1024], help="of the LSTM's state")
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), default="gpu")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args(words)
    rows = []
    for width in asked.widths:
        with tempfile.TemporaryDirectory() as folder:
            artifact = engine(width, asked.accelerator, Path(folder))
            found = run_on_time(measure(artifact, Path(folder) / "repository",
                                        (0,) if asked.accelerator == "gpu" else ()))
        rows += [{"width": width, **row} for row in found]
        for row in rows[-len(found):]:
            print(json.dumps(row), flush=True)
    told = hardware() if asked.accelerator == "gpu" else processor()
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(json.dumps({"hardware": told, "versions": versions(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

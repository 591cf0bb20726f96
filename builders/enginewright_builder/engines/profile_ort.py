"""An engine of ONNX Runtime under its profiler (``SessionOptions.enable_profiling``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from enginewright_builder.measure.ort_profile import ort_events, ort_runs
from enginewright_builder.measure.profile import LEAST_RUNS, MOST_RUNS, SECONDS, WARMUPS, Profiled, Run
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors

_LAUNCHES = ("On a GPU ONNX Runtime tells when it launched kernels, not what they took: there is a trace, and no table "
             "of layers.")


def profile(files: Mapping[str, Path], parameters: Mapping[str, str], inputs: Tensors) -> Profiled:
    """Raises what ONNX Runtime does."""
    model = next(path for name, path in files.items() if name.endswith(".onnx"))
    on_gpu = parameters.get("accelerator") == "gpu"
    events = ort_events(model, {"threads": str(available_cpus()), **parameters}, inputs, device=0 if on_gpu else -1,
                        least=WARMUPS + LEAST_RUNS, most=WARMUPS + MOST_RUNS, seconds=SECONDS)
    runs = list(ort_runs(events))[WARMUPS:]
    if on_gpu:
        return Profiled(runs=[Run(begin=one.begin, microseconds=one.microseconds, layers=()) for one in runs],
                        events=events, notes=(_LAUNCHES,))
    return Profiled(runs=runs, events=events)

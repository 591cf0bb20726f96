"""ONNX Runtime's own profiler, on the sessions that serve."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.measure.profile import Event, Run, Timed, repeat
from enginewright_builder.ort_session import ort
from enginewright_builder.pod.python_model.ort_session import providers, session_options
from enginewright_builder.tensors import Tensors

_KERNEL = "_kernel_time"


def ort_events(model: Path, parameters: Mapping[str, str], inputs: Tensors, *, device: int = -1, least: int, most: int,
               seconds: float) -> list[dict[str, Any]]:
    """Of ``least`` to ``most`` runs on CUDA device ``device``, or on the CPU where that is negative."""
    with tempfile.TemporaryDirectory() as folder:
        options = session_options(parameters)
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        session = ort.InferenceSession(str(model), options, providers=providers(device, parameters))
        taken = {value.name: inputs[value.name] for value in session.get_inputs()}
        repeat(lambda: session.run(None, taken), least=least, most=most, seconds=seconds)
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
        return events


def ort_runs(events: Sequence[Event]) -> Iterator[Run]:
    """Each run with its nodes, in the order of the runs."""
    kernels = [one for one in events if one.get("cat") == "Node" and str(one["name"]).endswith(_KERNEL)]
    for run in (one for one in events if one.get("cat") == "Session" and one["name"] == "model_run"):
        end = run["ts"] + run["dur"]
        yield Run(begin=float(run["ts"]), microseconds=float(run["dur"]), layers=[
            Timed(name=str(one["name"]).removesuffix(_KERNEL), operator=str(one.get("args", {}).get("op_name", "")),
                  microseconds=float(one["dur"])) for one in kernels if run["ts"] <= one["ts"] <= end])

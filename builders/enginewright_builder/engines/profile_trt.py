"""A plan of TensorRT under its ``IProfiler``, which gets each layer's milliseconds after each run.

It gets no time at which a layer began, so that the trace has them one after the other, as they come. No CUDA graph
is replayed meanwhile: TensorRT does not report the layers of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from enginewright_builder.measure.profile import (
    LEAST_RUNS,
    MOST_RUNS,
    SECONDS,
    WARMUPS,
    Event,
    Profiled,
    Run,
    Timed,
    repeat,
)
from enginewright_builder.pod.python_model.trt_session import Session
from enginewright_builder.tensors import Tensors

_NOTE = ("TensorRT was profiled without CUDA graphs, which it does not report the layers of: what is served replays "
         "graphs, and launches its layers faster. A run's time is the sum of its layers.")
_PROCESS, _THREAD = 1, 1


def profile(files: Mapping[str, Path], parameters: Mapping[str, str], inputs: Tensors) -> Profiled:
    """Raises what TensorRT does."""
    import tensorrt as trt

    plan = next(path for name, path in files.items() if name.endswith(".plan"))
    session = Session(plan.parent, [plan.name])
    calls: list[list[Timed]] = []
    try:
        call = session.bind(inputs, layer_profiler(trt, calls))

        def run() -> None:
            calls.append([])
            call()

        repeat(run, least=WARMUPS + LEAST_RUNS, most=WARMUPS + MOST_RUNS, seconds=SECONDS)
    finally:
        session.close()
    runs = list(trt_runs([one for one in calls[WARMUPS:] if one]))
    return Profiled(runs=runs, events=list(trt_events(runs)), notes=(_NOTE,))


def layer_profiler(trt: Any, calls: Sequence[list[Timed]]) -> Any:
    """An ``IProfiler`` that writes into the last of ``calls``; into none before the first run."""
    class Layers(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            if calls:
                calls[-1].append(Timed(name=layer_name, operator="", microseconds=1e3 * ms))

    return Layers()


def trt_runs(calls: Sequence[Sequence[Timed]]) -> Iterator[Run]:
    begin = 0.0
    for layers in calls:
        took = sum(one.microseconds for one in layers)
        yield Run(begin=begin, microseconds=took, layers=layers)
        begin += took


def trt_events(runs: Sequence[Run]) -> Iterator[Event]:
    """In Chrome's trace format."""
    where = {"pid": _PROCESS, "tid": _THREAD}
    yield {"ph": "M", "name": "process_name", **where, "args": {"name": "TensorRT"}}
    yield {"ph": "M", "name": "thread_name", **where, "args": {"name": "layers"}}
    for number, run in enumerate(runs):
        yield {"ph": "X", "cat": "run", "name": f"run {number + 1}", "ts": run.begin, "dur": run.microseconds, **where}
        begin = run.begin
        for one in run.layers:
            yield {"ph": "X", "cat": "layer", "name": one.name, "ts": begin, "dur": one.microseconds, **where}
            begin += one.microseconds

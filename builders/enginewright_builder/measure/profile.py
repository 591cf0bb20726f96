"""What each layer of an engine takes, of what a library's profiler told of several runs; and the trace of it, which
Perfetto opens. Pure, but for the clock of :func:`repeat`."""

from __future__ import annotations

import gzip
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Rows of the report.
SLOWEST = 10
# Runs before those that count: libraries allocate and load kernels in the first ones.
WARMUPS = 2
# Runs that count. A slow model gets fewer; the seconds include the warm-up.
LEAST_RUNS, MOST_RUNS, SECONDS = 3, 9, 10.0
# Of a compressed trace. The plugin brings it through the log of a pod, and replicas fetch it with their engine.
TRACE_BYTES = 4 << 20
# Names of a GPU's kernels have thousands.
_NAME_CHARACTERS = 160

# An event of Chrome's trace format.
Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """Medians over the runs: ``share`` of a run's time, ``calls`` in a run, ``microseconds`` of a call. ``operator`` is
    empty where the library does not tell it."""

    name: str
    operator: str
    share: float
    microseconds: float
    calls: int


@dataclass(frozen=True, kw_only=True)
class EngineProfile:
    """Of the engine ``name`` in ``library`` at ``batch``: its slowest layers, of ``layer_count``. A run took
    ``run_microseconds`` with the profiler on, the median of ``runs``. ``trace`` is a file beside the report, or empty.
    ``notes`` say what to mind. ``problem`` says why there is no profile; empty where there is one."""

    name: str
    library: str
    batch: int
    runs: int = 0
    run_microseconds: float = 0.0
    layers: tuple[LayerTime, ...] = ()
    layer_count: int = 0
    trace: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One call of one layer."""

    name: str
    operator: str
    microseconds: float


@dataclass(frozen=True, kw_only=True)
class Run:
    """``begin`` and ``microseconds`` by the clock of the trace."""

    begin: float
    microseconds: float
    layers: Sequence[Timed]

    @property
    def whole(self) -> float:
        """Layers that ran at the same time may add up to more than the run."""
        return max(self.microseconds, sum(one.microseconds for one in self.layers))


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """What a profiler told: ``runs`` after the warm-up, and all its events."""

    runs: Sequence[Run]
    events: Sequence[Event]
    notes: tuple[str, ...] = ()


def repeat(call: Callable[[], object], *, least: int = LEAST_RUNS, most: int = MOST_RUNS, seconds: float = SECONDS
           ) -> None:
    """Runs ``call`` until ``seconds`` have gone by, ``least`` to ``most`` times."""
    began = time.perf_counter()
    for number in range(most):
        if number >= least and time.perf_counter() - began >= seconds:
            return
        call()


def layer_times(runs: Sequence[Run]) -> list[LayerTime]:
    """The slowest first. A layer is what has one name and operator."""
    calls: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(runs))
    took: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * len(runs))
    for number, run in enumerate(runs):
        for one in run.layers:
            calls[one.name, one.operator][number] += 1
            took[one.name, one.operator][number] += one.microseconds
    found = [(statistics.median(took[key]), key) for key in took]
    return [LayerTime(name=name[:_NAME_CHARACTERS], operator=operator,
                      share=statistics.median(one / run.whole if run.whole else 0.0
                                              for one, run in zip(took[name, operator], runs, strict=True)),
                      microseconds=whole / count, calls=count)
            for whole, (name, operator) in sorted(found, key=lambda one: (-one[0], one[1]))
            if (count := statistics.median_high(calls[name, operator]))]


def packed(events: Sequence[Event], runs: Sequence[Run], limit: int = TRACE_BYTES) -> tuple[bytes, int]:
    """A compressed trace of at most ``limit`` bytes, and how many runs are in it: all, or so many of the last as fit.
    Nothing and 0 where not one does."""
    for count in (len(runs), 3, 1):
        if not 0 < count <= len(runs):
            continue
        begin = runs[-count].begin if count < len(runs) else float("-inf")
        kept = [one for one in events if one.get("ph") == "M" or float(one.get("ts", begin)) >= begin]
        text = json.dumps({"traceEvents": kept, "displayTimeUnit": "ms"}, separators=(",", ":"))
        data = gzip.compress(text.encode(), mtime=0)
        if len(data) <= limit:
            return data, count
    return b"", 0


def summed(profiled: Profiled, *, name: str, library: str, batch: int, trace: str) -> tuple[EngineProfile, bytes]:
    """The profile, and the content of ``trace``: empty where it is too large. Raises ``ValueError`` where there are no
    runs."""
    if not profiled.runs:
        raise ValueError("the profiler told of no run")
    data, count = packed(profiled.events, profiled.runs)
    notes = list(profiled.notes)
    if not data:
        notes.append(f"There is no trace: that of one run has more than {TRACE_BYTES >> 20} MiB.")
    elif count < len(profiled.runs):
        notes.append(f"The trace has the last {count} of {len(profiled.runs)} runs: more are too large." if count > 1
                     else f"The trace has the last of {len(profiled.runs)} runs: more are too large.")
    layers = layer_times(profiled.runs)
    return EngineProfile(
        name=name, library=library, batch=batch, runs=len(profiled.runs),
        run_microseconds=statistics.median(one.microseconds for one in profiled.runs),
        layers=tuple(layers[:SLOWEST]), layer_count=len(layers), trace=trace if data else "", notes=tuple(notes)), data

"""How long the next build of a rung takes, in seconds: as the benchmarks tell, corrected by earlier builds and by what
this one has taken so far. Pure.

What is corrected is the ratio of what a build took to what it was expected to take, as most of it is of the machine and
of the model, and so is shared by an engine's rungs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from enginewright_builder.competition.experience import UNKNOWN_SECONDS, Experience
from enginewright_builder.engines.base import Rung
from enginewright_builder.measure.look import Look

# No pace is believed that is further off than this, from whatever it was learnt.
SLOWEST, FASTEST = 8.0, 1 / 30
# An engine's rung of another kind tells this much of the logarithm of the pace.
_SHARED = 0.7
# What an engine for several batches takes of the time of one for a single batch that is built already, as the timing
# cache has its layers: MiniLM's took 25 s after those for batch 1 and 8, which had taken 54 (trials.json).
CACHED = 0.3
# What TensorRT takes at a lower level of optimisation, of what it takes at the usual one: so much for a model without
# convolutions, and so much less for one of nothing else. FP16 for batch 1 took 22 s for 47 (ResNet-50), 24 for 63
# (DeepLabV3), 13 for 17 (BERT), 11 for 15 (ConvNeXt) and 39 for 35 (Swin; H200, TensorRT 10.6).
QUICK = {"tensorrt": (0.85, 0.62)}
# To load an engine that was made beside the builds, capture its graphs and gate it: 1 to 8 s of Swin and ConvNeXt on an
# H100; 20 of EfficientNet, when it still captured ten graphs.
LOAD_SECONDS = 8.0


def quick_share(backend: str, look: Look | None) -> float:
    """What a quick build takes of the seconds of a full one; 1 for an engine that has none."""
    whole, of_convolutions = QUICK.get(backend, (1.0, 0.0))
    return whole - of_convolutions * (look.convolution if look else 0.0)


def kind(rung: Rung) -> str:
    """What pace is learnt by: ``tensorrt fp16``, ``tensorrt fp16 @one`` or ``tensorrt fp16 @all``."""
    size = ("", " @one")[len(rung.ranges)] if len(rung.ranges) < 2 else " @all"
    return f"{rung.backend} {rung.precision}{size}"


@dataclass
class Costs:
    """``earlier`` are paces by kind from the store. ``graph_left`` are the seconds after which a graph that is being
    written beside the builds is there, where it would take so many by itself; None where none is. ``engine_left`` is
    the same of a rung's whole engine."""

    experience: Experience
    look: Look | None = None
    earlier: Mapping[str, float] = field(default_factory=dict)
    graph_left: Callable[[str, str, float], float | None] = lambda backend, precision, usual: None
    engine_left: Callable[[Rung, float], float | None] = lambda rung, usual: None

    def __post_init__(self) -> None:
        self.paces: dict[str, float] = {}
        self._graphs: set[tuple[str, str, tuple[str, ...]]] = set()
        self._timed: set[tuple[str, str, int]] = set()
        self._writing: dict[tuple[str, str], float] = {}

    def record(self, rung: Rung, kept: tuple[str, ...], seconds: float, graph_seconds: float, *, built: bool) -> None:
        """What a trial took, of which ``graph_seconds`` for its graph. One that failed tells at most that it takes
        long."""
        usual = self._build(rung)
        pace = _bounded(max(seconds - graph_seconds, 0.1) / usual)
        if built or pace > 1:
            self.paces[kind(rung)] = max(pace, self.paces.get(kind(rung), 0.0))
        if built:
            of = rung.backend, rung.precision
            self._graphs.add((*of, kept))
            self._timed |= {(*of, one.best) for one in rung.ranges if not rung.quick}
            self._writing[of] = max(graph_seconds, self._writing.get(of, 0.0))

    def expected(self, rung: Rung, kept: tuple[str, ...] = (), *, new_graph: bool = False) -> float:
        """``new_graph``: with other layers kept precise than any graph has that is there."""
        build = self._build(rung) * self._pace(kind(rung), rung.backend)
        left = self.engine_left(rung, build)
        if left is not None:
            return left + LOAD_SECONDS
        return self._graph(rung, kept, new_graph=new_graph) + build

    def made(self, rung: Rung) -> bool:
        """Whether its engine is there, and only to be loaded and gated."""
        return self.engine_left(rung, UNKNOWN_SECONDS) == 0.0

    def _graph(self, rung: Rung, kept: tuple[str, ...], *, new_graph: bool) -> float:
        whole = self.experience.graph_seconds(rung.backend, rung.precision, self.look)
        if new_graph:  # one that came from the store, or was written beside the builds, took no time of its own
            return max(whole, self._writing.get((rung.backend, rung.precision), 0.0))
        if (rung.backend, rung.precision, kept) in self._graphs:
            return 0.0
        left = self.graph_left(rung.backend, rung.precision, whole)
        return whole if left is None else left

    def _build(self, rung: Rung) -> float:
        def seconds(*tuned: int) -> float:
            return self.experience.build_seconds(rung.backend, rung.precision, self.look, tuned=tuned)

        if rung.quick:
            gate = self.experience.gate_seconds(self.look)
            return gate + (self._build(replace(rung, quick=False)) - gate) * quick_share(rung.backend, self.look)
        batches = [one.best for one in rung.ranges]
        if len(batches) < 2:
            return seconds(*batches)
        timed = sum(seconds(one) for one in batches if (rung.backend, rung.precision, one) in self._timed)
        return seconds(*batches) - (1 - CACHED) * timed

    def _pace(self, wanted: str, backend: str) -> float:
        """Of this kind in this build; else as the engine's others in this build, which also tell of the machine; else
        as in earlier builds."""
        if wanted in self.paces:
            return self.paces[wanted]
        earlier = _bounded(self.earlier.get(wanted, 1.0))
        now = [math.log(pace / _bounded(self.earlier.get(name, 1.0))) for name, pace in self.paces.items()
               if name.startswith(f"{backend} ")]
        return _bounded(earlier * math.exp(_SHARED * sum(now) / len(now))) if now else earlier


def _bounded(pace: float) -> float:
    return min(SLOWEST, max(FASTEST, pace)) if math.isfinite(pace) else 1.0

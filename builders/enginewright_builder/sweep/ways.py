"""One engine through each of Triton's backends that runs it: which one ships is measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from enginewright_builder.contract import ENERGY, ObjectiveRequest
from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import BuilderError
from enginewright_builder.sweep import SweepResult, Task, sweep_on
from enginewright_builder.sweep.objective import score
from enginewright_builder.triton.client import HungError, Server

# The preferred backend, which comes first, ships unless another gives more by this share, and by more than the noise of
# both.
CLEARLY = 1.03

Swept = tuple[Artifact, SweepResult]


async def sweep_ways(server: Server, root: Path, artifact: Artifact, task: Callable[[Artifact], Task]) -> Swept:
    """The way that ships and its sweep, whose reason tells of the other. ``task`` says what is left of the time for
    each. Raises what a sweep raises, where none of the ways could be swept."""
    swept, failed = list[Swept](), list[tuple[Artifact, BuilderError]]()
    for way in artifact.ways:
        try:
            swept.append((way, await sweep_on(server, root, dataclasses.replace(task(way), ways=len(artifact.ways)))))
        except BuilderError as error:
            if error.reason != "ServerLoadFailed" or isinstance(error, HungError):
                raise
            failed.append((way, error))
    if not swept:
        raise failed[0][1]
    chosen, result = choose(swept, task(artifact).objective)
    notes = [f"Through Triton's backend {way.triton_backend} it was {other.best.throughput:,.0f}/s at "
             f"{other.best.objective_ms:.1f} ms" for way, other in swept if way is not chosen]
    notes += [f"Triton's backend {way.triton_backend} did not run it: {error.message[:200]}" for way, error in failed]
    return chosen, dataclasses.replace(result, reason=" ".join([result.reason, *(f"{note}." for note in notes)]))


def choose(swept: Sequence[Swept], objective: ObjectiveRequest) -> Swept:
    """The first, unless a later one is clearly better."""
    best = swept[0]
    for other in swept[1:]:
        (kind, value), (best_kind, best_value) = (_judged(one[1], objective) for one in (other, best))
        clearly = max(CLEARLY, 1 + math.hypot(*(_noise(one[1], objective) for one in (other, best))))
        gained = value > best_value * clearly if best_value >= 0 else value * CLEARLY > best_value
        if kind > best_kind or (kind == best_kind and gained):
            best = other
    return best


def _judged(result: SweepResult, objective: ObjectiveRequest) -> tuple[tuple[bool, int], float]:
    kind, value = score(result.best, objective)
    return (result.objective_met, kind), value


def _noise(result: SweepResult, objective: ObjectiveRequest) -> float:
    """Half of the 95 % interval of what is judged, as a share of it: of throughput, or at the knee of power, which a
    closed loop makes its square."""
    point = result.best
    if point.throughput <= 0:
        return math.inf
    squared = 1 if objective.latency_ms > 0 or objective.minimise == ENERGY else 2
    return squared * (point.throughput_high - point.throughput_low) / 2 / point.throughput

"""How long a batch takes on one instance: the service curve that a build measured, or two figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from enginewright_simulation.errors import InputError

# A larger batch that measures this much faster is noise of the measurement; more is a wrong curve.
NOISE = 0.05
# What a replica answers a second where nothing at all is said of it.
USUAL_RPS = 20.0


@dataclass(frozen=True, kw_only=True)
class Service:
    """One replica. ``seconds[b]`` is what a batch of ``b`` takes from start to answer while all ``instances`` work,
    ``seconds[0]`` is 0; its length less one is ``max_batch``. ``pause`` is how long an instance stays taken after it
    has answered; ``wake`` by how much a batch takes longer on one that had nothing to do: caches and processors have
    gone cold. ``transport`` is what a client sees on top while no instance is taken. ``preferred`` and ``queue_delay``
    are those of Triton's dynamic batcher. All in seconds."""

    seconds: tuple[float, ...]
    instances: int = 1
    pause: float = 0.0
    wake: float = 0.0
    transport: float = 0.0
    preferred: tuple[int, ...] = ()
    queue_delay: float = 0.0

    @property
    def max_batch(self) -> int:
        return len(self.seconds) - 1

    @property
    def alone(self) -> float:
        """Seconds that a client sees of one request where nothing waits: none is answered sooner."""
        return self.seconds[1] + self.transport

    @property
    def capacity(self) -> float:
        """Requests a second when the queue is never empty: the best batch on all instances."""
        best = max(batch / (self.seconds[batch] + self.pause) for batch in range(1, len(self.seconds)))
        return self.instances * best


def of_points(points: Mapping[int, float], max_batch: int, where: str) -> tuple[float, ...]:
    """Seconds by batch from 0 to ``max_batch``, in between by straight lines. ``points`` maps measured batches to
    seconds. Raises :class:`InputError` naming ``where``."""
    check_points(points, where)
    _check_rising(points, where)
    if max_batch > max(points):
        raise InputError(f"{where}: misses batch {max_batch}, the largest measured is {max(points)}; measure it, or "
                         f"write --max-batch {max(points)}")
    known = sorted(points)
    seconds, floor = [0.0], 0.0
    for batch in range(1, max_batch + 1):
        above = next(one for one in known if one >= batch)
        below = max((one for one in known if one <= batch), default=above)
        share = (batch - below) / (above - below) if above > below else 0.0
        floor = max(floor, points[below] + share * (points[above] - points[below]))
        seconds.append(floor)
    return tuple(seconds)


def levelled(points: Mapping[int, float]) -> dict[int, float]:
    """No batch takes less than a smaller one: for means of short windows, where a moment's disturbance counts."""
    floor = itertools.accumulate((points[batch] for batch in sorted(points)), max)
    return dict(zip(sorted(points), floor, strict=True))


def check_points(points: Mapping[int, float], where: str) -> None:
    """Raises :class:`InputError` naming ``where``, where batch 1 is missing, or a batch is none or takes no time."""
    if not points:
        raise InputError(f"{where}: has no batch; give at least batch 1")
    for batch, seconds in points.items():
        if not (batch >= 1 and 0 < seconds < math.inf):
            raise InputError(f"{where}: batch {batch} takes {seconds * 1e3:g} ms; batches are 1 or more and take more "
                             "than 0 ms")
    if 1 not in points:
        raise InputError(f"{where}: misses batch 1, the smallest is {min(points)}; measure one request alone")


def _check_rising(points: Mapping[int, float], where: str) -> None:
    for small, large in itertools.pairwise(sorted(points)):
        if points[large] < points[small] * (1 - NOISE):
            raise InputError(
                f"{where}: is not monotone: batch {large} takes {points[large] * 1e3:g} ms, less than the "
                f"{points[small] * 1e3:g} ms of batch {small}; measure again, or leave out the batch that is wrong"
            )


def of_figures(service_ms: float | None, capacity_rps: float | None, max_batch: int | None = None) -> Service:
    """One instance that takes ``service_ms`` for a request alone and answers ``capacity_rps`` when it is never idle;
    either may be None.

    Where the capacity is more than one request at a time makes, the batcher makes it: by default the least batch that
    reaches it, in about the time of one request; with ``max_batch``, a straight line from one request to that batch.
    Where it is less, an instance answers after ``service_ms`` and stays taken until the next may begin.
    """
    for option, value in (("--service-ms", service_ms), ("--capacity-rps", capacity_rps)):
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"{option}: got {value:g}; write a number above 0")
    rate = capacity_rps if capacity_rps is not None else 1e3 / service_ms if service_ms is not None else USUAL_RPS
    alone = service_ms / 1e3 if service_ms is not None else 1.0 / rate
    parallel = rate * alone
    if parallel <= 1.0 + 1e-9:
        return Service(seconds=(0.0, alone), pause=max(0.0, 1.0 / rate - alone))
    largest = max_batch or math.ceil(parallel - 1e-9)
    whole = largest / rate
    if whole < alone:
        raise InputError(f"--max-batch {largest}: {rate:g} requests/s of {alone * 1e3:g} ms each need batches of at "
                         f"least {math.ceil(parallel)}; write that, or leave it out")
    slope = (whole - alone) / (largest - 1) if largest > 1 else 0.0
    return Service(seconds=(0.0, *(alone + slope * (batch - 1) for batch in range(1, largest + 1))))

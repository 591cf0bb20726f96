"""How long one replica takes for each batch: a closed loop outside, Triton's own statistics inside."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginewright_builder.contract import ServingChoice
from enginewright_builder.load import Channels, Request, closed_loop, encode
from enginewright_builder.measure.layers import split
from enginewright_builder.sweep.result import ServicePoint
from enginewright_builder.tensors import Steps, Tensors
from enginewright_builder.triton.client import Server

CURVE_SECONDS = 0.5
CALL_TIMEOUT = 60.0
# A request alone comes after so many times its latency, and that many seconds at most: processors sleep long before. So
# many of them, within so many seconds.
PAUSES, MOST_PAUSE, MOST_ALONE, ALONE_SECONDS = 3.0, 0.4, 50, 2.0
# A curve by which the replica does less than this share of what it was seen to do was disturbed, or cut short.
CREDIBLE = 0.8
# Triton counts a request after it has answered: how often it is asked, and for how long.
POLL_SECONDS, COUNT_SECONDS = 0.01, 1.0


@dataclass(frozen=True)
class Curve:
    """``alone`` is one request that finds the replica idle; None where Triton answered or counted none."""

    points: tuple[ServicePoint, ...]
    alone: ServicePoint | None

    def throughput(self, instances: int) -> float:
        """Inferences a second of all instances, at the batch size that gives most."""
        return max((1e3 * point.batch * instances / _compute_ms(point) for point in self.points), default=0.0)


async def service_curve(server: Server, model_name: str, sample: Tensors, serving: ServingChoice, *,
                        seconds: float, each: float, shown: float = 0.0) -> Curve:
    """Batches of 1, 2, 4, … up to the maximum for ``each`` seconds, one in flight for each instance. Steps of sequences
    are single requests: as many of these are in flight for each instance as a batch has samples.

    Ends after the batch during which ``seconds`` are over: what is left out is the slow end of a slow model. ``shown``
    is how many inferences a second this configuration was seen to do. A curve that comes to clearly less is measured
    once more, the largest batches first, and the quicker of two measurements counts: other work only ever adds time.
    """
    batches = curve_batches(serving.max_batch_size)
    first = await _curve(server, model_name, sample, serving, batches, seconds, each)
    if not first.points or first.throughput(serving.instance_count) >= CREDIBLE * shown:
        return first
    largest = _affordable(first.points[-1], batches, seconds)
    return quicker(first, await _curve(server, model_name, sample, serving, largest, seconds, each))


def _affordable(known: ServicePoint, batches: Sequence[int], seconds: float) -> list[int]:
    """The largest first, without those of which one request might take all the time: it does not begin to be over
    before the first batch is measured. A batch takes at most as many times longer as it is larger."""
    return [batch for batch in reversed(batches)
            if batch <= known.batch or known.p50_ms / 1e3 * batch / known.batch <= seconds]


def quicker(first: Curve, second: Curve) -> Curve:
    """Of each batch the point with the shorter compute time, and of the lone requests."""
    points: dict[int, ServicePoint] = {}
    for point in (*first.points, *second.points):
        points[point.batch] = min(points.get(point.batch, point), point, key=_compute_ms)
    alone = [one.alone for one in (first, second) if one.alone is not None]
    return Curve(tuple(points[batch] for batch in sorted(points)), min(alone, key=_compute_ms, default=None))


def _compute_ms(point: ServicePoint) -> float:
    """Endless where Triton counted nothing: such a point is the quicker of none."""
    return point.compute_ms or math.inf


async def _curve(server: Server, model_name: str, sample: Tensors, serving: ServingChoice,
                 batches: Sequence[int], seconds: float, each: float) -> Curve:
    points: list[ServicePoint] = []
    deadline = time.monotonic() + seconds
    async with Channels(server.grpc_url, count=serving.instance_count) as channels:
        for batch in batches:
            if points and time.monotonic() > deadline:
                break
            whole = isinstance(sample, Steps) or not serving.max_batch_size
            request = encode(model_name, sample if whole else resized(sample, batch), batch=batch)
            point = await _point(server, channels, model_name, request, batch, serving.instance_count, each)
            if point is not None:
                points.append(point)
        if not points:
            return Curve((), None)
        points.sort(key=lambda point: point.batch)
        one = encode(model_name, _step(sample) if whole else resized(sample, 1), batch=1)
        return Curve(tuple(points), await _alone(server, channels, model_name, one, points[0].p50_ms / 1e3))


async def _point(server: Server, channels: Channels, model_name: str, request: Request, batch: int, instances: int,
                 seconds: float) -> ServicePoint | None:
    flying = batch // request.batch * instances
    await closed_loop(channels, [request], concurrency=flying, seconds=seconds / 5, timeout=CALL_TIMEOUT)
    before = await server.statistics(model_name)
    result = await closed_loop(channels, [request], concurrency=flying, seconds=seconds, timeout=CALL_TIMEOUT)
    after = await _counted(server, model_name, before, result.requests - result.failed)
    if not result.p50_ms:
        return None
    point = _service_point(batch, instances, result.p50_ms, result.mean_ms, before, after)
    if request.batch == batch:
        return point
    # Runs have as many steps as waited: of a batch it is the mean of all of them, and what is left is not the model's.
    computed = min(batch * _taken_ms(before, after), result.mean_ms)
    return dataclasses.replace(point, compute_ms=computed, transport_ms=result.mean_ms - computed)


def _taken_ms(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """How long each sample took an instance, of all runs in between."""
    def total(stats: Mapping[str, Any]) -> float:
        return float(sum(int(one[part]["ns"]) for one in stats["batch_stats"]
                         for part in ("compute_input", "compute_infer", "compute_output")))

    samples = int(after["inference_count"]) - int(before["inference_count"])
    return (total(after) - total(before)) / samples / 1e6 if samples else 0.0


async def _alone(server: Server, channels: Channels, model_name: str, request: Request, seconds: float
                 ) -> ServicePoint | None:
    """In a closed loop the next request comes at once; here processors have gone to sleep, as they do at a low rate,
    and take longer to answer."""
    pause, deadline = min(PAUSES * seconds, MOST_PAUSE), time.monotonic() + ALONE_SECONDS
    found: list[float] = []
    before = await _settled(server, model_name, pause)
    for _ in range(MOST_ALONE):
        await asyncio.sleep(pause)
        result = await closed_loop(channels, [request], concurrency=1, seconds=CALL_TIMEOUT, timeout=CALL_TIMEOUT,
                                   max_requests=1)
        found += result.latencies_ms
        if time.monotonic() + pause + seconds > deadline:
            break
    after = await _counted(server, model_name, before, len(found))
    if not found or _growth(before, after) != len(found):
        return None  # what Triton counted is not what was measured
    return _service_point(1, 1, statistics.median(found), statistics.fmean(found), before, after)


async def _settled(server: Server, model_name: str, pause: float) -> dict[str, Any]:
    """Statistics once they stand still: those of the load before belong to larger batches."""
    deadline = time.monotonic() + COUNT_SECONDS
    latest = await server.statistics(model_name)
    while time.monotonic() < deadline:
        previous = latest
        await asyncio.sleep(max(pause, POLL_SECONDS))
        latest = await server.statistics(model_name)
        if not _growth(previous, latest):
            break
    return latest


async def _counted(server: Server, model_name: str, before: Mapping[str, Any], requests: int) -> dict[str, Any]:
    """Statistics with ``requests`` more than ``before``, or the newest where Triton does not count them in time."""
    deadline = time.monotonic() + COUNT_SECONDS
    while True:
        after = await server.statistics(model_name)
        if _growth(before, after) >= requests or time.monotonic() > deadline:
            return after
        await asyncio.sleep(POLL_SECONDS)


def _growth(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Requests computed in between."""
    was, now = (int(one["inference_stats"]["compute_infer"]["count"]) for one in (before, after))
    return now - was


def _service_point(batch: int, instances: int, p50_ms: float, mean_ms: float, before: Mapping[str, Any],
                   after: Mapping[str, Any]) -> ServicePoint:
    layers = split(before["inference_stats"], after["inference_stats"], mean_ms)
    # By Little's law: a slow batch need not complete inside the window to be counted.
    return ServicePoint(batch=batch, p50_ms=p50_ms, throughput=batch * instances / (mean_ms / 1e3),
                        compute_ms=layers.compute_ms + layers.input_output_ms,
                        transport_ms=layers.queue_ms + layers.transport_ms)


def _step(sample: Tensors) -> Tensors:
    """The first of a sequence, as a sequence: those behind it come at once."""
    return Steps({name: array[:1] for name, array in sample.items()}) if isinstance(sample, Steps) else sample


def curve_batches(max_batch_size: int) -> list[int]:
    sizes = [1]
    while sizes[-1] * 2 <= max_batch_size:
        sizes.append(sizes[-1] * 2)
    if max_batch_size > sizes[-1]:
        sizes.append(max_batch_size)
    return sizes


def resized(sample: Tensors, batch: int) -> dict[str, NDArray[Any]]:
    """``batch`` rows of the sample, repeated as needed."""
    return {name: np.resize(array, (batch, *array.shape[1:])) for name, array in sample.items()}

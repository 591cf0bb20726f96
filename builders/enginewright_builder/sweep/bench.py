"""Measures one configuration on a real tritonserver: closed loop outside, Triton's own statistics inside."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from enginewright_builder.contract import ObjectiveRequest, ServingChoice, as_written, requests_needed
from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, LoadResult, Progress, Request, closed_loop, encode, joined
from enginewright_builder.measure.energy import DeviceUse, Meter, Sampler
from enginewright_builder.measure.layers import Folded, Layers, split
from enginewright_builder.sweep.curve import CALL_TIMEOUT, CURVE_SECONDS, Curve, service_curve
from enginewright_builder.sweep.objective import requests_to_decide
from enginewright_builder.sweep.result import Point
from enginewright_builder.tensors import Steps, Tensors
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.model_config import model_config
from enginewright_builder.triton.own_metrics import REPORTED_AFTER, held_back, waited_ms
from enginewright_builder.triton.repository import served_model

WARMUP_SECONDS = 0.4
LEAST_SECONDS = 1.0
LEAST_CALLS = 100
PRECISE = 0.04  # half width of the throughput interval, as a share of it
# Looks for a report that a replica has held back: one slow request may be all that comes between two of them.
REPORT_TRIES = 5
# Energy counters move every 20 to 100 ms: windows that make that a few per cent.
IDLE_SECONDS, METERED_SECONDS = 1.0, 3.0


@dataclass
class Bench:
    """One server, one model, one configuration loaded at a time. ``ways`` is how many ways to serve the engine are
    tried."""

    server: Server
    artifact: Artifact
    model_name: str
    requests: Sequence[Request]
    objective: ObjectiveRequest
    cores: int
    gpus: tuple[int, ...]
    point_seconds: float
    ways: int = 1
    loaded: ServingChoice | None = None
    loads: list[float] = field(default_factory=list)
    meter: Meter | None = None
    idle_watts: float | None = None
    windows: dict[tuple[ServingChoice, int], list[Window]] = field(default_factory=dict)

    async def use(self, serving: ServingChoice) -> float:
        """Loads this configuration unless it is loaded, and returns the seconds it took."""
        if self.loaded == serving:
            return 0.0
        self.loaded = None
        model = served_model(self.model_name, self.artifact, serving, cores=self.cores, gpus=self.gpus)
        seconds = await self.server.load(self.model_name, model_config(model))
        self.loaded = serving
        self.loads.append(seconds)
        return seconds

    def threads(self, serving: ServingChoice) -> int:
        return int(served_model(self.model_name, self.artifact, serving, cores=self.cores,
                                gpus=self.gpus).parameters.get("threads", "0"))

    async def point(self, serving: ServingChoice, concurrency: int, rival: Point | None = None) -> Point:
        """Ends early when throughput is known well enough, or is clearly on one side of ``rival``'s, and the requests
        are enough for the objective's percentile. What is measured
        again gives what all its measurements show together.

        Raises :class:`UserError` ``ServerLoadFailed`` when nothing is answered.
        """
        await self.use(serving)
        least = max(LEAST_CALLS, requests_needed(self.objective.latency_percentile))

        def enough(seen: Progress) -> bool:
            if seen.seconds < LEAST_SECONDS or seen.measured < least:
                return False
            apart = rival is not None and (seen.throughput_high < rival.throughput_low
                                           or seen.throughput_low > rival.throughput_high)
            return apart or precise(seen)

        windows = self.windows.setdefault((serving, concurrency), [])
        windows.append(await self._window(concurrency, self.point_seconds, enough))
        return self._point(serving, concurrency, together(windows))

    async def again(self, point: Point, seconds: float) -> Point:
        """The same point by one new measurement alone, for ``seconds`` at most, and as long as any point at least. It
        ends when the requests are enough to decide on the latency objective, and throughput is known as well as in
        :meth:`point`."""
        await self.use(point.serving)
        least = requests_to_decide(self.objective.latency_percentile, self.ways)

        def enough(seen: Progress) -> bool:
            return seen.seconds >= LEAST_SECONDS and seen.measured >= least and (
                seen.seconds >= self.point_seconds or precise(seen))

        seen = await self._window(point.concurrency, max(self.point_seconds, seconds), enough)
        return self._point(point.serving, point.concurrency, seen)

    async def _window(self, concurrency: int, seconds: float, enough: Callable[[Progress], bool]) -> Window:
        """Of the configuration that is loaded. Raises :class:`UserError` ``ServerLoadFailed``."""
        seen = await window(self.server, self.model_name, self.requests, concurrency=concurrency, seconds=seconds,
                            warmup_seconds=WARMUP_SECONDS, enough=enough, meter=self.meter,
                            idle_watts=self.idle_watts, folded=self._folded)
        if not seen.load.measured:
            raise self.unanswered(as_written(seen.load.errors))
        return seen

    def unanswered(self, why: str) -> UserError:
        return UserError("ServerLoadFailed", f"no request was answered: {why}. {self.server.last_words()}",
                         field="spec.serving", value=self.model_name, remedy="read the log lines")

    def _folded(self, batch: float) -> Folded | None:
        return self.artifact.folded_at(batch)

    @property
    def _batch(self) -> float:
        return float(np.mean([request.batch for request in self.requests]))

    def _point(self, serving: ServingChoice, concurrency: int, seen: Window) -> Point:
        load = seen.load
        return Point(
            serving=serving, threads=self.threads(serving), concurrency=concurrency,
            batch=round(self._batch), requests=load.measured,
            errors=load.failed, seconds=load.seconds, throughput=load.throughput, mean_ms=load.mean_ms,
            p50_ms=load.p50_ms, p90_ms=load.p90_ms, p95_ms=load.p95_ms, p99_ms=load.p99_ms,
            objective_ms=load.percentile(self.objective.latency_percentile),
            throughput_low=load.throughput_low, throughput_high=min(load.throughput_high, 1e12),
            mean_batch=seen.mean_batch, layers=seen.layers, use=seen.use if self.meter else None,
            p999_ms=load.p999_ms, late=late(load, self.objective))

    async def measure_idle(self) -> None:
        """What the device draws with the model loaded and nothing to do."""
        if self.meter is None:
            return
        with Sampler(self.meter) as sampler:
            await asyncio.sleep(IDLE_SECONDS)
        self.idle_watts = sampler.use.watts

    async def metered(self, point: Point) -> Point:
        """The same point with its device's use over a window that is long for an energy counter; its latencies stay."""
        if self.meter is None:
            return point
        await self.use(point.serving)
        seen = await window(self.server, self.model_name, self.requests, concurrency=point.concurrency,
                            seconds=METERED_SECONDS, warmup_seconds=WARMUP_SECONDS, meter=self.meter,
                            idle_watts=self.idle_watts)
        return dataclasses.replace(point, use=seen.use)

    async def service_curve(self, best: Point, sample: Tensors, seconds: float) -> Curve:
        """Of the configuration of ``best``, without queue delay."""
        serving = best.serving
        await self.use(ServingChoice(max_batch_size=serving.max_batch_size, instance_count=serving.instance_count))
        return await service_curve(self.server, self.model_name, sample, serving, seconds=seconds,
                                   each=CURVE_SECONDS, shown=best.throughput)


@dataclass(frozen=True, kw_only=True)
class Window:
    """One closed loop: what the client saw, and what Triton counted meanwhile. ``mean_batch`` is inferences an
    execution."""

    load: LoadResult
    mean_batch: float
    layers: Layers
    use: DeviceUse


def precise(seen: Progress) -> bool:
    return (seen.throughput_high - seen.throughput_low) / 2 < PRECISE * seen.throughput


def late(load: LoadResult, objective: ObjectiveRequest) -> int:
    limit = objective.latency_ms
    return sum(latency > limit for latency in load.latencies_ms) if limit > 0 else 0


def together(windows: Sequence[Window]) -> Window:
    """Several windows of one point as one: each counts as its requests do, and the device is shown as last seen."""
    weights = [max(1, one.load.measured) for one in windows]

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=weights))

    parts = {part.name: [getattr(one.layers, part.name) for one in windows] for part in dataclasses.fields(Layers)}
    # A window in which no request ended tells of no step before or after the engine: the others' count all the same.
    layers = Layers(**{name: mean([value or 0.0 for value in values]) for name, values in parts.items()
                       if any(value is not None for value in values)})
    return Window(load=joined([one.load for one in windows]), mean_batch=mean([one.mean_batch for one in windows]),
                  layers=layers, use=windows[-1].use)


async def window(server: Server, model_name: str, requests: Sequence[Request], *, concurrency: int,
                 seconds: float, warmup_seconds: float, enough: Callable[[Progress], bool] | None = None,
                 meter: Meter | None = None, idle_watts: float | None = None,
                 folded: Callable[[float], Folded | None] = lambda batch: None) -> Window:
    """Closed loop of ``concurrency`` for ``seconds`` after a warm-up, with Triton's counters read on both sides and the
    device's ``meter`` while it runs. ``folded`` tells of a batch what of its run is not the model's own."""
    async with Channels(server.grpc_url, count=min(4, concurrency)) as channels:
        warm = await closed_loop(channels, requests, concurrency=concurrency, seconds=warmup_seconds,
                                 timeout=CALL_TIMEOUT)
        before, page = await server.statistics(model_name), await server.metrics()
        with Sampler(meter, idle_watts=idle_watts) as sampler:
            load = await closed_loop(channels, requests, concurrency=concurrency, seconds=seconds,
                                     timeout=CALL_TIMEOUT, enough=enough)
        after, counted = await server.statistics(model_name), await server.metrics()
        for _ in range(REPORT_TRIES):
            if not held_back(page, counted):
                break
            await closed_loop(channels, requests[:1], concurrency=1, seconds=REPORTED_AFTER, timeout=CALL_TIMEOUT)
            counted = await server.metrics()
    executions = after["execution_count"] - before["execution_count"]
    inferences = after["inference_count"] - before["inference_count"]
    mean_batch = inferences / executions if executions else 0.0
    ahead, behind = waited_ms(page, counted)
    layers = split(before["inference_stats"], after["inference_stats"], load.mean_ms, ahead_ms=ahead, behind_ms=behind,
                   folded=folded(mean_batch))
    return Window(load=also_failed(load, warm), mean_batch=mean_batch, layers=layers, use=sampler.use)


def also_failed(load: LoadResult, warm: LoadResult) -> LoadResult:
    """``load`` with what failed while it was warmed up: an engine that fails its first requests fails requests."""
    return dataclasses.replace(load, failed=load.failed + warm.failed, messages={**load.messages, **warm.messages},
                               errors=Counter(load.errors) + Counter(warm.errors))


def make_requests(model_name: str, inputs: Sequence[Tensors], max_batch_size: int) -> list[Request]:
    """Requests as given; one larger than the maximum is cut into several. A sequence is as many as it has steps."""
    requests = []
    for tensors in inputs:
        rows = len(next(iter(tensors.values())))
        if not max_batch_size or isinstance(tensors, Steps):
            requests.append(encode(model_name, tensors, batch=1))
            continue
        for start in range(0, rows, max_batch_size):
            part = {name: array[start:start + max_batch_size] for name, array in tensors.items()}
            requests.append(encode(model_name, part))
    if not requests:
        raise UserError("EvaluationEmpty", "there is no input to measure with", field="spec.accuracy.evaluation",
                        remedy="give at least one sample")
    return requests

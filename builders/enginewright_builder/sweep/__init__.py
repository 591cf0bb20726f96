"""Chooses batching and instance count on a real tritonserver: few measurements, each kept as evidence."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from enginewright_builder.contract import ENERGY, BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.load import Channels
from enginewright_builder.measure.energy import Meter, require_energy
from enginewright_builder.measure.layers import Layers
from enginewright_builder.sweep.bench import Bench, make_requests
from enginewright_builder.sweep.confirm import confirm
from enginewright_builder.sweep.curve import CALL_TIMEOUT
from enginewright_builder.sweep.objective import met, requests_to_show, shown
from enginewright_builder.sweep.reasons import reason
from enginewright_builder.sweep.result import Point, ServicePoint, SweepResult
from enginewright_builder.sweep.search import Search, run
from enginewright_builder.sweep.space import Space, Trial
from enginewright_builder.tensors import Steps, Tensors
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.repository import write_model

__all__ = ["Layers", "Point", "ServicePoint", "SweepResult", "Task", "sweep_on"]

# Shares of the budget: points themselves (loads and warm-up lie between them), and the service curve after them.
# A search seldom needs all the measurements it may take.
MEASURING_SHARE, USUAL_SHARE_OF_MEASUREMENTS = 0.6, 0.7
SEARCH_SHARE, CURVE_SHARE = 0.85, 0.15
# Of the search's, under a latency limit: to measure once more what it chose.
CONFIRM_SHARE = 0.2
MOST_POINT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """``inputs`` are evaluation-like requests, each with its batch in front (of at most ``max_batch_size``).
    ``batching`` and ``instances`` hold what the user fixed; the rest is searched for. ``cores`` are the server's.
    ``ways`` is how many ways to serve the engine are swept. ``progress`` gets the share of the sweep done, 0 to 1."""

    artifact: Artifact
    model_name: str
    inputs: Sequence[Tensors]
    max_batch_size: int
    objective: ObjectiveRequest
    batching: BatchingRequest
    instances: InstancesRequest
    cores: int
    gpus: tuple[int, ...] = ()
    budget_seconds: float = 90.0
    max_measurements: int = 12
    ways: int = 1
    progress: Callable[[float, str], None] = lambda fraction, detail: None

    @property
    def space(self) -> Space:
        return Space.of(max_batch_size=self.max_batch_size, batching=self.batching, instances=self.instances,
                        cores=self.cores, gpus=len(self.gpus), stepped=self.stepped)

    @property
    def stepped(self) -> bool:
        """Whether a request is one step of a sequence."""
        return isinstance(self.inputs[0], Steps)


async def sweep_on(server: Server, root: Path, task: Task) -> SweepResult:
    """``root`` is where the server finds models; it has none of this one's afterwards. Raises :class:`UserError`
    ``ServerLoadFailed``."""
    first = ServingChoice(max_batch_size=task.max_batch_size, instance_count=task.space.instances[0])
    shutil.rmtree(root / task.model_name, ignore_errors=True)  # of an attempt that was cut off
    folder = write_model(root, task.model_name, task.artifact, first, cores=task.cores, gpus=task.gpus)
    meter = server.meter()
    try:
        if task.objective.minimise == ENERGY:
            require_energy(meter)
        return await _measure(server, task, meter)
    finally:
        if meter is not None:
            meter.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _measure(server: Server, task: Task, meter: Meter | None) -> SweepResult:
    began, space, objective, progress = time.monotonic(), task.space, task.objective, task.progress
    usual = USUAL_SHARE_OF_MEASUREMENTS * task.max_measurements
    point_seconds = min(MOST_POINT_SECONDS, MEASURING_SHARE * task.budget_seconds / usual)
    bench = Bench(server=server, artifact=task.artifact, model_name=task.model_name, objective=objective,
                  cores=task.cores, gpus=task.gpus, point_seconds=point_seconds, ways=task.ways,
                  requests=make_requests(task.model_name, task.inputs, space.max_batch_size), meter=meter)
    progress(0.02, "cold start")
    cold_start, first_ms = await _cold_start(bench, space)
    await bench.measure_idle()

    search = Search(space=space, objective=objective, left=task.max_measurements, ways=task.ways)

    async def measure(trial: Trial, rival: Point | None) -> Point:
        point = await bench.point(trial.serving, trial.concurrency, rival)
        progress(min(0.9, 0.05 + 0.85 * len(search.steps) / task.max_measurements), _describe(point))
        return point

    def seconds_left(share: float) -> float:
        return began + share * task.budget_seconds - time.monotonic()

    await run(search, measure, lambda: seconds_left(SEARCH_SHARE - CONFIRM_SHARE * (objective.latency_ms > 0)))
    found = await confirm(search, bench.again, lambda: seconds_left(SEARCH_SHARE))
    best = await bench.metered(found)
    progress(0.92, "service curve")
    curve = await bench.service_curve(best, task.inputs[0], CURVE_SHARE * task.budget_seconds)
    result = SweepResult(
        serving=best.serving, threads=best.threads, reason=reason(search, best, objective, stepped=task.stepped),
        objective_met=shown(best, objective, task.ways), requests_to_show=_to_show(best, task), best=best,
        service_curve=curve.points, alone=curve.alone, warm_load_seconds=min(bench.loads[1:], default=0.0),
        points=tuple(best if point is found else point for point in search.points),
        cold_start_seconds=cold_start, first_inference_ms=first_ms, memory_bytes=await server.memory_bytes(),
        server_version=server.version, seconds=time.monotonic() - began)
    progress(1.0, result.reason)
    await server.unload(task.model_name)
    return result


def _to_show(best: Point, task: Task) -> int:
    objective = task.objective
    if shown(best, objective, task.ways) or not met(best, objective):
        return 0
    return requests_to_show(objective.latency_percentile, best.late, task.ways)


async def _cold_start(bench: Bench, space: Space) -> tuple[float, float]:
    """Seconds of the first load, without warm-up, and milliseconds of the first request after it. Raises
    :class:`UserError` ``ServerLoadFailed``."""
    serving = ServingChoice(max_batch_size=space.max_batch_size, instance_count=space.instances[0],
                            preferred_batch_sizes=space.preferred_batch_sizes, max_queue_delay_us=space.delays_us[0])
    seconds = await bench.use(serving)
    async with Channels(bench.server.grpc_url, count=1) as channels:
        began = time.monotonic()
        try:
            await channels.call(bench.requests[0].payload, CALL_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise bench.unanswered(f"{error.code().name}: {error.details()}") from None
        return seconds, (time.monotonic() - began) * 1e3


def _describe(point: Point) -> str:
    return (f"{point.serving.instance_count}×{point.threads} threads, delay {point.serving.max_queue_delay_us} µs, "
            f"{point.concurrency} in flight: {point.throughput:,.0f}/s, p99 {point.p99_ms:.1f} ms")

"""Chooses batching and instance count on a real tritonserver: few measurements, each kept as evidence."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.evidence.energy import Meter, open_meter
from enginewright_builder.evidence.layers import Layers
from enginewright_builder.load import Channels, run_on_time
from enginewright_builder.sweep.bench import Bench, make_requests, workspace_repository
from enginewright_builder.sweep.curve import CALL_TIMEOUT
from enginewright_builder.sweep.objective import met
from enginewright_builder.sweep.reasons import reason
from enginewright_builder.sweep.result import Point, ServicePoint, SweepResult
from enginewright_builder.sweep.search import Search, run
from enginewright_builder.sweep.space import Space, Trial
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer

__all__ = ["Layers", "Point", "ServicePoint", "SweepResult", "sweep"]

# Shares of the budget: points themselves (loads and warm-up lie between them), and the service curve after them.
# A search seldom needs all the measurements it may take.
MEASURING_SHARE, USUAL_SHARE_OF_MEASUREMENTS = 0.6, 0.7
SEARCH_SHARE, CURVE_SHARE = 0.85, 0.15
MOST_POINT_SECONDS = 5.0


def sweep(artifact: Artifact, model_name: str, inputs: Sequence[Tensors], workspace: Path, *, max_batch_size: int,
          objective: ObjectiveRequest, batching: BatchingRequest, instances: InstancesRequest,
          budget_seconds: float = 90.0, max_measurements: int = 12, cores: int = 0, gpus: tuple[int, ...] = (),
          progress: Callable[[float, str], None] = lambda fraction, detail: None) -> SweepResult:
    """``inputs`` are evaluation-like requests, each with its batch in front (of at most ``max_batch_size``).

    ``batching`` and ``instances`` hold what the user fixed; the rest is searched for. ``progress`` gets the share of
    the sweep done, 0 to 1. Raises :class:`UserError` ``ServerLoadFailed``, or ``ServerMissing`` when there is no
    tritonserver on this machine.
    """
    space = Space.of(max_batch_size=max_batch_size, batching=batching, instances=instances,
                     cores=cores or available_cpus(), gpus=len(gpus))
    root = workspace_repository(workspace)
    first = ServingChoice(max_batch_size=max_batch_size, instance_count=space.instances[0])
    shutil.rmtree(root / model_name, ignore_errors=True)  # of an attempt that was cut off
    write_model(root, model_name, artifact, first, cores=cores, gpus=gpus)
    meter = open_meter(gpus)
    try:
        return run_on_time(_sweep(artifact, model_name, inputs, root, space, objective, budget_seconds,
                                  max_measurements, cores, gpus, meter, progress))
    finally:
        if meter is not None:
            meter.close()
        shutil.rmtree(root, ignore_errors=True)


async def _sweep(artifact: Artifact, model_name: str, inputs: Sequence[Tensors], root: Path, space: Space,
                 objective: ObjectiveRequest, budget_seconds: float, max_measurements: int, cores: int,
                 gpus: tuple[int, ...], meter: Meter | None, progress: Callable[[float, str], None]) -> SweepResult:
    began = time.monotonic()
    usual = USUAL_SHARE_OF_MEASUREMENTS * max_measurements
    point_seconds = min(MOST_POINT_SECONDS, MEASURING_SHARE * budget_seconds / usual)
    async with TritonServer(root, gpus=gpus) as server:
        bench = Bench(server=server, artifact=artifact, model_name=model_name, objective=objective, cores=cores,
                      gpus=gpus, point_seconds=point_seconds,
                      requests=make_requests(model_name, inputs, space.max_batch_size), meter=meter)
        progress(0.02, "cold start")
        cold_start, first_ms = await _cold_start(bench, space)
        await bench.measure_idle()

        search = Search(space=space, objective=objective, left=max_measurements)

        async def measure(trial: Trial, rival: Point | None) -> Point:
            point = await bench.point(trial.serving, trial.concurrency, rival)
            progress(min(0.9, 0.05 + 0.85 * len(search.steps) / max_measurements), _describe(point))
            return point

        best = await run(search, measure, lambda: began + SEARCH_SHARE * budget_seconds - time.monotonic())
        found, best = best, await bench.metered(best)
        progress(0.92, "service curve")
        curve = await bench.service_curve(best, inputs[0], CURVE_SHARE * budget_seconds)
        result = SweepResult(
            serving=best.serving, threads=best.threads, reason=reason(search, best, objective),
            objective_met=met(best, objective), best=best, service_curve=curve.points,
            alone=curve.alone,
            points=tuple(best if point is found else point for point in search.points),
            cold_start_seconds=cold_start, first_inference_ms=first_ms, memory_bytes=server.memory_bytes(),
            server_version=server.version, seconds=time.monotonic() - began)
    progress(1.0, result.reason)
    return result


async def _cold_start(bench: Bench, space: Space) -> tuple[float, float]:
    """Seconds of the first load, without warm-up, and milliseconds of the first request after it."""
    serving = ServingChoice(max_batch_size=space.max_batch_size, instance_count=space.instances[0],
                            preferred_batch_sizes=space.preferred_batch_sizes, max_queue_delay_us=space.delays_us[0])
    seconds = await bench.use(serving)
    async with Channels(bench.server.grpc_url, count=1) as channels:
        began = time.monotonic()
        await channels.call(bench.requests[0].payload, CALL_TIMEOUT)
        return seconds, (time.monotonic() - began) * 1e3


def _describe(point: Point) -> str:
    return (f"{point.serving.instance_count}×{point.threads} threads, delay {point.serving.max_queue_delay_us} µs, "
            f"{point.concurrency} in flight: {point.throughput:,.0f}/s, p99 {point.p99_ms:.1f} ms")

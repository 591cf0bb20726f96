"""Measures one configuration on a real tritonserver: closed loop outside, Triton's own statistics inside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginewright_builder.contract import ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact, Tensors
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, LoadResult, Request, closed_loop, encode
from enginewright_builder.sweep.result import Layers, Point, ServicePoint
from enginewright_builder.triton.model_config import model_config
from enginewright_builder.triton.repository import served_model
from enginewright_builder.triton.server import TritonServer

WARMUP_SECONDS = 0.4
LEAST_SECONDS = 1.0
LEAST_CALLS = 100
PRECISE = 0.04  # half width of the throughput interval, as a share of it
CURVE_SECONDS = 0.5
CALL_TIMEOUT = 60.0


@dataclass
class Bench:
    """One server, one model, one configuration loaded at a time."""

    server: TritonServer
    artifact: Artifact
    model_name: str
    requests: Sequence[Request]
    objective: ObjectiveRequest
    cores: int
    gpus: tuple[int, ...]
    point_seconds: float
    loaded: ServingChoice | None = None

    async def use(self, serving: ServingChoice) -> float:
        """Loads this configuration unless it is loaded, and returns the seconds it took."""
        if self.loaded == serving:
            return 0.0
        self.loaded = None
        model = served_model(self.model_name, self.artifact, serving, cores=self.cores, gpus=self.gpus)
        seconds = await self.server.load(self.model_name, model_config(model))
        self.loaded = serving
        return seconds

    def threads(self, serving: ServingChoice) -> int:
        return int(served_model(self.model_name, self.artifact, serving, cores=self.cores,
                                gpus=self.gpus).parameters.get("threads", "0"))

    async def point(self, serving: ServingChoice, concurrency: int, rival: Point | None = None) -> Point:
        """Ends early when throughput is known well enough, or is clearly on one side of ``rival``'s.

        Raises :class:`UserError` ``ServerLoadFailed`` when nothing is answered.
        """
        await self.use(serving)

        def enough(result: LoadResult) -> bool:
            if result.seconds < LEAST_SECONDS or result.measured < LEAST_CALLS:
                return False
            low, high = result.throughput_low, result.throughput_high
            apart = rival is not None and (high < rival.throughput_low or low > rival.throughput_high)
            return apart or (high - low) / 2 < PRECISE * result.throughput

        async with Channels(self.server.grpc_url, count=min(4, concurrency)) as channels:
            await closed_loop(channels, self.requests, concurrency=concurrency, seconds=WARMUP_SECONDS,
                              timeout=CALL_TIMEOUT)
            before = await self.server.statistics(self.model_name)
            result = await closed_loop(channels, self.requests, concurrency=concurrency, seconds=self.point_seconds,
                                       timeout=CALL_TIMEOUT, enough=enough)
            after = await self.server.statistics(self.model_name)
        if not result.measured:
            raise UserError("ServerLoadFailed", f"no request was answered: {dict(result.errors)}. Last lines of the "
                                                f"server's log:\n{self.server.log_tail()}", field="spec.serving",
                            value=self.model_name, remedy="read the log lines")
        return self._point(serving, concurrency, result, before, after)

    def _point(self, serving: ServingChoice, concurrency: int, result: LoadResult, before: Mapping[str, Any],
               after: Mapping[str, Any]) -> Point:
        executions = after["execution_count"] - before["execution_count"]
        inferences = after["inference_count"] - before["inference_count"]
        return Point(
            serving=serving, threads=self.threads(serving), concurrency=concurrency,
            batch=round(float(np.mean([request.batch for request in self.requests]))), requests=result.measured,
            errors=result.failed, seconds=result.seconds, throughput=result.throughput, mean_ms=result.mean_ms,
            p50_ms=result.p50_ms, p90_ms=result.p90_ms, p95_ms=result.p95_ms, p99_ms=result.p99_ms,
            objective_ms=result.percentile(self.objective.latency_percentile),
            throughput_low=result.throughput_low, throughput_high=min(result.throughput_high, 1e12),
            mean_batch=inferences / executions if executions else 0.0,
            layers=layers(before["inference_stats"], after["inference_stats"], result.mean_ms))

    async def service_curve(self, serving: ServingChoice, sample: Tensors, seconds: float
                            ) -> tuple[ServicePoint, ...]:
        """Batches of 1, 2, 4, … up to the maximum, one in flight for each instance, no queue delay.

        Ends after the batch during which ``seconds`` are over: what is left out is the slow end of a slow model.
        """
        await self.use(ServingChoice(max_batch_size=serving.max_batch_size, instance_count=serving.instance_count))
        points: list[ServicePoint] = []
        deadline = time.monotonic() + seconds
        async with Channels(self.server.grpc_url, count=serving.instance_count) as channels:
            for batch in curve_batches(serving.max_batch_size):
                if points and time.monotonic() > deadline:
                    break
                inputs = resized(sample, batch) if serving.max_batch_size else sample
                request = [encode(self.model_name, inputs, batch=batch)]
                await closed_loop(channels, request, concurrency=serving.instance_count, seconds=CURVE_SECONDS / 5,
                                  timeout=CALL_TIMEOUT)
                result = await closed_loop(channels, request, concurrency=serving.instance_count,
                                           seconds=CURVE_SECONDS, timeout=CALL_TIMEOUT)
                if result.p50_ms:
                    # By Little's law: a slow batch need not complete inside the window to be counted.
                    rate = batch * serving.instance_count / (result.mean_ms / 1e3)
                    points.append(ServicePoint(batch=batch, p50_ms=result.p50_ms, throughput=rate))
        return tuple(points)


def layers(before: Mapping[str, Any], after: Mapping[str, Any], client_mean_ms: float) -> Layers:
    """Mean milliseconds a request: Triton's cumulative counters over the window, and what the client saw beside
    them."""

    def mean_ms(part: str) -> float:
        count = int(after[part]["count"]) - int(before[part]["count"])
        return (int(after[part]["ns"]) - int(before[part]["ns"])) / count / 1e6 if count else 0.0

    queue, compute = mean_ms("queue"), mean_ms("compute_infer")
    input_output = mean_ms("compute_input") + mean_ms("compute_output")
    return Layers(queue_ms=queue, compute_ms=compute, input_output_ms=input_output,
                  transport_ms=max(0.0, client_mean_ms - queue - compute - input_output))


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


def make_requests(model_name: str, inputs: Sequence[Tensors], max_batch_size: int) -> list[Request]:
    """Requests as given; one larger than the maximum is cut into several."""
    requests = []
    for tensors in inputs:
        rows = len(next(iter(tensors.values())))
        if not max_batch_size:
            requests.append(encode(model_name, tensors, batch=1))
            continue
        for start in range(0, rows, max_batch_size):
            part = {name: array[start:start + max_batch_size] for name, array in tensors.items()}
            requests.append(encode(model_name, part))
    if not requests:
        raise UserError("EvaluationEmpty", "there is no input to measure with", field="spec.accuracy.evaluation",
                        remedy="give at least one sample")
    return requests


def workspace_repository(workspace: Path) -> Path:
    """A folder for the sweep's own repository, apart from the one that is published."""
    root = workspace / "sweep-repository"
    root.mkdir(parents=True, exist_ok=True)
    return root

"""A real tritonserver with a meter beside it, and served plainly for comparison."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest
from enginewright_builder.engines.base import Artifact
from enginewright_builder.evidence.before import plain
from enginewright_builder.measure.energy import LEAST_ENERGY_SECONDS, Meter, Reading
from enginewright_builder.sweep import Task, bench
from enginewright_builder.sweep.bench import METERED_SECONDS
from support.own_server import serve_plainly, sweep

pytestmark = pytest.mark.triton
INPUTS = [{"x": np.ones((1, 4, 8), np.float32)}]


class Counting:
    """A joule a reading, always half busy: there is no such counter on the machines that run this."""

    name = "counting"

    def __init__(self) -> None:
        self.readings, self.closed = count(), 0

    def read(self) -> Reading:
        return Reading(joules=float(next(self.readings)), utilisation=0.5, memory_bytes=7)

    def close(self) -> None:
        self.closed += 1


def task(artifact: Artifact, **settings: Any) -> Task:
    return Task(artifact=artifact, model_name="multiply", inputs=INPUTS, cores=1, objective=ObjectiveRequest(),
                instances=InstancesRequest(count=1), **settings)


def test_every_point_has_what_the_device_did_and_the_best_has_it_over_seconds(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Counting()

    def opened(gpus: tuple[int, ...]) -> Meter:
        return meter

    monkeypatch.setattr("enginewright_builder.triton.server.open_meter", opened)
    result = sweep(task(artifact, max_batch_size=4, batching=BatchingRequest(max_queue_delay_us=0), budget_seconds=8,
                        max_measurements=2), tmp_path)
    assert meter.closed == 1
    assert result.best in result.points
    for point in result.points:
        assert point.use is not None
        assert (point.use.meter, point.use.utilisation, point.use.memory_bytes) == ("counting", 0.5, 7)
        assert point.use.joules is not None
        assert point.use.joules > 0
        assert point.use.idle_watts is not None
        assert point.use.idle_watts > 0
    assert result.best.use is not None
    assert result.best.use.seconds >= METERED_SECONDS > LEAST_ENERGY_SECONDS


def test_what_is_measured_again_has_the_requests_of_both_windows(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is best is in doubt here."""
    windows: list[bench.Window] = []

    async def noted(*arguments: Any, **options: Any) -> bench.Window:
        windows.append(await window(*arguments, **options))
        return windows[-1]

    window = bench.window
    monkeypatch.setattr(bench, "window", noted)
    # Energy would be measured in a window more, where this machine tells it.
    monkeypatch.setattr("enginewright_builder.triton.server.open_meter", lambda gpus: None)
    monkeypatch.setattr("enginewright_builder.sweep.search.in_doubt", lambda points, best, objective: [best])
    result = sweep(task(artifact, max_batch_size=1, batching=BatchingRequest(), budget_seconds=300,
                        max_measurements=3), tmp_path)
    assert "3 measurements, 1 of them again" in result.reason
    assert len(windows) == 3
    assert len(result.points) == 2
    assert sum(point.requests for point in result.points) == sum(one.load.measured for one in windows)


def test_plain_serving_is_measured_and_leaves_nothing(artifact: Artifact, tmp_path: Path) -> None:
    point = serve_plainly(artifact, "multiply", INPUTS, tmp_path, concurrency=2, objective=ObjectiveRequest(), cores=1)
    assert point.serving == plain(artifact)
    assert (point.concurrency, point.errors, point.mean_batch) == (2, 0, 1.0)
    assert point.throughput > 0
    assert point.layers.total_ms == pytest.approx(point.mean_ms)
    assert os.listdir(tmp_path) == []

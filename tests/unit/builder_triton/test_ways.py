"""One engine through two of Triton's backends: which one ships."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from enginewright_builder.contract import Interface, ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.sweep import Point, SweepResult
from enginewright_builder.sweep.ways import choose

PLAN = Artifact(rung=Rung(backend="tensorrt", precision="fp16"), files={"model.plan": Path("model.plan")},
                triton_backend="tensorrt", python_runtime="tensorrt", interface=Interface(),
                runtime_version="tensorrt 10.6.0", parameters={"profiles": "0,1"}, in_python={"buckets": "1,8"})
LIMIT = ObjectiveRequest(latency_ms=20)


def swept(point: Point) -> SweepResult:
    return SweepResult(serving=ServingChoice(max_batch_size=8), threads=1, reason="r", objective_met=True, best=point,
                       points=(point,), service_curve=(), cold_start_seconds=1.0, first_inference_ms=1.0,
                       memory_bytes=1, server_version="2.51.0", seconds=1.0)


def test_an_engine_that_both_backends_run_has_two_ways_the_native_one_first() -> None:
    native, python = PLAN.ways
    assert native is PLAN
    assert (python.triton_backend, python.python_runtime, python.parameters) == (
        "python", "tensorrt", {"buckets": "1,8"})
    assert python.files == PLAN.files
    assert python.ways == (python,)
    assert dataclasses.replace(PLAN, in_python=None).ways[1:] == ()


@pytest.mark.parametrize(("objective", "native", "python", "chosen"), [
    (LIMIT, (1000.0, 10.0), (900.0, 9.0), "tensorrt"),
    (LIMIT, (1000.0, 10.0), (1020.0, 9.0), "tensorrt"),  # less than is clear
    (LIMIT, (1000.0, 10.0), (1100.0, 19.0), "python"),
    (LIMIT, (1000.0, 10.0), (1100.0, 21.0), "tensorrt"),  # beyond the latency
    (LIMIT, (1000.0, 30.0), (10.0, 19.0), "python"),
    (LIMIT, (1000.0, 30.0), (10.0, 29.5), "tensorrt"),
    (LIMIT, (1000.0, 30.0), (10.0, 25.0), "python"),
    (ObjectiveRequest(), (1000.0, 10.0), (1000.0, 8.0), "python"),  # the knee
    (ObjectiveRequest(), (1000.0, 10.0), (1100.0, 12.0), "tensorrt"),
])
def test_the_preferred_backend_ships_unless_the_other_is_clearly_better(
    objective: ObjectiveRequest, native: tuple[float, float], python: tuple[float, float], chosen: str,
    make_point: Callable[..., Point]
) -> None:
    results = [(way, swept(dataclasses.replace(make_point(), throughput=rate, mean_ms=latency, objective_ms=latency)))
               for way, (rate, latency) in zip(PLAN.ways, (native, python), strict=True)]
    way, result = choose(results, objective)
    assert way.triton_backend == chosen
    assert (result.best.throughput, result.best.objective_ms) == (native if chosen == "tensorrt" else python)


@pytest.mark.parametrize(("objective", "noise", "chosen"), [
    (LIMIT, 0.02, "python"), (LIMIT, 0.04, "tensorrt"), (ObjectiveRequest(), 0.02, "python"),
    (ObjectiveRequest(), 0.04, "tensorrt")])
def test_what_is_within_the_noise_of_both_measurements_is_no_gain(
        objective: ObjectiveRequest, noise: float, chosen: str, make_point: Callable[..., Point]) -> None:
    """Of 5 % more throughput, which is 10 % more power. Points end once they are known within 4 %."""
    points = [make_point(throughput=rate, latency=latency, noise=noise)
              for rate, latency in ((1000.0, 10.0), (1050.0, 10.0 / 1.05))]
    way, _ = choose([(way, swept(point)) for way, point in zip(PLAN.ways, points, strict=True)], objective)
    assert way.triton_backend == chosen

"""The section on performance, put together from measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.competition.candidates import Candidate
from enginewright_builder.competition.measure import Timing
from enginewright_builder.contract import DeviceRequest, Interface, ServingChoice
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.evidence.finalists import measured, plainest
from enginewright_builder.measure.energy import DeviceUse
from enginewright_builder.measure.layers import Layers
from enginewright_builder.measure.roofline import Ceilings, Measured, Product, Work
from enginewright_builder.report.performance import assess, device_class
from enginewright_builder.sweep import Point, SweepResult

WORK = Work(products=(Product(operator="MatMul", flops=1e9, weights=1000, activations=1000, flops_per_sample=1e9,
                              activations_per_sample=1000),))
CEILINGS = Ceilings(bytes_per_second=1e9, flops_per_second={"fp32": 1e12, "int8": 4e12})


def candidate(precision: str, size: int, **milliseconds: float) -> list[Measured]:
    return [Measured(name=f"onnxruntime {precision}", backend="onnxruntime", precision=precision, batch=int(batch[1:]),
                     ms=ms, best_ms=ms, size_bytes=size) for batch, ms in milliseconds.items()]


FP32, INT8 = candidate("fp32", 100, b1=1.5, b8=9.0), candidate("int8-dynamic", 26, b1=0.4, b8=20.0)


def swept(**changes: Any) -> SweepResult:
    best = Point(serving=ServingChoice(max_batch_size=8), threads=1, concurrency=4, batch=1, requests=500, errors=0,
                 seconds=2.0, throughput=200.0, mean_ms=10.0, p50_ms=9.0, p90_ms=10.0, p95_ms=11.0, p99_ms=12.0,
                 objective_ms=12.0, throughput_low=190.0, throughput_high=210.0, mean_batch=1.0,
                 layers=Layers(queue_ms=1.0, compute_ms=8.0, input_output_ms=0.5, transport_ms=0.5),
                 use=DeviceUse(meter="nvml", seconds=2.0, joules=500.0, idle_watts=50.0, utilisation=0.7))
    best = replace(best, **{key: value for key, value in changes.items() if key != "objective_met"})
    return SweepResult(serving=best.serving, threads=1, reason="", objective_met=changes.get("objective_met", True),
                       best=best, points=(best,), service_curve=(), cold_start_seconds=1.0, first_inference_ms=1.0,
                       memory_bytes=1, server_version="2.51.0", seconds=1.0)


def test_everything_measured() -> None:
    found = assess(swept(), [*FP32, *INT8], {"onnxruntime int8-dynamic"}, "python", counted=(WORK, CEILINGS))
    assert found.bound == "compute"
    assert found.attained == pytest.approx(0.25 / 0.4)
    assert {(roof.name, roof.batch) for roof in found.roofs} == {
        (name, batch) for name in ("onnxruntime fp32", "onnxruntime int8-dynamic") for batch in (1, 8)
    }
    assert {(gain.batch, gain.buys) for gain in found.precisions} == {(1, "latency"), (8, "memory")}
    assert (found.throughput_at_objective, found.device_seconds_per_million) == (200.0, 5000.0)
    assert found.inferences_per_joule == 1.0
    assert found.next_step.step == "engine"
    assert "less arithmetic" in found.advice["compute"]


def test_what_kept_the_objective_by_few_requests_is_sustained() -> None:
    few = replace(swept(objective_met=False), requests_to_show=600)
    assert assess(few, FP32, {"onnxruntime fp32"}, "python").throughput_at_objective == 200.0


def test_what_was_not_measured_is_left_out() -> None:
    found = assess(swept(use=None, objective_met=False), FP32, {"onnxruntime fp32"}, "python", notes=("why",))
    assert (found.bound, found.attained, found.roofs, found.arithmetic, found.use) == ("", None, (), None, None)
    assert (found.throughput_at_objective, found.device_seconds_per_million) == (None, None)
    assert (found.inferences_per_joule, found.precisions, found.notes) == (None, (), ("why",))


@pytest.mark.parametrize(("mean_batch", "bound"), [(1.0, "compute"), (3.2, "overhead"), (9.0, "overhead")])
def test_the_engine_is_judged_at_the_batch_that_the_server_forms(mean_batch: float, bound: str) -> None:
    slow = candidate("fp32", 100, b1=1.5, b8=90.0)
    found = assess(swept(mean_batch=mean_batch), slow, {"onnxruntime fp32"}, "python", counted=(WORK, CEILINGS))
    assert found.bound == bound


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (DeviceRequest(), ("cpu", 1)),
        (DeviceRequest(accelerator="gpu", products=("NVIDIA-L4", "NVIDIA-T4"), gpu_count=2), ("NVIDIA-L4", 2)),
        (
            DeviceRequest(accelerator="gpu", products=("NVIDIA-H200",), gpu_count=1, mig_profile="1g.18gb"),
            ("NVIDIA-H200/1g.18gb", 1),
        ),
        (DeviceRequest(accelerator="gpu"), ("gpu", 1)),
    ],
)
def test_device_class(device: DeviceRequest, expected: tuple[str, int]) -> None:
    assert device_class(device) == expected


def built(backend: str, precision: str, ms: float | None = None, *, artifact: bool = True) -> Candidate:
    rung = Rung(backend=backend, precision=precision)
    timings = {1: Timing(batch=1, times_ms=(ms,), cold_ms=ms)} if ms else {}
    made = Artifact(rung=rung, files={}, triton_backend="python", interface=Interface(), runtime_version="")
    return Candidate(rung=rung, timings=timings, artifact=made if artifact else None)


def test_figures_are_of_every_batch_that_was_timed(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"1234")
    one = built("torch", "fp32", 3.0)
    assert one.artifact is not None
    timings = {8: Timing(batch=8, times_ms=(9.0, 7.0, 8.0), cold_ms=90.0), **one.timings}
    one = replace(one, timings=timings, artifact=replace(one.artifact, files={"m": tmp_path / "model.onnx"}))
    found = measured([one, built("torch", "int8"), built("torch", "fp8", 1.0, artifact=False)])
    assert [(figure.batch, figure.ms, figure.best_ms, figure.size_bytes) for figure in found] == [
        (1, 3.0, 3.0, 4),
        (8, 8.0, 7.0, 4),
    ]


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([built("torch", "fp32", 3.0), built("tensorrt", "fp32", 2.0), built("torch", "fp16", 1.0)], "tensorrt fp32"),
        ([built("torch", "fp32"), built("tensorrt", "fp32", 2.0)], "tensorrt fp32"),
        ([built("torch", "fp32", artifact=False), built("tensorrt", "tf32", 2.0)], "tensorrt tf32"),
        ([built("tensorrt", "int8", 1.0)], None),
        ([], None),
    ],
)
def test_what_is_served_plainly(candidates: list[Candidate], expected: str | None) -> None:
    found = plainest(candidates)
    assert (found[0] if found else None) == expected

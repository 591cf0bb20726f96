"""Floors, what bounds a candidate, and what a lower precision buys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.measure.roofline import (
    Ceilings,
    Measured,
    Product,
    Work,
    arithmetic,
    precision_gains,
    roof,
)


def product(flops: float, weights: float, activations: float) -> Product:
    return Product(operator="MatMul", flops=flops, weights=weights, activations=activations, flops_per_sample=flops,
                   activations_per_sample=activations)


def measured(
    ms: float, precision: str = "fp32", *, backend: str = "tensorrt", batch: int = 1, size: int = 100
) -> Measured:
    name = f"{backend} {precision}"
    return Measured(name=name, backend=backend, precision=precision, batch=batch, ms=ms, best_ms=ms, size_bytes=size)


# 1 ms of arithmetic in FP32, 0.5 ms in FP16, against 0.4 ms of memory in FP32.
HEAVY = Work(products=(product(1e9, 50_000, 50_000),))
# 4 ms of memory in FP32, 2 ms in FP16, against 0.1 ms of arithmetic.
WIDE = Work(products=(product(1e8, 900_000, 100_000),))
CEILINGS = Ceilings(bytes_per_second=1e9, flops_per_second={"fp32": 1e12, "fp16": 2e12})


@pytest.mark.parametrize(
    ("work", "candidate", "floor", "bound"),
    [
        (HEAVY, measured(1.2), 1.0, "compute"),
        (HEAVY, measured(2.9), 1.0, "compute"),
        (HEAVY, measured(3.1), 1.0, "overhead"),
        (HEAVY, measured(0.6, "fp16"), 0.5, "compute"),
        (HEAVY, measured(10.0, batch=8), 8.0, "compute"),
        (WIDE, measured(5.0), 4.0, "bandwidth"),
        (WIDE, measured(3.0), 4.0, "bandwidth"),
        (WIDE, measured(13.0), 4.0, "overhead"),
        (Work(products=(*HEAVY.products, *WIDE.products)), measured(6.0), 5.0, "bandwidth"),
    ],
)
def test_roof(work: Work, candidate: Measured, floor: float, bound: str) -> None:
    found = roof(candidate, work, CEILINGS)
    assert found is not None
    assert found.floor_ms == pytest.approx(floor)
    assert found.bound == bound
    assert found.attained == pytest.approx(floor / candidate.ms)


def test_weights_are_read_once_for_a_whole_batch() -> None:
    assert WIDE.bytes_at(8, 4) == 4 * (900_000 + 8 * 100_000)
    found = roof(measured(5.0), WIDE, CEILINGS)
    assert found is not None
    assert found.intensity == pytest.approx(1e8 / 4e6)


@pytest.mark.parametrize(
    ("candidate", "work", "ceilings"),
    [
        (measured(1.0, "fp8"), HEAVY, CEILINGS),
        (measured(1.0, "q4"), HEAVY, CEILINGS),
        (measured(1.0), Work(products=()), CEILINGS),
        (measured(1.0), HEAVY, Ceilings(bytes_per_second=0.0, flops_per_second={"fp32": 1e12})),
    ],
)
def test_nothing_is_said_of_what_was_not_measured(candidate: Measured, work: Work, ceilings: Ceilings) -> None:
    assert roof(candidate, work, ceilings) is None


@given(st.integers(1, 64), st.sampled_from(["fp32", "fp16"]), st.floats(0.01, 100))
def test_a_floor_is_no_less_than_either_limit(batch: int, precision: str, ms: float) -> None:
    both = Work(products=(*HEAVY.products, *WIDE.products))
    found = roof(measured(ms, precision, batch=batch), both, CEILINGS)
    assert found is not None
    assert found.floor_ms >= max(found.compute_ms, found.memory_ms) * (1 - 1e-9)
    assert found.floor_ms <= (found.compute_ms + found.memory_ms) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("precision", "kind"),
    [("fp32", "fp32"), ("int8-dynamic", "int8"), ("INT8", "int8"), ("bf16", "bf16"), ("q4", ""), ("", "")],
)
def test_the_type_that_a_precision_computes_in(precision: str, kind: str) -> None:
    assert arithmetic(precision) == kind


@pytest.mark.parametrize(
    ("ms", "size", "buys"),
    [(5.0, 50, "latency"), (9.9, 25, "memory"), (12.0, 25, "memory"), (10.0, 100, "nothing"), (5.0, 120, "latency")],
)
def test_what_a_lower_precision_buys(ms: float, size: int, buys: str) -> None:
    (gain,) = precision_gains([measured(10.0), measured(ms, "fp16", size=size)])
    assert (gain.name, gain.against, gain.buys) == ("tensorrt fp16", "tensorrt fp32", buys)
    assert gain.speedup == pytest.approx(10.0 / ms)


def test_a_precision_is_compared_within_its_backend_and_batch() -> None:
    candidates = [measured(10.0), measured(8.0, backend="torch"), measured(80.0, batch=8),
                  measured(4.0, "fp16"), measured(20.0, "fp16", batch=8), measured(2.0, "int8", backend="onnxruntime"),
                  measured(1.0, "fp16", batch=4)]
    found = {(gain.name, gain.batch): (gain.against, gain.speedup) for gain in precision_gains(candidates)}
    assert found == {
        ("tensorrt fp16", 1): ("tensorrt fp32", 2.5),
        ("tensorrt fp16", 8): ("tensorrt fp32", 4.0),
        ("onnxruntime int8", 1): ("torch fp32", 4.0),
    }


def test_of_several_candidates_of_a_precision_the_fastest_at_that_batch_counts() -> None:
    tuned = replace(measured(2.0, "fp16"), name="tensorrt fp16 @1")
    (gain,) = precision_gains([measured(10.0), measured(4.0, "fp16"), tuned])
    assert (gain.name, gain.speedup) == ("tensorrt fp16 @1", 5.0)


def test_the_fastest_call_is_held_against_ceilings_that_are_of_the_fastest() -> None:
    found = roof(replace(measured(50.0), best_ms=1.25), HEAVY, CEILINGS)
    assert found is not None
    assert (found.measured_ms, found.bound) == (1.25, "compute")

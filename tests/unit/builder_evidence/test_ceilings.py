"""Ceilings of this machine's operations, by a clock of the test's: how high they are is the machine's."""

from __future__ import annotations

import functools
import itertools
from types import SimpleNamespace

import pytest

from enginewright_builder.measure.ceilings import CPU_COPY_BYTES, CPU_SIDE, measure_ceilings

pytestmark = pytest.mark.torch


def test_a_cpus_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright_builder.measure.ceilings.SECONDS", 0.0)
    clock = SimpleNamespace(perf_counter=functools.partial(next, itertools.count(step=0.5)))
    monkeypatch.setattr("enginewright_builder.measure.ceilings.time", clock)
    found = measure_ceilings("cpu", {"fp32", "int8", "fp8"})
    assert set(found.flops_per_second) == {"fp32", "int8"}
    # Every call takes half a second by this clock: what is copied is read and written.
    assert found.bytes_per_second == 2 * CPU_COPY_BYTES / 0.5
    assert set(found.flops_per_second.values()) == {2 * CPU_SIDE**3 / 0.5}


def test_the_matmul_precision_of_others_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("enginewright_builder.measure.ceilings.SECONDS", 0.0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        measure_ceilings("cpu", {"fp32"})
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)

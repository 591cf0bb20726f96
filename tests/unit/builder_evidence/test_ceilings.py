"""Ceilings measured on this machine: positive, and nothing said of what it cannot do. How high is the machine's."""

from __future__ import annotations

import pytest

from enginewright_builder.evidence.ceilings import measure_ceilings

pytestmark = pytest.mark.torch


def test_a_cpus_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright_builder.evidence.ceilings.SECONDS", 0.0)
    found = measure_ceilings("cpu", {"fp32", "int8", "fp8"})
    assert set(found.flops_per_second) == {"fp32", "int8"}
    # Slower than this is no CPU, faster than this no measurement.
    assert 1e8 < found.bytes_per_second < 1e13
    assert all(1e8 < rate < 1e15 for rate in found.flops_per_second.values())


def test_the_matmul_precision_of_others_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("enginewright_builder.evidence.ceilings.SECONDS", 0.0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        measure_ceilings("cpu", {"fp32"})
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)

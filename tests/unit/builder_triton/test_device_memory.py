"""What is free on GPUs, with a fake of CUDA's runtime; tests/gpu asks the real one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from enginewright_builder.triton.device_memory import free_bytes

DONE, FAILED = "cudaSuccess", "cudaErrorInvalidDevice"
RUNTIME = "cuda.bindings.runtime"


class FakeRuntime:
    """Every call answers a tuple that begins with its status, as in cuda-bindings."""

    cudaError_t = SimpleNamespace(cudaSuccess=DONE)  # noqa: N815  (CUDA's name)

    def __init__(self, free: Sequence[int]) -> None:
        self.free, self.device = free, 0

    def cudaGetDevice(self) -> tuple[str, int]:  # noqa: N802  (CUDA's name)
        return DONE, self.device

    def cudaSetDevice(self, ordinal: int) -> tuple[str]:  # noqa: N802  (CUDA's name)
        if ordinal >= len(self.free):
            return (FAILED,)
        self.device = ordinal
        return (DONE,)

    def cudaMemGetInfo(self) -> tuple[str, int, int]:  # noqa: N802  (CUDA's name)
        return DONE, self.free[self.device], 80 << 30


def there(monkeypatch: pytest.MonkeyPatch, runtime: Any) -> None:
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, RUNTIME, runtime)


@pytest.mark.parametrize(("gpus", "free"), [((0,), 5 << 30), ((1,), 7 << 30), ((0, 1), 12 << 30), ((0, 2), None)])
def test_what_is_free_on_these(monkeypatch: pytest.MonkeyPatch, gpus: tuple[int, ...], free: int | None) -> None:
    runtime = FakeRuntime([5 << 30, 7 << 30])
    there(monkeypatch, runtime)
    assert free_bytes(gpus) == free


def test_the_device_in_use_stays_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime([5 << 30, 7 << 30])
    there(monkeypatch, runtime)
    free_bytes((0, 1))
    assert runtime.device == 0


def test_without_cuda_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, None)
    assert free_bytes((0,)) is None


def test_without_a_driver_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driverless(FakeRuntime):
        def cudaGetDevice(self) -> tuple[str, int]:  # noqa: N802  (CUDA's name)
            raise RuntimeError("Failed to dlopen libcuda.so.1")

    there(monkeypatch, Driverless([]))
    assert free_bytes((0,)) is None

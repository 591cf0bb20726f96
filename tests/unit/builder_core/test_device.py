"""What the driver says of the GPUs of a container, with a fake of its libraries; tests/gpu asks the real one."""

from __future__ import annotations

import ctypes

import pytest

from enginewright_builder.machine import look
from enginewright_builder.pod import device
from enginewright_builder.pod.device import Device, Driver
from support.cuda_driver import (
    CUDA,
    FREE_SHARE,
    TOTAL_BYTES,
    FakeDriver,
    NoDriver,
    SlicedGpu,
    StoppedDriver,
    TwoGpus,
)

H200 = Device("NVIDIA H200", "", "9.0", TOTAL_BYTES)
SLICE = Device("NVIDIA H200 MIG 1g.18gb", "1g.18gb", "9.0", TOTAL_BYTES)


class NoNvml(FakeDriver):
    files = (CUDA,)


class Nameless(FakeDriver):
    name = b""


@pytest.mark.parametrize(("machine", "devices", "driver"), [
    (FakeDriver, [H200], Driver("580.95.05", "13.1")), (SlicedGpu, [SLICE], Driver("580.95.05", "13.1")),
    (TwoGpus, [H200, H200], Driver("580.95.05", "13.1")), (NoNvml, [H200], Driver("", "13.1")),
    (Nameless, [], Driver("580.95.05", "13.1")), (StoppedDriver, [], Driver("580.95.05", "13.1")),
    (NoDriver, [], Driver()),
])
def test_devices_and_driver(machine: type[FakeDriver], devices: list[Device], driver: Driver,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", machine)
    assert (device.devices(), device.driver()) == (devices, driver)


def test_a_slice_has_the_product_of_its_gpu() -> None:
    assert (SLICE.whole, SLICE.product) == ("NVIDIA H200", "NVIDIA-H200") == (H200.whole, H200.product)
    assert (SLICE.capability_parts, Device("GPU").capability_parts) == ((9, 0), None)


@pytest.mark.parametrize(("ordinals", "free"), [((0,), 5 << 30), ((1,), 7 << 30), ((0, 1), 12 << 30), ((0, 2), None)])
def test_what_is_free_on_these(ordinals: tuple[int, ...], free: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", TwoGpus)
    assert device.free_bytes(ordinals) == free


@pytest.mark.parametrize("machine", [StoppedDriver, NoDriver])
def test_without_a_driver_nothing_is_known_of_memory(machine: type[FakeDriver],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", machine)
    assert (device.free_bytes((0,)), device.free_share()) == (None, 1.0)


@pytest.mark.parametrize(("machine", "share"), [(FakeDriver, FREE_SHARE), (NoNvml, 1.0), (SlicedGpu, 1.0)])
def test_a_machine_has_the_free_share_of_a_whole_gpu(machine: type[FakeDriver], share: float,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", machine)
    assert look().free_share == share

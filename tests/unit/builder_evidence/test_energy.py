"""Meters, windows, and what is said where nothing is metered."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder import own_device
from enginewright_builder.contract import ENERGY, DeviceRequest, ObjectiveRequest
from enginewright_builder.errors import UserError
from enginewright_builder.measure.energy import (
    DeviceUse,
    NvmlMeter,
    RaplMeter,
    Reading,
    Sampler,
    inferences_per_joule,
    inferences_per_joule_drawn,
    open_meter,
    rapl_packages,
    require_energy,
    summarise,
)


class Scripted:
    """A meter that gives its readings one after the other, then the last for ever."""

    name = "scripted"

    def __init__(self, *readings: Reading) -> None:
        self.readings = list(readings)
        self.asked = threading.Semaphore(0)

    def read(self) -> Reading:
        self.asked.release()
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    def close(self) -> None:
        """Nothing to close."""


def test_a_window_holds_what_was_drawn_between_its_ends() -> None:
    meter = Scripted(Reading(joules=100.0, utilisation=0.0, memory_bytes=10),
                     Reading(joules=200.0, utilisation=0.5, memory_bytes=30),
                     Reading(joules=400.0, utilisation=0.9, memory_bytes=20))
    ticks: Iterator[float] = iter([10.0, 12.0])
    with Sampler(meter, idle_watts=50.0, period=0.001, clock=lambda: next(ticks)) as sampler:
        for _ in range(4):
            assert meter.asked.acquire(timeout=240)
    use = sampler.use
    assert (use.meter, use.seconds, use.joules, use.memory_bytes) == ("scripted", 2.0, 300.0, 30)
    assert use.utilisation is not None
    assert 0.5 < use.utilisation <= 0.9
    assert (use.watts, use.working_joules) == (150.0, 200.0)
    assert inferences_per_joule(use, throughput=1000.0) == 10.0


def test_without_a_meter_nothing_is_said() -> None:
    with Sampler(None) as sampler:
        pass
    assert sampler.use == DeviceUse(meter="", seconds=sampler.use.seconds)
    assert inferences_per_joule(sampler.use, 100.0) is None


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (None, None),
        (DeviceUse(meter="nvml", seconds=5.0), None),
        (DeviceUse(meter="nvml", seconds=0.5, joules=100.0), None),
        (DeviceUse(meter="nvml", seconds=2.0, joules=100.0), 20.0),
        (DeviceUse(meter="nvml", seconds=2.0, joules=100.0, idle_watts=30.0), 50.0),
        (DeviceUse(meter="nvml", seconds=2.0, joules=100.0, idle_watts=60.0), None),
    ],
)
def test_inferences_per_joule(use: DeviceUse | None, expected: float | None) -> None:
    assert inferences_per_joule(use, throughput=1000.0) == expected


def test_a_reading_from_before_the_window_says_nothing_of_its_utilisation() -> None:
    found = summarise("nvml", [Reading(utilisation=0.0), Reading(utilisation=0.8)], 1.0, None)
    assert (found.utilisation, found.joules, found.memory_bytes) == (0.8, None, None)


def package(root: Path, name: str, energy: int, span: int = 1_000_000) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{span - 1}\n")
    return folder


def test_rapl_counters_wrap_around(tmp_path: Path) -> None:
    first, second = package(tmp_path, "intel-rapl:0", 999_000), package(tmp_path, "intel-rapl:1", 0)
    package(tmp_path, "intel-rapl:0:0", 5)
    packages = rapl_packages(tmp_path)
    assert packages == [first, second]
    meter = RaplMeter(packages)
    assert meter.read().joules == 0.0
    (first / "energy_uj").write_text("1000")
    (second / "energy_uj").write_text("500000")
    assert meter.read().joules == pytest.approx(0.502)
    assert meter.read().joules == pytest.approx(0.502)


def test_rapl_that_cannot_be_read_is_no_meter(tmp_path: Path) -> None:
    assert rapl_packages(tmp_path) == []
    (package(tmp_path, "intel-rapl:0", 5) / "energy_uj").write_text("denied")
    assert rapl_packages(tmp_path) == []


class FakeError(Exception):
    """Stands for ``pynvml.NVMLError``."""


def nvml(**answers: Any) -> types.ModuleType:
    """A module of NVML's functions, each of which answers by handle, or refuses where it has no answer."""
    module = types.ModuleType("pynvml")

    def function(name: str) -> object:
        def answer(handle: object) -> object:
            if name not in answers:
                raise FakeError(name)
            return answers[name](handle) if callable(answers[name]) else answers[name]

        return answer

    for name in ("TotalEnergyConsumption", "UtilizationRates", "MemoryInfo", "MigMode"):
        setattr(module, f"nvmlDeviceGet{name}", function(name))
    module.NVMLError = FakeError  # type: ignore[attr-defined]
    module.NVML_DEVICE_MIG_ENABLE = 1  # type: ignore[attr-defined]
    module.nvmlInit = lambda: None  # type: ignore[attr-defined]
    module.nvmlShutdown = lambda: None  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByIndex = lambda index: f"index {index}"  # type: ignore[attr-defined]
    module.nvmlDeviceGetHandleByUUID = lambda uuid: f"uuid {uuid}"  # type: ignore[attr-defined]
    return module


def test_nvml_sums_over_gpus_and_averages_utilisation() -> None:
    busy = {"a": 40, "b": 80}
    answers = nvml(
        TotalEnergyConsumption=2500,
        MemoryInfo=types.SimpleNamespace(used=7),
        UtilizationRates=lambda handle: types.SimpleNamespace(gpu=busy[handle]),
    )
    meter = NvmlMeter(answers, ["a", "b"])
    assert meter.read() == Reading(joules=5.0, utilisation=0.6, memory_bytes=14)


def test_a_counter_that_the_gpu_lacks_is_not_measured() -> None:
    assert NvmlMeter(nvml(MemoryInfo=types.SimpleNamespace(used=7)), ["a"]).read() == Reading(memory_bytes=7)


@pytest.mark.parametrize(
    ("visible", "handle"),
    [(None, "index 1"), ("", "index 1"), ("3,5", "index 5"), ("GPU-aa,GPU-bb", "uuid GPU-bb")],
)
def test_gpus_are_those_that_cuda_sees(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, handle: str
) -> None:
    asked: list[str] = []

    def memory(of: str) -> types.SimpleNamespace:
        asked.append(of)
        return types.SimpleNamespace(used=1)

    monkeypatch.setitem(sys.modules, "pynvml", nvml(MemoryInfo=memory))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = open_meter([1])
    assert meter is not None
    meter.read()
    assert asked == [handle]


def test_a_mig_slice_has_no_meter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml(MigMode=[1, 1]))
    assert open_meter([0]) is None
    monkeypatch.setitem(sys.modules, "pynvml", nvml(MigMode=[0, 1]))
    assert open_meter([0]) is not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-3b9c")
    assert open_meter([0]) is None


def test_without_nvmls_bindings_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_meter([0]) is None


def test_inferences_per_joule_drawn_include_idle_power() -> None:
    use = DeviceUse(meter="nvml", seconds=2.0, joules=400.0, idle_watts=100.0)
    assert inferences_per_joule_drawn(use, throughput=1000.0) == 5.0
    assert inferences_per_joule(use, throughput=1000.0) == 10.0
    assert inferences_per_joule_drawn(DeviceUse(meter="", seconds=2.0), 1000.0) is None


@pytest.mark.parametrize("meter", [None, Scripted(Reading(utilisation=0.5, memory_bytes=7))])
def test_the_least_energy_is_refused_where_none_is_metered(meter: Scripted | None) -> None:
    with pytest.raises(UserError) as caught:
        require_energy(meter)
    assert (caught.value.reason, caught.value.field, caught.value.value) == (
        "EnergyNotMetered", "spec.objective.minimise", "energy")
    assert caught.value.remedy.startswith("write cost, or")
    require_energy(Scripted(Reading(joules=1.0)))


@pytest.mark.parametrize(("minimise", "answers", "refused"), [
    (ENERGY, {"TotalEnergyConsumption": 2500}, False),
    (ENERGY, {"MemoryInfo": types.SimpleNamespace(used=7)}, True),  # a GPU without the counter
    (ENERGY, {"TotalEnergyConsumption": 2500, "MigMode": [1, 1]}, True),
    ("cost", {}, False),
])
def test_a_build_looks_for_the_counter_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, minimise: str, answers: dict[str, Any], refused: bool
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**answers))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asked = ObjectiveRequest(latency_ms=20, minimise=minimise), DeviceRequest(accelerator="gpu", gpu_count=1)
    if refused:
        with pytest.raises(UserError, match="energy counter"):
            own_device.check_meter(*asked)
    else:
        own_device.check_meter(*asked)

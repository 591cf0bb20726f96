"""What a device drew, how busy it was and how much memory it held while something was measured.

A GPU tells by NVML, a CPU by the kernel's RAPL counters where they may be read. Where nothing is metered nothing is
said: no figure is derived from a data sheet.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from enginewright_builder.contract import COST, ENERGY
from enginewright_builder.errors import UserError

# NVML renews its energy counter every 20 to 100 ms and utilisation over 1/6 to 1 s: sampling faster tells nothing new.
PERIOD_SECONDS = 0.1
# A shorter window would blur with the counter's own period.
LEAST_ENERGY_SECONDS = 1.0
_POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One look at all devices together: joules so far, share of time busy (0 to 1), bytes of device memory in use."""

    joules: float | None = None
    utilisation: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """Over ``seconds``. ``joules`` is all that was drawn; ``idle_watts`` is what the device draws with the model loaded
    and no request, to be subtracted. ``meter`` is ``nvml``, ``rapl``, ``triton``, or empty. None: not measured."""

    meter: str
    seconds: float
    joules: float | None = None
    idle_watts: float | None = None
    utilisation: float | None = None
    memory_bytes: int | None = None

    @property
    def watts(self) -> float | None:
        return self.joules / self.seconds if self.joules is not None and self.seconds > 0 else None

    @property
    def working_joules(self) -> float | None:
        """Above idle; all of them where idle was not measured. Never below 0."""
        if self.joules is None:
            return None
        return max(0.0, self.joules - (self.idle_watts or 0.0) * self.seconds)


def inferences_per_joule(use: DeviceUse | None, throughput: float) -> float | None:
    """For ``throughput`` inferences a second in the window of ``use``. None where no energy was measured, or the window
    was too short for the counter."""
    if use is None or use.seconds < LEAST_ENERGY_SECONDS or not use.working_joules:
        return None
    return throughput * use.seconds / use.working_joules


def inferences_per_joule_drawn(use: DeviceUse | None, throughput: float) -> float | None:
    """As :func:`inferences_per_joule`, with idle power: what a replica at this load costs in energy."""
    return throughput / use.watts if use is not None and use.watts else None


class Meter(Protocol):
    name: str

    def read(self) -> Reading: ...

    def close(self) -> None: ...


class Sampler:
    """Reads a meter while its ``with`` block runs, from a thread of its own; :attr:`use` afterwards.

    Without a meter (None) it only takes the time. Enter and leave it right around the load: what is inside counts.
    """

    def __init__(self, meter: Meter | None, *, idle_watts: float | None = None, period: float = PERIOD_SECONDS,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._meter, self._idle_watts, self._period, self._clock = meter, idle_watts, period, clock
        self._stop = threading.Event()
        self._readings: list[Reading] = []
        self._thread: threading.Thread | None = None
        self.use = DeviceUse(meter="", seconds=0.0)

    def __enter__(self) -> Self:
        if self._meter is not None:
            self._readings.append(self._meter.read())
            self._thread = threading.Thread(target=self._sample, args=(self._meter,), daemon=True)
            self._thread.start()
        self._begin = self._clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        seconds = self._clock() - self._begin
        if self._meter is None or self._thread is None:
            self.use = DeviceUse(meter="", seconds=seconds)
            return
        self._stop.set()
        self._thread.join()
        self._readings.append(self._meter.read())
        self.use = summarise(self._meter.name, self._readings, seconds, self._idle_watts)

    def _sample(self, meter: Meter) -> None:
        while not self._stop.wait(self._period):
            self._readings.append(meter.read())


def summarise(meter: str, readings: Sequence[Reading], seconds: float, idle_watts: float | None) -> DeviceUse:
    """The first reading is from before the window: its utilisation is not of it."""
    busy = [one.utilisation for one in readings[1:] if one.utilisation is not None]
    held = [one.memory_bytes for one in readings if one.memory_bytes is not None]
    first, last = readings[0].joules, readings[-1].joules
    return DeviceUse(meter=meter, seconds=seconds, idle_watts=idle_watts,
                     joules=last - first if first is not None and last is not None else None,
                     utilisation=statistics.fmean(busy) if busy else None, memory_bytes=max(held, default=None))


def require_energy(meter: Meter | None) -> None:
    """Raises :class:`UserError` ``EnergyNotMetered`` where ``meter`` cannot tell what is drawn."""
    if meter is None or meter.read().joules is None:
        raise UserError("EnergyNotMetered", "neither the build's container nor its tritonserver can read the energy "
                        "counter of the device",
                        field="spec.objective.minimise", value=ENERGY,
                        remedy=f"write {COST}, or let it build on whole NVIDIA GPUs whose energy counter NVML shows "
                               f"(nvidia-smi -q -d POWER), with a builder image that has NVML's bindings")


def open_meter(gpus: Sequence[int]) -> Meter | None:
    """Of the GPUs with these CUDA ordinals, or of the CPU without any. None where nothing may be metered: on a MIG
    slice, since NVML's counters are of the whole GPU, without NVML's bindings, or without the right to read RAPL."""
    if gpus:
        return _nvml(gpus)
    packages = rapl_packages(_POWERCAP)
    return RaplMeter(packages) if packages else None


class NvmlMeter:
    """Sums over ``handles``. A counter that the GPU does not have is None."""

    name = "nvml"

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        self._nvml, self._handles = nvml, handles

    def read(self) -> Reading:
        nvml = self._nvml
        millijoules = [self._ask(nvml.nvmlDeviceGetTotalEnergyConsumption, one) for one in self._handles]
        rates = [self._ask(nvml.nvmlDeviceGetUtilizationRates, one) for one in self._handles]
        memory = [self._ask(nvml.nvmlDeviceGetMemoryInfo, one) for one in self._handles]
        return Reading(
            joules=sum(millijoules) / 1e3 if None not in millijoules else None,
            utilisation=sum(rate.gpu for rate in rates) / len(rates) / 100 if None not in rates else None,
            memory_bytes=sum(info.used for info in memory) if None not in memory else None)

    def _ask(self, question: Callable[[Any], Any], handle: Any) -> Any:
        try:
            return question(handle)
        except self._nvml.NVMLError:
            return None

    def close(self) -> None:
        self._nvml.nvmlShutdown()


def _nvml(gpus: Sequence[int]) -> Meter | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [_handle(pynvml, ordinal) for ordinal in gpus]
        if not any(_is_partitioned(pynvml, handle) for handle in handles):
            return NvmlMeter(pynvml, handles)
    except (pynvml.NVMLError, ValueError, IndexError):
        pass  # a slice's UUID, or a GPU that NVML does not see
    pynvml.nvmlShutdown()
    return None


def _is_partitioned(nvml: Any, handle: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError:
        return False  # a GPU that cannot be
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _handle(nvml: Any, ordinal: int) -> Any:
    """NVML counts every GPU that it sees, CUDA only those of ``CUDA_VISIBLE_DEVICES``."""
    visible = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    entry = visible[ordinal] if visible else str(ordinal)
    return nvml.nvmlDeviceGetHandleByUUID(entry) if entry.startswith("GPU-") else (
        nvml.nvmlDeviceGetHandleByIndex(int(entry)))


class RaplMeter:
    """Joules of all CPU packages, from the kernel's counters, which wrap around."""

    name = "rapl"

    def __init__(self, packages: Sequence[Path]) -> None:
        self._packages = packages
        self._ranges = [int((package / "max_energy_range_uj").read_text()) for package in packages]
        self._last = self._counters()
        self._total = 0

    def read(self) -> Reading:
        now = self._counters()
        self._total += sum((new - old) % (span + 1)
                           for new, old, span in zip(now, self._last, self._ranges, strict=True))
        self._last = now
        return Reading(joules=self._total / 1e6)

    def _counters(self) -> list[int]:
        return [int((package / "energy_uj").read_text()) for package in self._packages]

    def close(self) -> None:
        """Nothing is held open."""


def rapl_packages(root: Path) -> list[Path]:
    """Whole packages only (``intel-rapl:0``, not its parts ``intel-rapl:0:1``), if every one of them may be read."""
    packages = sorted(path for path in root.glob("intel-rapl:*") if path.name.count(":") == 1)
    try:
        for package in packages:
            int((package / "energy_uj").read_text())
            int((package / "max_energy_range_uj").read_text())
    except (OSError, ValueError):
        return []
    return packages

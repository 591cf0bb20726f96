"""The GPUs that this container has, or its slice of one, and their driver: the one place that reads them.

Standard library only, and nothing of this package, so that any image's own ``python3`` can run it. CUDA's driver and
NVML answer; only :func:`free_bytes` makes a CUDA context, which holds memory of the GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass

# Of cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
_MAJOR, _MINOR = 75, 76
_PROFILE = re.compile(r" MIG (\S+)$")


@dataclass(frozen=True)
class Device:
    """A GPU or a slice of one. ``name`` is the driver's, with the profile of a slice (``NVIDIA H200 MIG 1g.18gb``).
    ``mig_profile`` is empty for a whole GPU; ``capability``, the compute capability such as ``9.0``, is empty and
    ``memory_bytes``, of a slice its own, is 0 where the driver does not give them."""

    name: str
    mig_profile: str = ""
    capability: str = ""
    memory_bytes: int = 0

    @property
    def whole(self) -> str:
        """The name of the GPU, without the profile of a slice."""
        return _PROFILE.sub("", self.name)

    @property
    def product(self) -> str:
        """As GPU feature discovery writes it into the node's label ``nvidia.com/gpu.product``."""
        return self.whole.replace(" ", "-")

    @property
    def capability_parts(self) -> tuple[int, int] | None:
        """Major and minor; None where unknown."""
        major, dot, minor = self.capability.partition(".")
        return (int(major), int(minor)) if dot else None

    def __str__(self) -> str:
        memory = f", {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else ""
        return f"{self.whole}, {sliced(self.mig_profile)}{memory}"


@dataclass(frozen=True)
class Driver:
    """``version`` as NVML gives it, and the newest CUDA that it runs, such as ``13.0``; empty where unknown."""

    version: str = ""
    cuda: str = ""

    def __str__(self) -> str:
        return f"driver {self.version or 'of unknown version'}" + (f" for CUDA up to {self.cuda}" if self.cuda else "")


def devices() -> list[Device]:
    """In the order of CUDA's ordinals; empty without a driver, or where it does not start."""
    cuda = _started()
    count = ctypes.c_int()
    if cuda is None or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [found for ordinal in range(count.value) if (found := _device(cuda, ordinal))]


def driver() -> Driver:
    """Both empty without a driver. A driver that does not start still reports the newest CUDA."""
    number = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    return Driver(_driver_version(), cuda_version(number.value) if number.value else "")


def free_bytes(ordinals: Sequence[int]) -> int | None:
    """What is free now of these GPUs, or slices, together; None where CUDA does not report it. The context that this
    takes in each of them stays until the process ends, as CUDA's runtime keeps it."""
    cuda = _started()
    found = [_free(cuda, ordinal) for ordinal in ordinals] if cuda else [None]
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


def free_share() -> float:
    """The share of the first GPU's memory that no process has, 0 to 1; 1 where unknown. NVML reports it of the whole
    GPU, without a context."""
    cuda = _started()
    memory = _Memory()
    with contextlib.suppress(OSError, AttributeError):
        bus, handle = ctypes.create_string_buffer(32), ctypes.c_void_p()
        if cuda and not cuda.cuDeviceGetPCIBusId(bus, len(bus), _handle(cuda, 0)):
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if not nvml.nvmlInit_v2():
                if not nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle)):
                    nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
                nvml.nvmlShutdown()
    return memory.free / memory.total if memory.total else 1.0


def sliced(profile: str) -> str:
    return f"MIG profile {profile}" if profile else "a whole GPU"


def profile_of(name: str) -> str:
    """The MIG profile at the end of a name as the driver gives it; empty for a whole GPU."""
    part = _PROFILE.search(name)
    return part[1] if part else ""


def cuda_version(number: int) -> str:
    """``13010``, the form in which CUDA gives its versions, is 13.1."""
    return f"{number // 1000}.{number % 1000 // 10}"


class _Memory(ctypes.Structure):
    """``nvmlMemory_t`` of nvml.h, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _started() -> ctypes.CDLL | None:
    """CUDA's driver; None where there is none or it does not start."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        return None if cuda.cuInit(0) else cuda
    except (OSError, AttributeError):
        return None


def _handle(cuda: ctypes.CDLL, ordinal: int) -> ctypes.c_int:
    """Of the device with this ordinal; -1, which no call takes, where there is none."""
    handle = ctypes.c_int(-1)
    cuda.cuDeviceGet(ctypes.byref(handle), ordinal)
    return handle


def _device(cuda: ctypes.CDLL, ordinal: int) -> Device | None:
    """None where the driver does not give its name."""
    handle, text = _handle(cuda, ordinal), ctypes.create_string_buffer(256)
    major, minor, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    if handle.value < 0 or cuda.cuDeviceGetName(text, len(text), handle) or not text.value:
        return None
    with contextlib.suppress(AttributeError):
        cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, handle)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, handle)
    with contextlib.suppress(AttributeError):
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    name = text.value.decode(errors="replace")
    return Device(name, profile_of(name), f"{major.value}.{minor.value}" if major.value else "", memory.value)


def _free(cuda: ctypes.CDLL, ordinal: int) -> int | None:
    handle, context, free, total = _handle(cuda, ordinal), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    if cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle) or cuda.cuCtxPushCurrent_v2(context):
        return None
    failed = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    return None if failed else free.value


def _driver_version() -> str:
    """From NVML, which comes with the driver; empty without one."""
    text = ctypes.create_string_buffer(80)
    with contextlib.suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if not nvml.nvmlInit_v2():
            nvml.nvmlSystemGetDriverVersion(text, len(text))
            nvml.nvmlShutdown()
    return text.value.decode(errors="replace")

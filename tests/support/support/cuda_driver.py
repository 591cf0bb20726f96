"""A driver, NVML and TensorRT's libraries of a machine with one GPU, as ``ctypes.CDLL`` gives them."""

from __future__ import annotations

import ctypes

CUDA, NVML, TENSORRT = "libcuda.so.1", "libnvidia-ml.so.1", "libnvinfer.so.10"
BUILDS = "libnvinfer_builder_resource.so.10.6.0"
TOTAL_BYTES, FREE_SHARE = 16 << 30, 0.25


class FakeDriver:
    """Each call returns the status 0, as in C, but for a device that there is not. Subclasses differ in one thing."""

    name, starts, cuda = b"NVIDIA H200", True, 13_010
    files: tuple[str, ...] = (CUDA, NVML, TENSORRT, BUILDS)
    free: tuple[int, ...] = (5 << 30,)  # by ordinal

    def __init__(self, file: str) -> None:
        if file not in self.files:
            raise OSError(file)
        self.current = 0

    def cuInit(self, flags: int) -> int:  # noqa: N802  (the driver's own names)
        return 0 if self.starts else 100

    def cuDriverGetVersion(self, version: ctypes._CArgObject) -> int:  # noqa: N802
        return _set(version, self.cuda)

    def cuDeviceGetCount(self, count: ctypes._CArgObject) -> int:  # noqa: N802
        return _set(count, len(self.free))

    def cuDeviceGet(self, device: ctypes._CArgObject, ordinal: int) -> int:  # noqa: N802
        return _set(device, ordinal) if ordinal < len(self.free) else 101

    def cuDeviceGetName(self, name: ctypes.Array[ctypes.c_char], size: int, device: ctypes.c_int) -> int:  # noqa: N802
        name.value = self.name
        return 0

    def cuDeviceGetAttribute(self, value: ctypes._CArgObject, what: int, device: ctypes.c_int) -> int:  # noqa: N802
        return _set(value, {75: 9, 76: 0}[what])

    def cuDeviceTotalMem_v2(self, value: ctypes._CArgObject, device: ctypes.c_int) -> int:  # noqa: N802
        return _set(value, TOTAL_BYTES)

    def cuDeviceGetPCIBusId(self, bus: ctypes.Array[ctypes.c_char], size: int, device: ctypes.c_int) -> int:  # noqa: N802
        bus.value = b"0000:18:00.0"
        return 0

    def cuDevicePrimaryCtxRetain(self, context: ctypes._CArgObject, device: ctypes.c_int) -> int:  # noqa: N802
        return 101 if device.value < 0 else _set(context, 1 + device.value)

    def cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> int:  # noqa: N802
        self.current = context.value or 0
        return 0

    def cuCtxPopCurrent_v2(self, context: ctypes._CArgObject) -> int:  # noqa: N802
        self.current = 0
        return 0

    def cuMemGetInfo_v2(self, free: ctypes._CArgObject, total: ctypes._CArgObject) -> int:  # noqa: N802
        _set(total, TOTAL_BYTES)
        return _set(free, self.free[self.current - 1]) if self.current else 201

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlSystemGetDriverVersion(self, text: ctypes.Array[ctypes.c_char], size: int) -> int:  # noqa: N802
        text.value = b"580.95.05"
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(  # noqa: N802
            self, bus: ctypes.Array[ctypes.c_char], handle: ctypes._CArgObject) -> int:
        return _set(handle, 1) if bus.value == b"0000:18:00.0" else 6

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: ctypes._CArgObject) -> int:  # noqa: N802
        found = memory._obj  # type: ignore[attr-defined]
        found.total, found.free = TOTAL_BYTES, int(TOTAL_BYTES * FREE_SHARE)
        return 0

    def nvmlShutdown(self) -> int:  # noqa: N802
        return 0

    def getInferLibVersion(self) -> int:  # noqa: N802
        return 100_600


class SlicedGpu(FakeDriver):
    name = b"NVIDIA H200 MIG 1g.18gb"


class TwoGpus(FakeDriver):
    free = (5 << 30, 7 << 30)


class OldDriver(SlicedGpu):
    cuda = 12_080


class StoppedDriver(FakeDriver):
    starts = False


class NoDriver(FakeDriver):
    files = ()


def _set(reference: ctypes._CArgObject, value: int) -> int:
    reference._obj.value = value  # type: ignore[attr-defined]
    return 0

"""Has this replica the TensorRT, the GPU and the slice of it that its engine was built with, and a driver that runs the
image? Asked before a server loads the engine, and by a build of its own device.

Standard library only, and nothing of this package: the serving pod's first init container copies this file beside
``fits.json``, which it makes of the engine's manifest, and the server image's own ``python3`` runs it in a second init
container that has the replica's GPU::

    python3 fits.py fits.json

Exit status 0 where all fits, and where something is unknown: a guess must not stop a good replica, and the smoke
test follows. Exit status 2 and one line, also as termination message, that begins with ``TensorRTVersionMismatch: ``,
``DeviceMismatch: `` or ``DriverTooOld: `` where it does not fit: a plan is read by the TensorRT version that wrote it
alone, and an engine is proven for the GPU that it was measured on. In either case the line says on what it runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

EXIT_MISFIT = 2
# The profile of an engine that was built on no slice.
WHOLE = "whole"
# How the termination message begins, by which the operator knows it.
VERSION, DEVICE, DRIVER = "TensorRTVersionMismatch", "DeviceMismatch", "DriverTooOld"
TERMINATION_LOG = "/dev/termination-log"
# What a plan's version is compared by; the build number behind is not in every place that tells a version.
PARTS = 3
_LIBRARIES = tuple(f"libnvinfer.so.{major}" for major in range(12, 7, -1))
_PACKAGES = ("tensorrt", *(f"tensorrt-cu{major}{part}" for major in (13, 12, 11) for part in ("", "-bindings")))
# CUDA's runtime in images: a package, or a library that the loader finds.
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")
_SLICE = re.compile(r"-(mig-)?\d+g-\d+gb.*$|-shared$")
_PROFILE = re.compile(r" MIG (\S+)$")


class Device(NamedTuple):
    """A GPU or a slice of one. ``profile`` is empty for a whole GPU, ``memory_bytes`` 0 where the driver does not
    tell."""

    name: str
    profile: str = ""
    memory_bytes: int = 0

    def __str__(self) -> str:
        memory = f", {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else ""
        return f"{_PROFILE.sub('', self.name)}, {_sliced(self.profile)}{memory}"


class Driver(NamedTuple):
    """``version`` as NVML gives it, and the newest CUDA that it runs, such as ``13.0``; empty where unknown."""

    version: str = ""
    cuda: str = ""

    def __str__(self) -> str:
        return f"driver {self.version or 'of unknown version'}" + (f" for CUDA up to {self.cuda}" if self.cuda else "")


def misfit(expected: Mapping[str, object], versions: Sequence[str], devices: Sequence[Device]) -> str:
    """Why it does not fit, empty if it does or that is unknown. ``versions`` of TensorRT and ``devices`` are what is
    here; ``expected`` has ``tensorrt``, ``device`` and ``profile``, each empty or absent where it does not matter, with
    ``profile`` ``whole`` for a whole GPU, and ``memory_bytes``, what the engine takes of its device, 0 if unknown."""
    wanted = str(expected.get("tensorrt") or "")
    if wanted and versions and _short(wanted) not in map(_short, versions):
        return (f"{VERSION}: the engine was built with TensorRT {wanted}, and this server has {', '.join(versions)}; "
                "give builder and server images of one TensorRT version, named by digest")
    built_on = str(expected.get("device") or "")
    others = [one.name for one in devices if _plain(one.name) != _plain(built_on)]
    if _plain(built_on) not in ("", "gpu") and others:
        return (f"{DEVICE}: the engine was built and proven on {built_on}, and this replica has {others[0]}; name the "
                "product in spec.placement.gpu.product, or mend the node's label nvidia.com/gpu.product")
    return _of_another_slice(str(expected.get("profile") or ""), devices) or _too_small(expected, devices)


def _of_another_slice(wanted: str, devices: Sequence[Device]) -> str:
    """Media engines, the suffix ``+me``, change nothing for an engine."""
    profile = "" if wanted == WHOLE else wanted
    others = [one for one in devices if one.profile.partition("+")[0] != profile.partition("+")[0]]
    if not wanted or not others:
        return ""
    return (f"{DEVICE}: the engine was built and proven on {_sliced(profile)}, and this replica has "
            f"{_sliced(others[0].profile)} of {_PROFILE.sub('', others[0].name)}; name the profile in "
            "spec.placement.mig.profile, or mend how the node's GPUs are cut")


def _too_small(expected: Mapping[str, object], devices: Sequence[Device]) -> str:
    needed = expected.get("memory_bytes") or 0
    small = [one for one in devices if 0 < one.memory_bytes < needed] if isinstance(needed, int) else []
    if not small or not isinstance(needed, int):
        return ""
    return (f"{DEVICE}: the engine took {needed / 2**30:.1f} GiB of its device when it was proven, and this replica "
            f"has {small[0]}; give it the device that the engine was built on")


def too_old(driver: Driver, runtimes: Sequence[str]) -> str:
    """Why this driver cannot run an image with CUDA ``runtimes``; empty if it can run one of them, or that is unknown.
    A driver runs each CUDA of its own major version and of those before (CUDA's compatibility guide)."""
    majors = [int(match[0]) for text in runtimes if (match := re.match(r"\d+", text))]
    known = re.match(r"\d+", driver.cuda)
    if not majors or not known or min(majors) <= int(known[0]):
        return ""
    return (f"{DRIVER}: this image has CUDA {', '.join(runtimes)}, and the node has {driver}; update the node's "
            f"driver, or use an image for CUDA {known[0]}")


def _sliced(profile: str) -> str:
    return f"MIG profile {profile}" if profile else "a whole GPU"


def _short(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:PARTS]))


def _plain(name: str) -> str:
    """One spelling for the driver's names and the node labels made of them, without slices and sharing."""
    return _SLICE.sub("", re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"))


def tensorrt_versions() -> list[str]:
    """Of the libraries that a server's own backend loads and of Python packages, whichever are here."""
    return list(dict.fromkeys([*linked(), *_installed()]))


def linked() -> Iterator[str]:
    """Versions of TensorRT's own libraries that the loader finds here."""
    for name in _LIBRARIES:
        with contextlib.suppress(OSError, AttributeError):
            # Major · 10000 + minor · 100 + patch since TensorRT 10, · 1000 for the major before (NvInferVersion.h).
            number = int(ctypes.CDLL(name).getInferLibVersion())
            scale = 10_000 if number >= 100_000 else 1000
            yield f"{number // scale}.{number % scale // 100}.{number % 100}"


def _installed() -> Iterator[str]:
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield metadata.version(name)


def cuda_runtimes() -> list[str]:
    """Versions of CUDA's runtime, of Python packages and of the library that the loader finds."""
    found = []
    for name in _RUNTIMES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append(metadata.version(name))
    for major in (13, 12, 11):
        with contextlib.suppress(OSError, AttributeError):
            number = ctypes.c_int()
            if not ctypes.CDLL(f"libcudart.so.{major}").cudaRuntimeGetVersion(ctypes.byref(number)):
                found.append(_cuda(number.value))
    return list(dict.fromkeys(found))


def devices() -> list[Device]:
    """The GPUs that this container sees, as the driver gives them; empty without a driver."""
    cuda, count = driver()
    return [Device(name, profile_of(name), device_memory(cuda, ordinal)) for ordinal in range(count)
            if cuda and (name := device_name(cuda, ordinal))]


def profile_of(name: str) -> str:
    """The MIG profile at the end of a name as the driver gives it; empty for a whole GPU."""
    part = _PROFILE.search(name)
    return part[1] if part else ""


def driver_facts() -> Driver:
    """Both empty without a driver. A driver that does not start reports the newest CUDA, too."""
    number = ctypes.c_int()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    return Driver(driver_version(), _cuda(number.value) if number.value else "")


def driver_version() -> str:
    """From NVML, which comes with the driver; empty without one."""
    text = ctypes.create_string_buffer(80)
    with contextlib.suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if not nvml.nvmlInit_v2():
            nvml.nvmlSystemGetDriverVersion(text, len(text))
            nvml.nvmlShutdown()
    return text.value.decode(errors="replace")


def _cuda(number: int) -> str:
    """Of the form in which CUDA tells its versions."""
    return f"{number // 1000}.{number % 1000 // 10}"


def device_memory(cuda: ctypes.CDLL | None, ordinal: int) -> int:
    """In bytes, of a slice its own; 0 where the driver does not tell."""
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    with contextlib.suppress(AttributeError):
        if cuda and not cuda.cuDeviceGet(ctypes.byref(device), ordinal):
            cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return memory.value


def here(seen: Sequence[Device], driver: Driver) -> str:
    """One line for people: on what this container runs."""
    return "; ".join(map(str, (*seen, driver))) if seen else f"no GPU seen; {driver}"


def driver() -> tuple[ctypes.CDLL | None, int]:
    """CUDA's driver, started, and how many GPUs it shows; None and 0 where there is none or it does not start."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return None, 0
        return cuda, count.value
    except (OSError, AttributeError):
        return None, 0


def device_name(cuda: ctypes.CDLL, ordinal: int) -> str:
    """As the driver gives it, with the profile of a slice (``NVIDIA H200 MIG 1g.18gb``); empty if it gives none."""
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or cuda.cuDeviceGetName(name, len(name), device):
        return ""
    return name.value.decode(errors="replace")


def main(arguments: Sequence[str]) -> int:
    try:
        expected = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError) as error:
        print(f"nothing is known of what the engine needs ({error})")
        return 0
    found = tensorrt_versions() if expected.get("tensorrt") else []
    seen, driver = devices(), driver_facts()
    runs_on = here(seen, driver)
    why = misfit(expected, found, seen) or too_old(driver, cuda_runtimes())
    line = f"{why} (this replica runs on {runs_on})" if why else (
        f"fits: TensorRT {', '.join(found) or 'not asked'}; this replica runs on {runs_on}")
    print(line, file=sys.stderr if why else sys.stdout)
    with contextlib.suppress(OSError):
        Path(os.environ.get("TERMINATION_LOG", TERMINATION_LOG)).write_text(line, encoding="utf-8")
    return EXIT_MISFIT if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

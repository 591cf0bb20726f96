"""Has this replica the TensorRT and the GPU that its engine was built with? Asked before a server loads the engine.

Standard library only, and nothing of this package: the serving pod's first init container copies this file beside
``fits.json``, which it makes of the engine's manifest, and the server image's own ``python3`` runs it in a second init
container that has the replica's GPU::

    python3 fits.py fits.json

Exit status 0 where all fits, and where something cannot be told: a guess must not stop a good replica, and the smoke
test follows. Exit status 2 and one line, also as termination message, that begins with ``TensorRTVersionMismatch: `` or
``DeviceMismatch: `` where it does not fit: a plan is read by the TensorRT version that wrote it alone, and an engine is
proven for the GPU that it was measured on.
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

EXIT_MISFIT = 2
# How the termination message begins, by which the operator knows it.
VERSION, DEVICE = "TensorRTVersionMismatch", "DeviceMismatch"
TERMINATION_LOG = "/dev/termination-log"
# What a plan's version is compared by; the build number behind is not in every place that tells a version.
PARTS = 3
_LIBRARIES = tuple(f"libnvinfer.so.{major}" for major in range(12, 7, -1))
_PACKAGES = ("tensorrt", *(f"tensorrt-cu{major}{part}" for major in (13, 12, 11) for part in ("", "-bindings")))
_SLICE = re.compile(r"-(mig-)?\d+g-\d+gb.*$|-shared$")


def misfit(expected: Mapping[str, object], versions: Sequence[str], devices: Sequence[str]) -> str:
    """Why it does not fit, empty if it does or nobody can tell. ``versions`` of TensorRT and names of ``devices`` are
    what is here; ``expected`` has ``tensorrt`` and ``device``, each empty or absent where it does not matter."""
    wanted = str(expected.get("tensorrt") or "")
    if wanted and versions and _short(wanted) not in map(_short, versions):
        return (f"{VERSION}: the engine was built with TensorRT {wanted}, and this server has {', '.join(versions)}; "
                "give builder and server images of one TensorRT version, named by digest")
    built_on = str(expected.get("device") or "")
    others = [name for name in devices if _plain(name) != _plain(built_on)]
    if _plain(built_on) not in ("", "gpu") and others:
        return (f"{DEVICE}: the engine was built and proven on {built_on}, and this replica has {others[0]}; name the "
                "product in spec.placement.gpu.products, or mend the node's label nvidia.com/gpu.product")
    return ""


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


def devices() -> list[str]:
    """Names of the GPUs that this container sees, as the driver gives them; empty without a driver."""
    cuda, count = driver()
    return [name for ordinal in range(count) if cuda and (name := device_name(cuda, ordinal))]


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
    seen = devices()
    why = misfit(expected, found, seen)
    line = why or f"fits: TensorRT {', '.join(found) or 'not asked'}, {', '.join(seen) or 'no GPU seen'}"
    print(line, file=sys.stderr if why else sys.stdout)
    with contextlib.suppress(OSError):
        Path(os.environ.get("TERMINATION_LOG", TERMINATION_LOG)).write_text(line, encoding="utf-8")
    return EXIT_MISFIT if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

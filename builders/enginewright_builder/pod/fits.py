"""Has this replica the TensorRT, the GPU and the slice of it that its engine was built with, and a driver that runs the
image? Asked before a server loads the engine, and by a build of its own device.

Standard library, ``device`` and ``libraries`` only. The serving pod's first init container copies this file, a package
with these two, and ``fits.json``, which it makes of the engine's manifest. The server image's own ``python3`` runs it
in a second init container that has the replica's GPU::

    python3 fits.py fits.json

Exit status 0 where all fits, and where something is unknown: a guess must not stop a good replica, and the smoke
test follows. Exit status 2 and one line, also as termination message, that begins with ``TensorRTVersionMismatch: ``,
``DeviceMismatch: `` or ``DriverTooOld: `` where it does not fit: a plan is read by the TensorRT version that wrote it
alone, and an engine is proven for the GPU that it was measured on. In either case the line says on what it runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":  # an image may keep a program's own folder out of the path, by PYTHONSAFEPATH
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from enginewright_builder.pod import device, libraries
from enginewright_builder.pod.device import Device, Driver, sliced

EXIT_MISFIT = 2
# The profile of an engine that was built on no slice.
WHOLE = "whole"
# How the termination message begins, by which the operator knows it.
VERSION, DEVICE, DRIVER = "TensorRTVersionMismatch", "DeviceMismatch", "DriverTooOld"
TERMINATION_LOG = "/dev/termination-log"
# What a plan's version is compared by; the build number behind is not in every place that gives a version.
PARTS = 3
_SLICE = re.compile(r"-(mig-)?\d+g-\d+gb.*$|-shared$")


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
    others = [one for one in devices if one.mig_profile.partition("+")[0] != profile.partition("+")[0]]
    if not wanted or not others:
        return ""
    return (f"{DEVICE}: the engine was built and proven on {sliced(profile)}, and this replica has "
            f"{sliced(others[0].mig_profile)} of {others[0].whole}; name the profile in "
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


def _short(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:PARTS]))


def _plain(name: str) -> str:
    """One spelling for the driver's names and the node labels made of them, without slices and sharing."""
    return _SLICE.sub("", re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"))


def here(seen: Sequence[Device], driver: Driver) -> str:
    """One line for people: on what this container runs."""
    return "; ".join(map(str, (*seen, driver))) if seen else f"no GPU seen; {driver}"


def main(arguments: Sequence[str]) -> int:
    try:
        expected = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError) as error:
        print(f"nothing is known of what the engine needs ({error})")
        return 0
    found = libraries.tensorrt_versions() if expected.get("tensorrt") else []
    seen, driver = device.devices(), device.driver()
    runs_on = here(seen, driver)
    why = misfit(expected, found, seen) or too_old(driver, libraries.cuda_runtimes())
    line = f"{why} (this replica runs on {runs_on})" if why else (
        f"fits: TensorRT {', '.join(found) or 'not asked'}; this replica runs on {runs_on}")
    print(line, file=sys.stderr if why else sys.stdout)
    with contextlib.suppress(OSError):
        Path(os.environ.get("TERMINATION_LOG", TERMINATION_LOG)).write_text(line, encoding="utf-8")
    return EXIT_MISFIT if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

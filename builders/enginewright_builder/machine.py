"""What a container sees of the machine that it runs on: cores, memory, CPU flags, GPUs, driver. By the standard library
alone: a server's image looks with its own Python, too."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from enginewright_builder.pod import fits
from enginewright_builder.system import available_cpus, cpu_flags, free_memory_bytes


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """As :class:`enginewright_builder.pod.fits.Device`."""

    name: str
    profile: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``cores`` and ``memory_bytes``, what is free, are cut by the container's limits. ``capability`` is the compute
    capability of the first GPU, major and minor; empty where unknown. ``free_share`` is what no process has of that
    GPU's memory, 0 to 1; 1 where unknown, and of a MIG slice. ``driver`` and ``cuda`` are as
    :class:`enginewright_builder.pod.fits.Driver` has them, ``runtimes`` versions of CUDA's runtime."""

    cores: int = 1
    memory_bytes: int = 0
    flags: tuple[str, ...] = ()
    capability: tuple[int, ...] = ()
    free_share: float = 1.0
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda: str = ""
    runtimes: tuple[str, ...] = ()


def look() -> Machine:
    """At the machine of this process."""
    devices, driver = fits.devices(), fits.driver_facts()
    return Machine(
        cores=available_cpus(), memory_bytes=free_memory_bytes(), flags=tuple(sorted(cpu_flags())),
        capability=_capability(), free_share=_free_share() if devices and not devices[0].profile else 1.0,
        driver=driver.version, cuda=driver.cuda, runtimes=tuple(fits.cuda_runtimes()),
        gpus=tuple(Gpu(name=one.name, profile=one.profile, memory_bytes=one.memory_bytes) for one in devices))


def _capability() -> tuple[int, ...]:
    major, dot, minor = _asked("compute_cap").partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else ()


def _free_share() -> float:
    free, _, total = _asked("memory.free,memory.total").partition(", ")
    return int(free) / int(total) if free.isdigit() and total.isdigit() and int(total) else 1.0


def _asked(query: str) -> str:
    """What ``nvidia-smi`` says of the first GPU; empty without it."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "-i", "0"],
                              capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()

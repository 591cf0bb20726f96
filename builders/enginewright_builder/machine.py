"""What a container sees of the machine that it runs on: cores, memory, CPU flags, GPUs, driver. By the standard library
alone: a server's image looks with its own Python, too."""

from __future__ import annotations

from dataclasses import dataclass, field

from enginewright_builder.pod import device, libraries
from enginewright_builder.pod.device import Device, Driver
from enginewright_builder.system import available_cpus, cpu_flags, free_memory_bytes


@dataclass(frozen=True, kw_only=True)
class Machine:
    """``cores`` and ``memory_bytes``, what is free, are cut by the container's limits. ``free_share`` is what no
    process has of the first GPU's memory, 0 to 1; 1 where unknown, and of a MIG slice. ``runtimes`` are versions of
    CUDA's runtime."""

    cores: int = 1
    memory_bytes: int = 0
    flags: tuple[str, ...] = ()
    free_share: float = 1.0
    gpus: tuple[Device, ...] = ()
    driver: Driver = field(default_factory=Driver)
    runtimes: tuple[str, ...] = ()


def look() -> Machine:
    """At the machine of this process."""
    gpus = tuple(device.devices())
    return Machine(cores=available_cpus(), memory_bytes=free_memory_bytes(), flags=tuple(sorted(cpu_flags())),
                   free_share=device.free_share() if gpus and not gpus[0].mig_profile else 1.0, gpus=gpus,
                   driver=device.driver(), runtimes=tuple(libraries.cuda_runtimes()))

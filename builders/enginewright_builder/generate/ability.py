"""What a device has for a language model: kernels by CPU flags or compute capability, memory, cores."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from enginewright_builder.contract import DeviceRequest
from enginewright_builder.system import available_cpus, cpu_flags, free_memory_bytes

# Kernels that multiply in BF16: of Intel and AMD, of tiles, and of Arm.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@dataclass(frozen=True, kw_only=True)
class Ability:
    """``flags`` are a CPU's; ``capability`` is a GPU's compute capability, None where unknown. ``memory_bytes`` is what
    a server may take, 0 where unknown; of one GPU where there are several."""

    gpu: bool = False
    flags: frozenset[str] = frozenset()
    capability: tuple[int, int] | None = None
    gpus: int = 0
    cores: int = 1
    memory_bytes: int = 0

    @property
    def bf16(self) -> bool:
        """Whether it multiplies in BF16 itself."""
        return (self.capability or (0, 0)) >= (8, 0) if self.gpu else bool(self.flags & _BF16_FLAGS)


def ability(device: DeviceRequest) -> Ability:
    """Of this machine, and what it has free."""
    if device.accelerator == "gpu":
        return Ability(gpu=True, capability=_capability(), gpus=max(1, device.gpu_count),
                       cores=available_cpus(), memory_bytes=device.memory_bytes)
    return Ability(flags=cpu_flags(), cores=available_cpus(), memory_bytes=free_memory_bytes())


def _capability() -> tuple[int, int] | None:
    done = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader", "-i", "0"],
                          capture_output=True, text=True, check=False)
    major, dot, minor = done.stdout.strip().partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None

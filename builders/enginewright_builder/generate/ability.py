"""What a device has for a language model: kernels by CPU flags or compute capability, memory, cores."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright_builder.contract import DeviceRequest
from enginewright_builder.machine import Machine

# Kernels that multiply in BF16: of Intel and AMD, of tiles, and of Arm.
_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


@dataclass(frozen=True, kw_only=True)
class Ability:
    """``flags`` are a CPU's; ``capability`` is a GPU's compute capability, None where unknown. ``memory_bytes`` is what
    a server may take, 0 where unknown; of one GPU where there are several, of which ``free_share`` is free (0 to 1)."""

    gpu: bool = False
    flags: frozenset[str] = frozenset()
    capability: tuple[int, int] | None = None
    gpus: int = 0
    cores: int = 1
    memory_bytes: int = 0
    free_share: float = 1.0

    @property
    def bf16(self) -> bool:
        """Whether it multiplies in BF16 itself."""
        return (self.capability or (0, 0)) >= (8, 0) if self.gpu else bool(self.flags & _BF16_FLAGS)


def ability(device: DeviceRequest, seen: Machine) -> Ability:
    """Of the machine that the server's container sees, and what that has free."""
    if device.accelerator == "gpu":
        capability = seen.gpus[0].capability_parts if seen.gpus else None
        return Ability(gpu=True, capability=capability, gpus=max(1, device.gpu_count), cores=seen.cores,
                       memory_bytes=device.memory_bytes, free_share=seen.free_share)
    return Ability(flags=frozenset(seen.flags), cores=seen.cores, memory_bytes=seen.memory_bytes)

"""The roofline: how fast the model could be on this device, and what keeps it from that. Pure.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009; applied to every matrix product by itself, since a model mixes such that arithmetic bounds with such
that memory bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from enginewright_builder.contract import Bound

# A floor that explains less of the measured time than this says that neither arithmetic nor memory is the limit.
EXPLAINED = 1 / 3
# From this gain on a lower precision buys latency; below, two candidates count as equally fast.
FASTER = 1.03
# Element size in bytes by the type that a precision computes in. Sums are kept wider, but in registers.
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
FULL_PRECISION = "fp32"


@dataclass(frozen=True, kw_only=True)
class Product:
    """One matrix product or convolution: floating-point operations (a multiply-add is two), elements of constant
    operands, and elements read and written that depend on the input. ``per_sample`` values are what one more sample in
    the batch adds."""

    operator: str
    flops: float
    weights: float
    activations: float
    flops_per_sample: float
    activations_per_sample: float

    def flops_at(self, batch: int) -> float:
        return self.flops + (batch - 1) * self.flops_per_sample

    def bytes_at(self, batch: int, element_bytes: float) -> float:
        return element_bytes * (self.weights + self.activations + (batch - 1) * self.activations_per_sample)


@dataclass(frozen=True, kw_only=True)
class Work:
    """All products of a model for a batch of 1 of given shapes. ``uncounted`` names heavy operators that no formula is
    known for: floors are then too low."""

    products: tuple[Product, ...]
    uncounted: tuple[str, ...] = ()

    def flops_at(self, batch: int) -> float:
        return math.fsum(product.flops_at(batch) for product in self.products)

    def bytes_at(self, batch: int, element_bytes: float) -> float:
        return math.fsum(product.bytes_at(batch, element_bytes) for product in self.products)


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Measured on this device: bytes a second of a large copy (read and written), and operations a second of a large
    matrix product by type (``fp32``, ``fp16``, …). A type that cannot be measured here is absent."""

    bytes_per_second: float
    flops_per_second: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Roof:
    """One candidate under the roofline. ``measured_ms`` is its fastest call, as the ceilings are of the fastest: what a
    busy machine adds is no property of the engine. ``attained`` is ``floor_ms / measured_ms``; above 1 where data stay
    in caches that are faster than the memory measured. ``intensity`` is operations a byte."""

    name: str
    precision: str
    batch: int
    measured_ms: float
    floor_ms: float
    compute_ms: float
    memory_ms: float
    intensity: float
    attained: float
    bound: Bound


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A candidate as measured bare: ``ms`` is the median for one batch of ``batch``, ``best_ms`` the fastest call.
    Several may share backend and precision, tuned for other batches."""

    name: str
    backend: str
    precision: str
    batch: int
    ms: float
    best_ms: float
    size_bytes: int


def arithmetic(precision: str) -> str:
    """The type that a candidate's products are computed in: ``int8`` of ``int8-dynamic``; empty when unknown, as with
    weights alone in fewer bits."""
    if precision.endswith("-weight-only"):
        return ""
    kind = precision.split("-")[0].lower()
    return kind if kind in ELEMENT_BYTES else ""


def roof(candidate: Measured, work: Work, ceilings: Ceilings) -> Roof | None:
    """None when the ceiling of its type was not measured, or there is nothing to compute."""
    kind = arithmetic(candidate.precision)
    peak, width = ceilings.flops_per_second.get(kind), ELEMENT_BYTES.get(kind, 4)
    if not peak or not ceilings.bytes_per_second or not work.products or candidate.best_ms <= 0:
        return None
    compute = [product.flops_at(candidate.batch) / peak for product in work.products]
    memory = [product.bytes_at(candidate.batch, width) / ceilings.bytes_per_second for product in work.products]
    floor = math.fsum(map(max, compute, memory))
    by_compute = math.fsum(c for c, m in zip(compute, memory, strict=True) if c >= m)
    attained = floor * 1e3 / candidate.best_ms
    bound: Bound = "overhead" if attained < EXPLAINED else "compute" if by_compute >= floor / 2 else "bandwidth"
    return Roof(
        name=candidate.name, precision=candidate.precision, batch=candidate.batch, measured_ms=candidate.best_ms,
        floor_ms=floor * 1e3, compute_ms=math.fsum(compute) * 1e3, memory_ms=math.fsum(memory) * 1e3,
        intensity=work.flops_at(candidate.batch) / work.bytes_at(candidate.batch, width), attained=attained,
        bound=bound)


@dataclass(frozen=True, kw_only=True)
class PrecisionGain:
    """A lower precision against full precision (``against``) at one batch: how many times as fast, and its size as a
    share of the full one. ``buys`` is ``latency``, ``memory`` or ``nothing``."""

    name: str
    against: str
    batch: int
    speedup: float
    size_share: float
    buys: str


def precision_gains(candidates: Sequence[Measured]) -> tuple[PrecisionGain, ...]:
    """For every lower precision of a backend at every batch, by its fastest candidate there, that has a full one to be
    compared with: the backend's own, else the fastest of any."""
    fastest: dict[tuple[str, str, int], Measured] = {}
    for one in sorted(candidates, key=lambda one: one.ms):
        fastest.setdefault((one.backend, one.precision, one.batch), one)
    full = [one for one in fastest.values() if one.precision == FULL_PRECISION]
    gains = []
    for lower in sorted(fastest.values(), key=lambda one: (one.batch, one.backend, one.precision)):
        rivals = [one for one in full if one.batch == lower.batch]
        own = [one for one in rivals if one.backend == lower.backend]
        if lower.precision != FULL_PRECISION and rivals:
            gains.append(_gain((own or rivals)[0], lower))
    return tuple(gains)


def _gain(full: Measured, lower: Measured) -> PrecisionGain:
    speedup, share = full.ms / lower.ms, lower.size_bytes / full.size_bytes if full.size_bytes else 1.0
    buys = "latency" if speedup >= FASTER else "memory" if share <= 1 / FASTER else "nothing"
    return PrecisionGain(name=lower.name, against=full.name, batch=lower.batch, speedup=speedup, size_share=share,
                         buys=buys)

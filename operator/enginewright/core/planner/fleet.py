"""What the planner is given and what it answers, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# kept: it may not be changed. proposal: people may, so that a plan may propose it. dynamic: the driver cuts a slice
# when one is claimed (the DRA driver's DynamicMIG), so that a replica may go wherever there is room.
Layout = Literal["kept", "proposal", "dynamic"]


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A MIG instance that exists. ``start`` is its first memory slice, ``used_by`` what runs on it or empty."""

    profile: str
    start: int
    used_by: str = ""


@dataclass(frozen=True, kw_only=True)
class GPU:
    """One board. ``index`` is its number on the node, ``used_by`` what has it whole. ``mig`` says that MIG mode is
    on. ``layout`` says who may repartition it; instances in use stay where they are in any case."""

    node: str
    index: int
    product: str
    mig: bool = False
    instances: tuple[Instance, ...] = ()
    used_by: str = ""
    layout: Layout = "proposal"

    @property
    def name(self) -> str:
        return f"{self.node}/{self.index}"

    @property
    def idle(self) -> bool:
        return not self.used_by and not any(instance.used_by for instance in self.instances)


@dataclass(frozen=True, kw_only=True)
class Option:
    """What one replica may run on: a MIG profile, or, where ``profile`` is empty, ``gpus`` whole GPUs of one node.
    ``products`` empty takes any. ``throughput`` is what was measured there, inferences a second; 0 is unmeasured."""

    profile: str = ""
    gpus: int = 1
    products: tuple[str, ...] = ()
    throughput: float = 0.0

    def __str__(self) -> str:
        return self.profile or (f"{self.gpus} whole GPUs of one node" if self.gpus > 1 else "a whole GPU")


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Replicas of one model that have no place yet. The first of ``options`` holds the objective; a replica on another
    one that was measured slower counts for as much less. ``nodes`` are those that the model may run on, None for all.
    ``weight`` is what one replica is worth beside those of other models."""

    name: str
    replicas: int
    options: tuple[Option, ...]
    weight: float = 1.0
    nodes: frozenset[str] | None = None

    def worth(self, option: Option) -> float:
        """Of one replica on ``option``."""
        first = self.options[0].throughput
        share = min(1.0, option.throughput / first) if first and option.throughput else 1.0
        return self.weight * share


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a replica goes: ``gpus`` of ``node``, and for a slice its profile and first memory slice. ``exists`` is
    False where the slice must be cut first."""

    demand: str
    replica: int
    option: int
    node: str
    gpus: tuple[int, ...]
    product: str
    profile: str = ""
    start: int = 0
    exists: bool = True


# layout: would fit if GPUs were cut as proposed. kept: … were a layout changed that must not be. fragmentation: would
# fit if running replicas moved. capacity: there is not enough. hardware: no node has such a GPU or profile.
Why = Literal["layout", "kept", "fragmentation", "capacity", "hardware"]


@dataclass(frozen=True, kw_only=True)
class Unplaced:
    """Replicas of ``demand`` that have no place now. ``message`` is for people."""

    demand: str
    replicas: int
    why: Why
    message: str


@dataclass(frozen=True, kw_only=True)
class LayoutChange:
    """A proposal for one GPU. ``before`` and ``after`` are (profile, start), by start; ``after`` empty with ``mig``
    False is a GPU with MIG mode off. ``seats`` are the replicas that it makes room for."""

    node: str
    gpu: int
    product: str
    before: tuple[tuple[str, int], ...]
    after: tuple[tuple[str, int], ...]
    mig: bool
    seats: tuple[Seat, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``seats`` can be taken now. ``changes`` is a proposal for people; nothing carries it out."""

    seats: tuple[Seat, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    changes: tuple[LayoutChange, ...] = ()

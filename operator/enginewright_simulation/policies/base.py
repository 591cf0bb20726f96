"""What a policy sees, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from enginewright.clients.signals import ReplicaMetrics
from enginewright.core.signals import Spent


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What production would see at ``time`` (seconds): ``desired`` replicas asked for, ``pending`` queued requests of
    each ready one, ``inflight`` requests being computed, ``arrived`` since the second before, ``starting`` the ages in
    seconds of replicas that are not ready, ``held`` requests that wait because no replica is. ``served`` is what each
    ready one has answered since it was looked at before, if it was, and ``spent`` what that took. ``metrics`` is what
    each ready replica of a language model counts."""

    time: float
    desired: int
    pending: Mapping[str, float]
    inflight: int = 0
    arrived: int = 0
    starting: tuple[float, ...] = ()
    held: int = 0
    served: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Spent] = field(default_factory=dict)
    metrics: Mapping[str, ReplicaMetrics] = field(default_factory=dict)

    @property
    def ready(self) -> int:
        return len(self.pending)

    @property
    def queued(self) -> float:
        return sum(self.pending.values()) + self.held


class Policy(Protocol):
    """``initial`` replicas are ready when the trace begins. ``decide`` is asked once a second and answers with the
    replicas wanted; those that look less often answer with what is."""

    @property
    def initial(self) -> int: ...

    def decide(self, seen: Seen) -> int: ...

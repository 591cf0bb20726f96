"""What a Service costs a fleet: every replica gets the same share of the requests, whatever it can do.

No numbers of replicas mend that, for the share of one replica is one part of them all; more of the slow ones only make
each one's share smaller. So it is said, where it costs much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from enginewright.core.fleet.capacity import evenly, measured
from enginewright.core.fleet.standing import Member

# Of the capacity of all replicas. What is lost below this much is worth a Gateway.
WORTH_SAYING = 0.8


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Behind the Service. ``share`` and ``capacity`` are what one replica of the least capable class, ``name``, gets of
    the requests and has of what all replicas can do, from 0 to 1. ``carried`` is what all carry before that replica is
    at its end, ``whole`` what they could, in inferences a second as the builds measured."""

    name: str
    share: float
    capacity: float
    carried: float
    whole: float

    @property
    def said(self) -> str:
        """Empty where little is lost."""
        if self.carried >= WORTH_SAYING * self.whole:
            return ""
        return (f"Behind the Service a replica of {self.name} gets {100 * self.share:.0f} % of the requests and has "
                f"{100 * self.capacity:.0f} % of the capacity: it is at its end when all together get "
                f"{self.carried:.0f} of the {self.whole:.0f} inferences/s that they can do. Through a Gateway "
                f"(spec.rollout.gateway) classes are sent requests by capacity.")


def balance(members: Iterable[Member]) -> Balance | None:
    """Of the ready replicas; None where fewer than two classes have any, or one that has is not measured."""
    ready = [member for member in members if member.ready_replicas]
    each = measured({member.entry.name: member.status for member in ready})
    if len(ready) < 2 or each is None:
        return None
    counts = {member.entry.name: member.ready_replicas for member in ready}
    whole = sum(count * each[name] for name, count in counts.items())
    name = min(each, key=each.__getitem__)
    return Balance(name=name, share=1 / sum(counts.values()), capacity=each[name] / whole,
                   carried=evenly(counts, each), whole=whole)

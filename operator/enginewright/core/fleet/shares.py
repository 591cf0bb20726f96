"""How a fleet's traffic is split over its classes, by what builds measured that replicas of each can do.

Through a Gateway each class is a backend of the routes by its own object's Service, and gets what it was measured to do
times its ready replicas. A class that is about to go loses its share first, and goes in a pass that sees no route lead
to it any more.

Behind a Service every replica gets the same share of the requests, whatever it can do. No numbers of replicas mend
that, for the share of one replica is one part of them all; more of the slow ones only make each one's share smaller. So
it is said, where it costs much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from enginewright.core.applying import remove_routes, write_routes
from enginewright.core.conditions import no
from enginewright.core.context import PassContext
from enginewright.core.fleet.agreement import Agreement
from enginewright.core.fleet.departure import Departure
from enginewright.core.fleet.standing import Member, evenly, measured, ready_of
from enginewright.core.language_models import server_for
from enginewright.core.plan import Action
from enginewright.core.reasons import Reason
from enginewright.core.routing import API_VERSION, Weights, answerable

# Of a weight before it becomes a hundredth: small capacities are not rounded away.
FINE = 10_000


@dataclass(frozen=True, kw_only=True)
class Routed:
    """``agreed`` with what is to be said of the routes; ``weights`` are by class, empty without a Gateway."""

    agreed: Agreement
    actions: tuple[Action, ...] = ()
    weights: Weights


def route(ctx: PassContext, members: Iterable[Member], departure: Departure, agreed: Agreement) -> Routed:
    gateway, seen = ctx.spec.rollout.gateway, ctx.observed.gateway
    if gateway is None:
        return Routed(agreed=agreed, actions=remove_routes(ctx, set(seen.weights)), weights={})
    staying = departure.staying if departure.why else ()
    weights = shares({
        **{member.entry.name: member.status for member in members},
        **{view.class_name: view.status for view in staying},
    })
    actions = write_routes(ctx, gateway, weights, server_for(ctx.spec))
    if seen.missing:
        message = (f"spec.rollout.gateway needs {' and '.join(seen.missing)} of {API_VERSION}, which this cluster "
                f"does not have: install the Gateway API's CustomResourceDefinitions, or remove spec.rollout.gateway.")
        agreed = _instead(agreed, Reason.GATEWAY_NOT_INSTALLED, message)
    elif agreed.finding.ok and not weights.keys() <= seen.routed:
        agreed = _instead(agreed, Reason.PROGRESSING, "Routes are written next.")
    agreed = replace(agreed, finding=agreed.finding.adding(" ".join(seen.refused)))
    return Routed(agreed=agreed, actions=actions, weights=weights)


def shares(statuses: Mapping[str, Mapping[str, Any]]) -> Weights:
    """Hundredths by class; empty while no class has a ready replica. Where one of those that have is not measured, all
    replicas count alike."""
    ready = {name: ready_of(status) for name, status in statuses.items()}
    each = measured({name: statuses[name] for name, count in ready.items() if count}) or dict.fromkeys(ready, 1.0)
    total = sum(count * each[name] for name, count in ready.items() if count)
    wanted = {name: max(1, round(FINE * count * each[name] / total)) for name, count in ready.items() if count}
    return answerable(wanted, ready)


def _instead(agreed: Agreement, reason: Reason, message: str) -> Agreement:
    return replace(agreed, finding=no(reason, f"{message} {agreed.finding.message}"))


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
    def message(self) -> str:
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

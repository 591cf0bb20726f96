"""How a Gateway splits a fleet's traffic: by what each class was measured to do, times its ready replicas.

Each class is a backend of the routes by its own object's Service. A class that is about to go loses its share first,
and goes in a pass that sees no route lead to it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from enginewright.core.applying import remove_routes, write_routes
from enginewright.core.conditions import bad
from enginewright.core.context import PassContext
from enginewright.core.fleet.agreement import Agreement
from enginewright.core.fleet.capacity import measured, ready_of
from enginewright.core.fleet.departure import Departure
from enginewright.core.fleet.standing import Member
from enginewright.core.plan import Action
from enginewright.core.reasons import Condition, Reason
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
    actions = write_routes(ctx, gateway, weights)
    if seen.missing:
        said = (f"spec.rollout.gateway needs {' and '.join(seen.missing)} of {API_VERSION}, which this cluster "
                f"does not have: install the Gateway API's CustomResourceDefinitions, or remove spec.rollout.gateway.")
        agreed = _instead(agreed, Reason.GATEWAY_NOT_INSTALLED, said)
    elif agreed.verdict.ok and not weights.keys() <= seen.routed:
        agreed = _instead(agreed, Reason.PROGRESSING, "Routes are written next.")
    message = "".join((agreed.verdict.message, *(f" {said}" for said in seen.refused)))
    agreed = replace(agreed, verdict=replace(agreed.verdict, message=message))
    return Routed(agreed=agreed, actions=actions, weights=weights)


def shares(statuses: Mapping[str, Mapping[str, Any]]) -> Weights:
    """Hundredths by class; empty while no class has a ready replica. Where one of those that have is not measured, all
    replicas count alike."""
    ready = {name: ready_of(status) for name, status in statuses.items()}
    each = measured({name: statuses[name] for name, count in ready.items() if count}) or dict.fromkeys(ready, 1.0)
    total = sum(count * each[name] for name, count in ready.items() if count)
    wanted = {name: max(1, round(FINE * count * each[name] / total)) for name, count in ready.items() if count}
    return answerable(wanted, ready)


def _instead(agreed: Agreement, reason: Reason, said: str) -> Agreement:
    verdict = bad(Condition.ROLLOUT_COMPLETE, reason, f"{said} {agreed.verdict.message}")
    return replace(agreed, verdict=verdict)

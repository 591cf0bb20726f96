"""What is to be done about a fleet: an object that asks for several classes of devices. Pure, as all of ``decide``.

Each class is served by an object of its own, made from the fleet's spec, which goes the whole way of any
OptimisedModel. The fleet makes these objects, puts one Service before all of their pods, lets them promote together
(:mod:`~enginewright.core.fleet.agreement`), lets those go that are not asked for any more
(:mod:`~enginewright.core.fleet.departure`), and says how all stand together.
"""

from __future__ import annotations

from enginewright.core.applying import ROUTE_CHECK, applied_as, apply_if_changed
from enginewright.core.conditions import merge
from enginewright.core.config import OperatorConfig
from enginewright.core.context import PassContext, earliest, read_spec
from enginewright.core.events import transitions
from enginewright.core.fleet.agreement import Agreement, agree
from enginewright.core.fleet.departure import Handover, depart, hand_over, leaving, missing
from enginewright.core.fleet.report import blocks, refused_verdicts, verdicts
from enginewright.core.fleet.shares import route
from enginewright.core.fleet.standing import Member, contains, members_of
from enginewright.core.fleet.turns import starts
from enginewright.core.language_models import server_for
from enginewright.core.manifests import fleet_service, member
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Action, Apply, Plan
from enginewright.core.refusal import refused
from enginewright.core.spec import Spec

# Watches tell of what members say; this is for what they might miss.
CHECK = 15.0


def decide_fleet(obj: ObjectView, observed: Observed, config: OperatorConfig) -> Plan:
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return refused(obj, observed, refused_verdicts(observed, spec))
    ctx = PassContext.of(obj, observed, config, spec)
    members = members_of(obj.name, spec, observed.fleet, ctx.memory.classes)
    going, lacking = leaving(members, observed.fleet.members), missing(members, suspended=spec.suspend)
    handover = hand_over(ctx, members, going, held=bool(lacking))
    departure = depart(going, lacking or handover.why, observed.gateway.routed)
    routed = route(ctx, members, departure, agree(ctx, members))
    agreed = routed.agreed
    found = verdicts(ctx, members, agreed, departure)
    old = obj.status.get("conditions")
    return Plan(
        serving=(*_service(ctx), *_objects(ctx, members, agreed, handover), *routed.actions, *departure.actions),
        events=transitions(old, found),
        status={
            "observedGeneration": obj.generation,
            "conditions": merge(old, found, obj.generation, ctx.now),
            **blocks(members, agreed, found[0], routed.weights, handover),
        },
        requeue_after=earliest(ROUTE_CHECK if routed.actions else None,
                               None if found[0].ok else CHECK, agreed.requeue, handover.requeue),
    )


def _service(ctx: PassContext) -> tuple[Action, ...]:
    manifest = fleet_service(ctx.owner, server_for(ctx.spec))
    seen = ctx.observed.service
    applied = applied_as(ctx.observed, manifest) if seen else None
    return apply_if_changed(manifest, applied, "one Service for the replicas of all classes", force=seen is not None)


def _objects(
    ctx: PassContext, members: tuple[Member, ...], agreed: Agreement, handover: Handover
) -> tuple[Action, ...]:
    """Written again where a user has changed one: what a class asks for is the fleet's to say."""
    actions: tuple[Action, ...] = ()
    turns = starts(ctx, members, agreed.wishes)
    for one in members:
        if one.name in ctx.observed.fleet.taken or (one.view and one.view.deleting):
            continue
        name = one.entry.name
        wishes = {**agreed.wishes.get(name, {}), **handover.wishes(name), **turns.get(name, {})}
        manifest = member(ctx.owner, one.entry.name, one.wanted, wishes)
        why = f"it serves class {one.entry.name}"
        # A wish that a user took away shows in no hash.
        if not one.applied or not contains(one.view.annotations if one.view else {}, wishes):
            actions += (Apply(manifest=manifest, why=why, force=one.view is not None),)
        else:
            actions += apply_if_changed(manifest, one.view.hash if one.view else None, why)
    return actions


__all__ = ["decide_fleet"]

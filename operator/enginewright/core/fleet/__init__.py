"""What is to be done about a fleet: an object that asks for several classes of devices. Pure, as all of ``decide``.

Each class is served by an object of its own, made from the fleet's spec, which goes the whole way of any
OptimisedModel. The fleet makes these objects, puts one Service before all of their pods, lets them promote together
(:mod:`~enginewright.core.fleet.agreement`), lets those go that are not asked for any more
(:mod:`~enginewright.core.fleet.departure`), and says how all stand together.
"""

from __future__ import annotations

from enginewright.core.applying import ROUTE_CHECK, applied_as, apply_if_changed
from enginewright.core.conditions import bad, merge, refused
from enginewright.core.config import OperatorConfig
from enginewright.core.context import PassContext, earliest, read_spec
from enginewright.core.events import transitions
from enginewright.core.fleet.agreement import Agreement, agree
from enginewright.core.fleet.departure import depart, missing
from enginewright.core.fleet.handover import Handover, hand_over, leaving
from enginewright.core.fleet.report import available_verdict, blocks, verdicts
from enginewright.core.fleet.shares import route
from enginewright.core.fleet.standing import Member, contains, members_of, says_available
from enginewright.core.fleet.turns import starts
from enginewright.core.manifests import fleet_service, member
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Action, Apply, Plan
from enginewright.core.problems import Problem, summarise
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import Spec

# Watches tell of what members say; this is for what they might miss.
CHECK = 15.0


def decide_fleet(obj: ObjectView, observed: Observed, config: OperatorConfig) -> Plan:
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return _refuse(obj, observed, spec)
    ctx = PassContext.of(obj, observed, config, spec)
    members = members_of(obj.name, spec, observed.fleet, ctx.memory.classes)
    going, lacking = leaving(members, observed.fleet.members), missing(members, suspended=spec.suspend)
    handover = hand_over(ctx, members, going, held=bool(lacking))
    departure = depart(going, lacking or handover.why, observed.gateway.routed)
    routed = route(ctx, members, departure, agree(ctx, members))
    agreed = routed.agreed
    told = verdicts(ctx, members, agreed, departure)
    taken = [one.name for one in members if one.name in observed.fleet.taken]
    if taken:
        told = (bad(Condition.READY, Reason.NAME_TAKEN, _taken(taken)), *told[1:])
    old = obj.status.get("conditions")
    return Plan(
        serving=(*_service(ctx), *_objects(ctx, members, agreed, handover), *routed.actions, *departure.actions),
        events=transitions(old, told),
        status={
            "observedGeneration": obj.generation,
            "conditions": merge(old, told, obj.generation, ctx.now),
            **blocks(members, agreed, told[0], routed.weights, handover),
        },
        requeue_after=earliest(ROUTE_CHECK if routed.actions else None,
                               None if told[0].ok else CHECK, agreed.requeue, handover.requeue),
    )


def _service(ctx: PassContext) -> tuple[Action, ...]:
    manifest = fleet_service(ctx.owner)
    seen = ctx.observed.service
    applied = applied_as(ctx.observed, manifest) if seen else None
    return apply_if_changed(manifest, applied, "one Service for the replicas of all classes", force=seen is not None)


def _objects(
    ctx: PassContext, members: tuple[Member, ...], agreed: Agreement, handover: Handover
) -> tuple[Action, ...]:
    """Written anew where somebody has changed one: what a class asks for is the fleet's to say."""
    actions: tuple[Action, ...] = ()
    turns = starts(ctx, members, agreed.wishes)
    for one in members:
        if one.name in ctx.observed.fleet.taken or (one.view and one.view.deleting):
            continue
        name = one.entry.name
        wishes = {**agreed.wishes.get(name, {}), **handover.wishes(name), **turns.get(name, {})}
        manifest = member(ctx.owner, one.entry.name, one.wanted, wishes)
        why = f"it serves class {one.entry.name}"
        # A wish that somebody took away shows in no hash.
        if not one.applied or not contains(one.view.annotations if one.view else {}, wishes):
            actions += (Apply(manifest=manifest, why=why, force=one.view is not None),)
        else:
            actions += apply_if_changed(manifest, one.view.hash if one.view else None, why)
    return actions


def _taken(names: list[str]) -> str:
    return (f"OptimisedModel {', '.join(names)} is there already and is no part of this fleet: delete it, or give the "
            f"class or the fleet another name.")


def _refuse(obj: ObjectView, observed: Observed, problems: tuple[Problem, ...]) -> Plan:
    """A spec that makes no sense changes nothing but what is said."""
    serving = [view.class_name for view in observed.fleet.members if says_available(view.status)]
    ready = bad(Condition.READY, Reason.INVALID_SPEC, f"{summarise(problems)}.")
    verdicts = ready, available_verdict(observed, serving)
    status = refused(obj.status, obj.status, verdicts, obj.generation, observed.now)
    return Plan(events=transitions(obj.status.get("conditions"), verdicts),
                status={**status, "observedGeneration": obj.generation})


__all__ = ["decide_fleet"]

"""Classes that the spec does not name any more: each goes when the others carry the load, never before.

What a class that leaves has carried is made up for first: the others get replicas enough. How much that is follows from
what one replica of each class was measured to do, and from who divides the requests. Through a Gateway a class gets as
much as its ready replicas can do. Behind a Service every replica gets the same, so that none can have carried more than
what the least capable one does. Where a class is not measured all replicas count alike. It is the most that the fleet
can have carried in time, not what arrives.

The others know by an annotation, which their scalers take for ``minReplicas``: it makes no new generation of their
objects, and ends as soon as they have watched the load that came to them for as long as they watch before they scale
down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import timedelta

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.conditions import parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.fleet.standing import Member, Standing, evenly, measured, ready_of
from enginewright.core.observed import MemberView
from enginewright.core.plan import Action, Delete
from enginewright.core.scaling.limits import DOWN_WINDOW
from enginewright.core.status import HandoverStatus


@dataclass(frozen=True, kw_only=True)
class Departure:
    """``staying`` are objects that are not asked for and serve all the same, ``why`` says what they wait for."""

    actions: tuple[Action, ...] = ()
    staying: tuple[MemberView, ...] = ()
    why: str = ""


def depart(going: tuple[MemberView, ...], why: str, routed: Set[str] = frozenset()) -> Departure:
    """``going`` stay while there is a reason ``why``, and those that are ``routed`` until they are not."""
    if not going:
        return Departure()
    if why:
        return Departure(staying=going, why=why)
    return Departure(
        staying=going,
        actions=tuple(
            Delete(api_version=labels.API_VERSION, kind=labels.KIND, name=view.name, uid=view.uid,
                   why=f"class {view.class_name} is not in the spec any more, and the others serve")
            for view in going if not (view.deleting or view.class_name in routed)),
    )


def missing(members: Iterable[Member], *, suspended: bool = False) -> str:
    """What the classes that stay lack: every one that can serve is to do so, with all the replicas that it wants by the
    load that it has. While the fleet is ``suspended`` what serves goes on. Empty when they lack nothing."""
    if suspended:
        return "while spec.suspend is true"
    coming = [member.entry.name for member in members
              if not member.available and member.standing is not Standing.REFUSED]
    if coming:
        return f"until replicas of {', '.join(coming)} serve"
    serving = [member for member in members if member.available]
    if not serving:
        return "because no other class serves"
    short = [member.entry.name for member in serving if member.ready_replicas < member.wanted_replicas]
    return f"until {', '.join(short)} has all its replicas" if short else ""


# What sums of measured figures may be off by in their last digits.
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Handover:
    """``least`` is by class: replicas that it is to have. ``why`` says what a class that leaves waits for."""

    memory: HandoverStatus | None = None
    least: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    requeue: float | None = None

    def wishes(self, name: str) -> Mapping[str, str]:
        """Annotations that the object of class ``name`` is to have."""
        return {labels.LEAST_REPLICAS: str(self.least[name])} if name in self.least else {}


@dataclass
class _Remaining:
    """A class that stays. ``each`` is what one replica takes over; ``replicas`` may grow up to ``most``."""

    name: str
    before: int
    replicas: int
    most: int
    each: float


def leaving(members: Iterable[Member], views: Iterable[MemberView]) -> tuple[MemberView, ...]:
    """Objects of classes that the spec does not name any more."""
    names = {member.name for member in members}
    return tuple(view for view in views if view.name not in names)


def hand_over(ctx: PassContext, members: tuple[Member, ...], going: tuple[MemberView, ...], *, held: bool) -> Handover:
    """``held`` says that no class may go yet: what was begun stands, nothing is begun."""
    memory, least = ctx.memory.handover, _remembered(ctx, members)
    # There is nothing to start replicas on before others have gone, or no scaler may change their number.
    if ctx.spec.autoscaling is None or ctx.spec.rollout.max_surge == 0:
        return Handover()
    if not going:
        return _hold(ctx, memory, least) if memory else Handover()
    if held:
        return Handover(memory=memory, least=least)
    if memory is None and not any(ready_of(view.status) for view in going):
        return Handover()
    return _plan(ctx, members, going, memory, least)


def _hold(ctx: PassContext, memory: HandoverStatus, least: Mapping[str, int]) -> Handover:
    """They are gone, and the load has come to the others, who must have seen it before they may scale down."""
    until = parse_timestamp(memory.until) or ctx.now + timedelta(seconds=_window(ctx))
    left = (until - ctx.now).total_seconds()
    if left <= 0:
        return Handover()
    return Handover(memory=memory.model_copy(update={"until": timestamp(until)}), least=least, requeue=max(1.0, left))


def _window(ctx: PassContext) -> float:
    scaling = ctx.spec.autoscaling
    return max(DOWN_WINDOW, (scaling.behavior.scale_down.stabilization_window_seconds or 0) if scaling else 0)


def _plan(ctx: PassContext, members: tuple[Member, ...], going: tuple[MemberView, ...], memory: HandoverStatus | None,
          least: Mapping[str, int]) -> Handover:
    staying = [member for member in members if member.available]
    ready = {**{member.name: member.ready_replicas for member in staying},
             **{view.name: ready_of(view.status) for view in going}}
    found = measured({**{member.name: member.status for member in staying},
                      **{view.name: view.status for view in going if ready[view.name]}})
    each = dict.fromkeys(ready, 1.0) if found is None else found
    gateway = ctx.spec.rollout.gateway is not None
    known = memory if memory and (memory.inferences_per_second is None) == (found is None) else None
    load = _load(known) or _carried(ready, each, gateway=gateway)
    slowest = min((each[member.name] for member in staying), default=1.0)
    remaining = [_remaining(member, least, each[member.name] if gateway else slowest) for member in staying]
    lack = _grow(remaining, load)
    names = tuple(sorted(view.class_name for view in going))
    return Handover(
        memory=HandoverStatus(classes=names, inferences_per_second=None if found is None else load,
                              replicas=round(load) if found is None else None),
        least={**least, **{one.name: one.replicas for one in remaining}},
        why=_why(ctx, staying, remaining, going, lack, load, unit="replicas" if found is None else "inferences/s"),
    )


def _carried(ready: Mapping[str, int], each: Mapping[str, float], *, gateway: bool) -> float:
    """The most that all ready replicas together did in time."""
    return sum(count * each[name] for name, count in ready.items() if count) if gateway else evenly(ready, each)


def _load(memory: HandoverStatus | None) -> float | None:
    """As it was when the first of them was to leave: replicas that were added since carry no more."""
    if memory is None:
        return None
    return memory.inferences_per_second if memory.replicas is None else float(memory.replicas)


def _remaining(member: Member, least: Mapping[str, int], each: float) -> _Remaining:
    name, wanted, most = member.entry.name, member.wanted_replicas, member.max_replicas
    # What a peak adds meanwhile is no part of it: it would stay when the peak is over.
    return _Remaining(name=name, before=wanted, replicas=min(least.get(name, wanted), most), most=most, each=each)


def _grow(remaining: list[_Remaining], load: float) -> float:
    """Each by its size, one replica at a time, until they carry ``load``. Returns what they lack when all have as many
    as they may."""
    lack = load - sum(one.replicas * one.each for one in remaining)
    while lack > ROUNDING * load:
        free = [one for one in remaining if one.replicas < one.most]
        if not free:
            return lack
        chosen = min(free, key=_growth)
        chosen.replicas += 1
        lack -= chosen.each
    return 0.0


def _growth(one: _Remaining) -> float:
    return (one.replicas + 1) / max(1, one.before)


def _why(ctx: PassContext, staying: list[Member], remaining: list[_Remaining], going: tuple[MemberView, ...],
         lack: float, load: float, *, unit: str) -> str:
    if lack:
        limits = ", ".join(f"{one.name} {one.most}" for one in remaining)
        without = kubectl(f"delete om {' '.join(view.name for view in going)}", ctx.obj.namespace)
        held = any(member.max_replicas != member.spec_max_replicas for member in staying)
        others = ", autoscaling.schedules or costCeilingPerHour, whichever limits them," if held else ","
        unpriced = ", ".join(member.entry.name for member in staying if member.unpriced)
        price = f"Add the price of {unpriced} to config.prices.perHour, raise" if unpriced else "Raise"
        return (f"because the others cannot make up for it: with their maxReplicas ({limits}) they carry "
                f"{load - lack:.0f} of the {load:.0f} {unit} that all carry together. {price} maxReplicas{others} "
                f"or {without} to do without")
    wanted = {one.name: one.replicas for one in remaining}
    short = [f"{member.entry.name} has {member.ready_replicas} of {wanted[member.entry.name]}" for member in staying
             if member.ready_replicas < wanted[member.entry.name]]
    return f"until the others have replicas enough to carry its load: {', '.join(short)}" if short else ""


def _remembered(ctx: PassContext, members: Iterable[Member]) -> Mapping[str, int]:
    known = {row.name: row.least_replicas for row in ctx.memory.classes if row.least_replicas}
    return {member.entry.name: known[member.entry.name] for member in members if member.entry.name in known}

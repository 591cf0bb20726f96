"""Where a class cannot start its candidate beside what serves, classes take turns: all of them at once would leave
none that answers.

Without a replica to spare (``maxSurge`` 0) a class of one replica answers no request while its candidate starts. A
class with a proven candidate answers with that, and the next one starts. With strategy Recreate a class stops
altogether; the next one follows when it serves with all its replicas, and none stops before every class has an engine
to start. The way back is gone in turn as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from enginewright.core import labels
from enginewright.core.conditions import find, parse_timestamp
from enginewright.core.context import PassContext
from enginewright.core.fleet.standing import Member, Standing
from enginewright.core.reasons import Condition

# For pulling images and waiting for nodes.
SLACK = timedelta(minutes=30)
Wishes = Mapping[str, Mapping[str, str]]


def recreates(ctx: PassContext) -> bool:
    return ctx.spec.rollout.strategy == "Recreate"


def in_turns(ctx: PassContext) -> bool:
    return recreates(ctx) or ctx.spec.rollout.max_surge == 0


def starts(ctx: PassContext, members: tuple[Member, ...], wishes: Wishes) -> Wishes:
    """Annotations of the classes that are to wait with their candidates. ``wishes`` are what the fleet asks for: a
    class on its way back is not held up here.

    One that serves what is asked for waits as well, for the word of the fleet: it may come to another candidate by
    itself, as after an upgrade of the operator.
    """
    if not in_turns(ctx):
        return {}
    free = [member for member in members if labels.ROLLBACK_TO not in wishes.get(member.entry.name, {})]
    first = _first(ctx, members, free)
    return {member.entry.name: {labels.AFTER: first.name if first and _unsettled(member) else ctx.obj.name}
            for member in free if member is not first and member.available}


def _first(ctx: PassContext, members: tuple[Member, ...], free: list[Member]) -> Member | None:
    """Whose turn it is. A class that does not answer has nothing to lose, and the others wait for it; one that does
    needs another that answers meanwhile."""
    open_ones = [member for member in free if _unsettled(member) and (
        recreates(ctx) or member.standing is Standing.PENDING)]
    if not open_ones:
        return None
    first = min(open_ones, key=lambda member: (member.available, not _runs(member)))
    others = [member for member in members if member is not first]
    if not first.available:
        return first
    if recreates(ctx) and not all(_has_engine(member) for member in others if _unsettled(member)):
        return None
    return first if any(member.available for member in others) else None


def _unsettled(member: Member) -> bool:
    return member.standing in (Standing.PENDING, Standing.PROVEN, Standing.PROMOTING)


def _has_engine(member: Member) -> bool:
    return member.verdict(Condition.ENGINE_BUILT).ok


def ways_back(ctx: PassContext, members: tuple[Member, ...], wishes: Wishes) -> Wishes:
    """Those of ``wishes`` to go back that are due: of classes that are back or have nothing running that would stop,
    and of one more when every other one answers. One that has not answered for long, and is asked already, may never
    be back: others go as long as another class answers."""
    if not in_turns(ctx):
        return wishes
    moving = [member for member in members if member.entry.name in wishes and _runs(member) and not _is_back(member)]
    settled = [member for member in members if member not in moving or _asked(member)]
    lost = [member for member in settled if _lost(ctx, member)]
    left = sorted((member for member in moving if member not in lost),
                  key=lambda member: (not _asked(member), member.available))
    due = left[:1]
    if due and not _asked(due[0]) and due[0].available:
        answer = all(member.available for member in settled if member not in lost)
        if not answer or (lost and not any(member.available for member in members if member is not due[0])):
            due = []
    late = {member.entry.name for member in left if member not in due}
    return {name: wish for name, wish in wishes.items() if name not in late}


def _runs(member: Member) -> bool:
    """Whether it serves, or starts, something else than what it served when all classes served together."""
    now = member.rollout
    return (now.stable is not None and now.stable != member.base) or now.candidate not in (None, member.base)


def _asked(member: Member) -> bool:
    """Whether it is asked to go back, or stay."""
    return bool(member.base) and member.view is not None and (
        member.view.annotations.get(labels.ROLLBACK_TO) == member.base)


def _lost(ctx: PassContext, member: Member) -> bool:
    since = parse_timestamp(find(member.status.get("conditions"), Condition.AVAILABLE).get("lastTransitionTime"))
    return not member.available and since is not None and ctx.now - since >= SLACK


def _is_back(member: Member) -> bool:
    now = member.rollout
    return _asked(member) and now.stable == member.base and now.candidate in (None, member.base) and member.available

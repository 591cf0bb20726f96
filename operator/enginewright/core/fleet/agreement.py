"""One revision spans all classes of a fleet: candidates wait for each other, and are promoted together or not at all.

No member promotes by itself. The fleet's wish stands in an annotation of each member, as a user's would: to promote
its candidate when every class has a proven one, or to stay at (or go back to) the revision that all classes served
last when one refuses or keeps the others waiting for too long. It is worked out again in every pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.comparison import MOST_PATIENCE
from enginewright.core.conditions import Finding, no, parse_timestamp, timestamp, yes
from enginewright.core.context import PassContext
from enginewright.core.fleet.standing import Member, Standing, summary
from enginewright.core.fleet.turns import SLACK, in_turns, recreates, ways_back
from enginewright.core.manifests.common import short_hash
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec.fleet import classes_of
from enginewright.core.status import RolledBackStatus, RolloutStatus
from enginewright.core.step import Step
from enginewright.core.way_back import LIVE

AGREED = (Standing.PROVEN, Standing.PROMOTING, Standing.DONE)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """``wishes`` maps a class to the annotations that its object is to have."""

    finding: Finding
    memory: RolloutStatus
    wishes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    requeue: float | None = None


def fleet_revision(members: Iterable[Member]) -> str:
    """8 hex digits over all of the classes' specs that decides what is served."""
    served = {member.entry.name: _served(member.wanted) for member in members}
    return short_hash(served, 8)


def _served(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key not in LIVE}


def agree(ctx: PassContext, members: tuple[Member, ...]) -> Agreement:
    agreed = _agree(ctx, members)
    agreed = replace(agreed, memory=ctx.with_retry(agreed.memory))
    wish = ctx.wishes.back
    if not wish:
        return agreed
    remove = kubectl(f"annotate om {ctx.obj.name} {labels.ROLLBACK_TO}-", ctx.obj.namespace)
    message = (f"Annotation {labels.ROLLBACK_TO}={wish} has no effect on a fleet: set it on the object of a class "
            f"({', '.join(member.name for member in members)}), or apply the earlier spec, and remove it with "
            f"{remove}.")
    return replace(agreed, finding=no(Reason.ROLLBACK_TARGET_UNKNOWN,
                                       f"{message} {agreed.finding.message}"))


def _agree(ctx: PassContext, members: tuple[Member, ...]) -> Agreement:
    memory = ctx.memory.rollout or RolloutStatus()
    revision = fleet_revision(members)
    if given_up := _given_up(ctx, members, memory, revision):
        return _hold_back(ctx, members, memory, given_up)
    standings = {member.standing for member in members}
    if standings == {Standing.DONE}:
        message = f"All classes ({_names(members)}) serve revision {revision}; no other runs."
        return Agreement(memory=RolloutStatus(stable=revision, step=Step.COMPLETE), wishes=_wishes(ctx, members),
                         finding=yes(Reason.COMPLETE, message))
    if standings <= set(AGREED) and not recreates(ctx):
        return _promote(ctx, members, memory, _named(members, memory, revision))
    return _wait(ctx, members, memory, revision)


def _named(members: Iterable[Member], memory: RolloutStatus, revision: str) -> str:
    """What candidates are promoted by. Another release of the operator, or of the source, makes new ones of the same
    specs: a promotion that was asked for before is not meant for these."""
    if revision != memory.stable:
        return revision
    targets = {member.entry.name: member.rollout.candidate or member.rollout.stable for member in members}
    return short_hash({"specs": revision, "targets": targets}, 8)


def _promote(ctx: PassContext, members: tuple[Member, ...], memory: RolloutStatus, revision: str) -> Agreement:
    # By the fleet's own memory: that a class which was added takes over without anybody's word is no reason to promote
    # the others.
    begun = (memory.candidate, memory.step) == (revision, Step.EXPANDING)
    wished = ctx.wishes.promote == revision
    proven = any(member.standing is Standing.PROVEN for member in members)
    if proven and not (ctx.spec.rollout.auto_promote or wished or begun):
        message = (f"Every class has a proven candidate of revision {revision}; promote them with "
                f"{ctx.promote_with(revision)}.")
        return Agreement(memory=_step(ctx, memory, revision, Step.WAITING), wishes=_wishes(ctx, members),
                         finding=no(Reason.WAITING_FOR_PROMOTION, message))
    left = [member for member in members if member.standing is not Standing.DONE]
    if ctx.suspended:
        return Agreement(memory=_step(ctx, memory, revision, Step.EXPANDING if begun else Step.WAITING),
                         wishes=_wishes(ctx, members),
                         finding=no(Reason.SUSPENDED, _summary(left)))
    wishes = {
        member.entry.name: {labels.PROMOTE: member.rollout.candidate}
        for member in left
        if member.rollout.candidate
    }
    message = f"Every class has a proven candidate of revision {revision}; {_summary(left)}"
    return Agreement(memory=_step(ctx, memory, revision, Step.EXPANDING), wishes=_wishes(ctx, members, wishes),
                     finding=no(Reason.PROGRESSING, message))


def _wait(ctx: PassContext, members: tuple[Member, ...], memory: RolloutStatus, revision: str) -> Agreement:
    """No class is promoted yet, or one class after the other. The clock runs from the first candidate that is
    proven, or waits for its turn to be."""
    through = (Standing.PROMOTING, Standing.DONE) if recreates(ctx) else (Standing.PROVEN, Standing.PROMOTING)
    begun = [member for member in members if member.standing in through]
    queued = [member for member in members if _queued(member)]
    left = [member for member in members if member.standing not in (*through, Standing.DONE)] or begun
    reason = left[0].verdict(Condition.ROLLOUT_COMPLETE).reason
    if not (begun or queued) or ctx.suspended:
        return Agreement(memory=_step(ctx, memory, revision, Step.STARTING), wishes=_wishes(ctx, members),
                         finding=no(reason, _summary(left)))
    step = _step(ctx, memory, revision, Step.AWAITING)
    until = (parse_timestamp(step.step_start_time) or ctx.now) + patience(ctx)
    message = (f"{_so_far(ctx, begun, queued)}: until {timestamp(until)} for {_names(left)}, else all go back. "
            f"{_summary(left)}")
    return Agreement(memory=step, wishes=_wishes(ctx, members),
                     requeue=max(1.0, (until - ctx.now).total_seconds()),
                     finding=no(Reason.WAITING_FOR_CLASSES, message))


def _so_far(ctx: PassContext, begun: list[Member], queued: list[Member]) -> str:
    if recreates(ctx):
        who = f"{_names(begun)} first" if begun else f"{_names(queued)} can stop and start again"
        return f"Strategy Recreate, one class after the other, {who}"
    who = f"Proven in {_names(begun)}" if begun else f"{_names(queued)} can start"
    return f"{who}, and promoted in all classes together"


def _queued(member: Member) -> bool:
    """Whether it has an engine to start, and it is not its turn."""
    return (member.standing is Standing.PENDING
            and member.verdict(Condition.ROLLOUT_COMPLETE).reason == Reason.WAITING_FOR_CLASSES)


def patience(ctx: PassContext) -> timedelta:
    """How long the first candidate that waits does so for those of other classes: as long as a build, its margin and an
    analysis that is unclear to its end may take, and some slack."""
    rollout = ctx.spec.rollout
    steps = [rollout.analysis.seconds if step.analysis_seconds is None else step.analysis_seconds
             for step in rollout.steps] or [rollout.analysis.seconds]
    # Without a replica to spare one class is analysed after the other.
    turns = len(classes_of(ctx.spec)) if in_turns(ctx) else 1
    analysed = 5 * sum(steps) + (MOST_PATIENCE if rollout.require_objective else 0)
    seconds = ctx.spec.budget_seconds + ctx.config.build_deadline_margin + analysed * turns
    return SLACK + timedelta(seconds=seconds)


def _given_up(
    ctx: PassContext, members: tuple[Member, ...], memory: RolloutStatus, revision: str
) -> RolledBackStatus | None:
    """Why no class is promoted: a class refuses, or the others waited in vain. The latter holds until the spec or the
    retry annotation changes, the former as long as the class does."""
    before = memory.rolled_back
    same = before is not None and before.revision == revision and not ctx.retried(before.retry)
    for member in members:
        if member.refusal:
            message = f"Class {member.entry.name}: {member.refusal.message.replace(f' {ctx.retry_hint}', '')}"
            known = before if same and before and before.reason == member.refusal.reason else None
            return RolledBackStatus(revision=revision, reason=member.refusal.reason, message=message,
                                    retry=ctx.began_under(revision), time=known.time if known else timestamp(ctx.now))
    if same and before and before.reason == Reason.WAITING_FOR_CLASSES:
        return before
    since = parse_timestamp(memory.step_start_time)
    if ctx.suspended or memory.step != Step.AWAITING or memory.candidate != revision or since is None:
        return None
    left = [member for member in members if member.standing is Standing.PENDING]
    if not left or ctx.now - since < patience(ctx):
        return None
    late = f"{patience(ctx).total_seconds():.0f} s after the first class began to wait"
    message = f"No proven candidate of {_names(left)} {late}. {_summary(left)}"
    return RolledBackStatus(revision=revision, reason=Reason.WAITING_FOR_CLASSES, message=message,
                            time=timestamp(ctx.now), retry=ctx.began_under(revision))


def _hold_back(
    ctx: PassContext, members: tuple[Member, ...], memory: RolloutStatus, given_up: RolledBackStatus
) -> Agreement:
    """Classes with something to go back to stay there, or go back; the one that refuses has done so by itself."""
    asked = {
        member.entry.name: {labels.ROLLBACK_TO: member.base, labels.HELD_BACK: member.base}
        for member in members
        if member.base and _out_of_step(member)
    }
    wishes = ways_back(ctx, members, asked)
    late = [name for name in asked if name not in wishes]
    message = f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message}"
    # One that was made again since, or keeps no history, has nothing to go back to.
    lost = [member for member in members if member.entry.name in wishes
            and member.verdict(Condition.ROLLOUT_COMPLETE).reason == Reason.ROLLBACK_TARGET_UNKNOWN]
    if kept := [name for name in wishes if name not in [member.entry.name for member in lost]]:
        message = f"{message} No class is promoted: what served before goes on serving in {', '.join(kept)}."
    if late:
        message = f"{message} Without a replica to spare {', '.join(late)} goes back when the others are."
    if lost:
        message = f"{message} {_summary(lost)}"
    return Agreement(
        memory=RolloutStatus(stable=memory.stable, step=Step.ROLLED_BACK, rolled_back=given_up),
        wishes=_wishes(ctx, members, wishes),
        finding=no(Reason.ROLLED_BACK, f"{message} {ctx.retry_hint}"),
    )


def _out_of_step(member: Member) -> bool:
    """Whether it serves, or is about to, what the others do not."""
    settled = member.standing is Standing.DONE and member.rollout.stable == member.base
    return not settled and member.standing is not Standing.REFUSED


def _step(ctx: PassContext, memory: RolloutStatus, revision: str, step: Step) -> RolloutStatus:
    """The clock of a step starts when the step does."""
    same = (memory.candidate, memory.step) == (revision, step)
    return RolloutStatus(stable=memory.stable, candidate=revision, step=step,
                         step_start_time=memory.step_start_time if same else timestamp(ctx.now))


def _wishes(
    ctx: PassContext, members: Iterable[Member], wishes: Mapping[str, Mapping[str, str]] | None = None
) -> Mapping[str, Mapping[str, str]]:
    """For every class; a wish to try again or to build again is every class's."""
    common = {name: wish for name, wish in ((labels.RETRY, ctx.retry), (labels.REBUILD, ctx.rebuild)) if wish}
    return {member.entry.name: {**common, **(wishes or {}).get(member.entry.name, {})} for member in members}


def _summary(members: Iterable[Member]) -> str:
    return summary((member.entry.name, member.verdict(Condition.ROLLOUT_COMPLETE)) for member in members)


def _names(members: Iterable[Member]) -> str:
    return ", ".join(member.entry.name for member in members)

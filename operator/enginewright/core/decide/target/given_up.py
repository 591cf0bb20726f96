"""A revision is given up, and the last good one is made again from what was kept of it.

Recreate stops the old replicas first, so that nothing is left running to roll back to: that happens when the new
revision does not start, or the spec changes before it has and the next engine is still to be built. What was given up
is not tried again before the spec or the retry annotation changes; the last good one is never given up for another.

Live answers that have drifted bring it back where ``spec.quality.rollback`` asks for it. Without an analysis: beside
the revision that is left, which is wrong and may be faster, the one that comes back could only lose. It has to start,
load and pass its smoke test as ever. If that fails, the revision that has drifted goes on serving, or serves again
where its replicas had to go first: some answer beats none. Only to another engine, and to one whose live answers are
measured as well: the same one would answer alike, and behind one without measurements the alarm would fall silent, not
the trouble. A class of a fleet never goes back by itself: classes are promoted together.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.quality import QualityResult
from enginewright.core.decide.target.base import Target, Why
from enginewright.core.decide.trouble import starting_trouble
from enginewright.core.reasons import Reason
from enginewright.core.status import RevisionStatus, RolledBackStatus
from enginewright.core.way_back import good_ones, served


def rejected(target: Target, _: QualityResult) -> Target | None:
    given_up = _given_up(target) if target.ctx.recreates else None
    made = _last_good(target, given_up.revision) if given_up else None
    return target.back_to(made, given_up) if made and given_up else None


def in_the_gap(target: Target, _: QualityResult) -> Target | None:
    """The replicas that served have been stopped for a revision that the spec no longer asks for, and the one that it
    asks for now has no engine yet."""
    ctx = target.ctx
    gap = target.engine.record is None and ctx.serving.stable is None
    if not (ctx.recreates and gap) or _given_up(target):
        return None
    made = _last_good(target, target.revision)
    return target.until(made.ctx, made.engine) if made else None


def _last_good(target: Target, left: str) -> Target | None:
    for entry in good_ones(target.ctx.memory.revisions, left):
        kept = target.ctx.observed.kept.get(entry.revision)
        if kept and (made := target.made_again(kept)):
            return made
    return None


def _given_up(target: Target) -> RolledBackStatus | None:
    ctx, revision, memory = target.ctx, target.revision, target.ctx.rollout
    if before := target.rejection(revision):
        # One that has drifted is better than nothing: that is another policy.
        return before if before.reason != Reason.QUALITY_DRIFTED else None
    if target.engine.record is None:
        # The next engine is built: on the way back from an earlier one no model need wait for it.
        return memory.rolled_back if ctx.serving.stable is None else None
    deployed = ctx.serving.deployment(revision)
    stable = memory.stable if memory.step == "Complete" else ""
    if deployed is None or revision in (served(ctx.memory.revisions), stable):
        return None
    trouble = starting_trouble(ctx, deployed, revision)
    if trouble is None or ctx.serving.answers(deployed):
        # Some of its replicas serve, and nothing else does: the others may want for room, which the way back has not.
        return None
    return RolledBackStatus(revision=revision, reason=trouble.reason, message=trouble.message,
                            time=timestamp(ctx.now), retry=ctx.began_under(revision))


def drifted(target: Target, quality: QualityResult) -> Target | None:
    ctx = target.ctx
    asked = ctx.spec.quality is not None and ctx.spec.quality.rollback
    given_up = _drifted(target, quality) if asked and not (ctx.obj.fleet or target.pin.followed) else None
    if given_up is None:
        return None
    for entry in good_ones(ctx.memory.revisions, given_up.revision, _tried_again(ctx)):
        made = _made_again(target, entry)
        if made is None:
            continue
        if failed := _does_not_start(made, entry, given_up):
            return replace(target, reason=Why.SERVES_ON, given_up=failed, message=failed.message)
        return target.back_to(replace(made, ctx=_without_analysis(made.ctx)), given_up)
    return replace(target, given_up=_failed_way_back(ctx))


def _tried_again(ctx: PassContext) -> tuple[str, ...]:
    """What was given up and a user asks for another try of, and what is being rolled out: its try may be another."""
    failed = ctx.rollout.rolled_back
    asked = failed.revision if failed and ctx.retried(failed.retry) else None
    return tuple(filter(None, (asked, ctx.rollout.candidate)))


def _failed_way_back(ctx: PassContext) -> RolledBackStatus | None:
    """It stays remembered as long as the revision that is left has drifted, so that a user can ask for another try."""
    failed = ctx.rollout.rolled_back
    had_served = failed and any(entry.promotion_time for entry in ctx.memory.revisions
                                if entry.revision == failed.revision)
    return failed if had_served else None


def _made_again(target: Target, entry: RevisionStatus) -> Target | None:
    """None unless it is another engine, and one with a monitor."""
    kept = target.ctx.observed.kept.get(entry.revision)
    if kept is None or kept.outcome.fingerprint == target.engine.fingerprint:
        return None
    made = target.made_again(kept)
    return made if made and made.ctx.spec.quality is not None else None


def _does_not_start(made: Target, entry: RevisionStatus, given_up: RolledBackStatus) -> RolledBackStatus | None:
    """Where strategy Recreate stopped what was given up before this one came, nothing is left that a rollout could go
    back to. One that has served since was the way back, and stays."""
    ctx, serving = made.ctx, made.ctx.serving
    deployed = serving.deployment(entry.revision)
    if deployed is None or serving.answers(deployed) or serving.deployment(given_up.revision):
        return None
    trouble = starting_trouble(ctx, deployed, entry.revision)
    if trouble is None or entry.outcome == "Serving":
        return None
    return RolledBackStatus(revision=entry.revision, reason=trouble.reason, time=timestamp(ctx.now),
                            retry=ctx.began_under(entry.revision),
                            message=f"{given_up.message} The way back failed: {trouble.message}")


def _drifted(target: Target, quality: QualityResult) -> RolledBackStatus | None:
    """What is not to serve: since an earlier pass, or from now on."""
    ctx, revision = target.ctx, target.revision
    before = ctx.rollout.rolled_back
    if before is not None and before.revision == revision and before.reason == Reason.QUALITY_DRIFTED:
        if not ctx.retried(before.retry):
            return before
        if ctx.rollout.candidate not in (None, revision):
            # What a user asks for another try of is what is being tried: the way back. It ends what has drifted, which
            # with Recreate does not run any more, and must not come back for the same wish once it has served.
            return before.model_copy(update={"retry": ctx.retry})
    if target.engine.record is None or quality.drifted != revision or quality.verdict is None:
        return None
    return RolledBackStatus(revision=revision, reason=Reason.QUALITY_DRIFTED, message=quality.verdict.message,
                            time=timestamp(ctx.now), retry=ctx.retry)


def _without_analysis(ctx: PassContext) -> PassContext:
    analysis = ctx.spec.rollout.analysis.model_copy(update={"seconds": 0})
    rollout = ctx.spec.rollout.model_copy(update={"analysis": analysis, "steps": (), "auto_promote": True})
    return replace(ctx, spec=ctx.spec.model_copy(update={"rollout": rollout}))

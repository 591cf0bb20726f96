"""Where ``spec.quality.rollback`` asks for it: live answers that have drifted bring the last good revision back.

As the annotation of :mod:`~enginewright.core.decide.pin` does, but by itself, and without an analysis: beside the
revision that is left, which is wrong and may be faster, the one that comes back could only lose. It has to start, load
and pass its smoke test as ever. If that fails, the revision that has drifted goes on serving, or serves again where its
replicas had to go first: some answer beats none.

Only to another engine, and to one whose live answers are measured as well: the same one would answer alike, and behind
one that nobody measures the alarm would fall silent, not the trouble.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.pin import Goal, made_again
from enginewright.core.decide.quality_step import QualityResult
from enginewright.core.decide.rollout import put_aside
from enginewright.core.decide.serving import Serving
from enginewright.core.reasons import Reason
from enginewright.core.status import RevisionStatus, RolledBackStatus, RolloutStatus
from enginewright.core.way_back import good_ones


def drift_back(goal: Goal, serving: Serving, quality: QualityResult) -> Goal:
    """``goal``, or the last good revision in its place, with what was ``given_up``. A class of a fleet never goes back
    by itself: classes are promoted together."""
    ctx = goal.ctx
    asked = ctx.spec.quality is not None and ctx.spec.quality.rollback
    if not asked or ctx.spec.suspend or ctx.obj.fleet or goal.pinned or goal.given_up:
        return goal
    given_up = _given_up(goal, quality)
    if given_up is None:
        return goal
    for entry in good_ones(ctx.memory.revisions, given_up.revision):
        made = _made_again(goal, entry)
        if made is None:
            continue
        if failed := _does_not_start(made, entry, serving, given_up):
            return replace(goal, way_back_failed=failed)
        return replace(goal, ctx=_without_analysis(made.ctx), engine=made.engine, given_up=given_up)
    return goal


def _made_again(goal: Goal, entry: RevisionStatus) -> Goal | None:
    """None unless it is another engine, and one with a monitor."""
    kept = goal.ctx.observed.kept.get(entry.revision)
    if kept is None or kept.outcome.fingerprint == goal.engine.fingerprint:
        return None
    made = made_again(goal.ctx, goal.engine, kept)
    return made if made and made.ctx.spec.quality is not None else None


def _does_not_start(
    made: Goal, entry: RevisionStatus, serving: Serving, given_up: RolledBackStatus
) -> RolledBackStatus | None:
    """Where strategy Recreate stopped what was given up before this one came, nothing is left that a rollout could go
    back to. One that has served since was the way back, and stays."""
    deployed = serving.deployment(entry.revision)
    if deployed is None or serving.answers(deployed) or serving.deployment(given_up.revision):
        return None
    trouble = starting_trouble(made.ctx, deployed, entry.revision)
    if trouble is None or entry.outcome == "Serving":
        return None
    return RolledBackStatus(revision=entry.revision, reason=trouble.reason, time=timestamp(made.ctx.now),
                            retry=made.ctx.retry,
                            message=f"{given_up.message} The way back failed: {trouble.message}")


def _given_up(goal: Goal, quality: QualityResult) -> RolledBackStatus | None:
    """What is not to serve: since an earlier pass, or from now on."""
    ctx, revision = goal.ctx, goal.engine.revision
    before = put_aside(ctx, ctx.memory.rollout or RolloutStatus(), revision)
    if before is not None and before.reason == Reason.QUALITY_DRIFTED:
        return before
    if goal.engine.record is None or quality.drifted != revision or quality.verdict is None:
        return None
    return RolledBackStatus(revision=revision, reason=Reason.QUALITY_DRIFTED, message=quality.verdict.message,
                            time=timestamp(ctx.now), retry=ctx.retry)


def _without_analysis(ctx: PassContext) -> PassContext:
    rollout = ctx.spec.rollout.model_copy(update={"analysis_seconds": 0, "steps": (), "auto_promote": True})
    return replace(ctx, spec=ctx.spec.model_copy(update={"rollout": rollout}))

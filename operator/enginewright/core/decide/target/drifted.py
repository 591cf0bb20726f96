"""Where ``spec.quality.rollback`` asks for it: live answers that have drifted bring the last good revision back.

Without an analysis: beside the revision that is left, which is wrong and may be faster, the one that comes back could
only lose. It has to start, load and pass its smoke test as ever. If that fails, the revision that has drifted goes on
serving, or serves again where its replicas had to go first: some answer beats none.

Only to another engine, and to one whose live answers are measured as well: the same one would answer alike, and behind
one that nobody measures the alarm would fall silent, not the trouble. A class of a fleet never goes back by itself:
classes are promoted together.
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
from enginewright.core.way_back import good_ones


def drifted(target: Target, quality: QualityResult) -> Target | None:
    ctx = target.ctx
    asked = ctx.spec.quality is not None and ctx.spec.quality.rollback
    given_up = _given_up(target, quality) if asked and not (ctx.obj.fleet or target.pin.followed) else None
    if given_up is None:
        return None
    for entry in good_ones(ctx.memory.revisions, given_up.revision):
        made = _made_again(target, entry)
        if made is None:
            continue
        if failed := _does_not_start(made, entry, given_up):
            return replace(target, reason=Why.SERVES_ON, given_up=failed, message=failed.message)
        return target.back_to(replace(made, ctx=_without_analysis(made.ctx)), given_up)
    return None


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
    return RolledBackStatus(revision=entry.revision, reason=trouble.reason, time=timestamp(ctx.now), retry=ctx.retry,
                            message=f"{given_up.message} The way back failed: {trouble.message}")


def _given_up(target: Target, quality: QualityResult) -> RolledBackStatus | None:
    """What is not to serve: since an earlier pass, or from now on."""
    ctx, revision = target.ctx, target.revision
    before = target.rejection(revision)
    if before is not None and before.reason == Reason.QUALITY_DRIFTED:
        return before
    if target.engine.record is None or quality.drifted != revision or quality.verdict is None:
        return None
    return RolledBackStatus(revision=revision, reason=Reason.QUALITY_DRIFTED, message=quality.verdict.message,
                            time=timestamp(ctx.now), retry=ctx.retry)


def _without_analysis(ctx: PassContext) -> PassContext:
    rollout = ctx.spec.rollout.model_copy(update={"analysis_seconds": 0, "steps": (), "auto_promote": True})
    return replace(ctx, spec=ctx.spec.model_copy(update={"rollout": rollout}))

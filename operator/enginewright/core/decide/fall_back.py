"""Recreate stops the old replicas first, so that nothing is left running to roll back to: when the new revision does
not start, or the spec changes before it has and the next engine is still to be built, the last good one is made again
from what was kept of it.

As the annotation of :mod:`~enginewright.core.decide.pin` does, but by itself. The revision that was given up is not
tried again before the spec or the retry annotation changes; the last good one is never given up for another.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core import labels
from enginewright.core.conditions import timestamp
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.pin import Goal, made_again
from enginewright.core.decide.rollout import put_aside
from enginewright.core.decide.serving import Serving
from enginewright.core.observed import ObjectView
from enginewright.core.reasons import Reason
from enginewright.core.status import RolledBackStatus, RolloutStatus
from enginewright.core.way_back import good_ones, served


def needs_kept(obj: ObjectView) -> bool:
    """Whether a pass may ask for what was kept of earlier revisions. The spec may be any rubbish."""
    rollout, quality = obj.spec.get("rollout"), obj.spec.get("quality")
    rollout = rollout if isinstance(rollout, dict) else {}
    recreate, asks = rollout.get("strategy") == "Recreate", rollout.get("autoPromote") is False
    drifting = isinstance(quality, dict) and quality.get("rollback") is True
    if labels.ROLLBACK_TO in obj.annotations or (recreate and asks):
        return True
    return (recreate or drifting) and bool(obj.status.get("revisions"))


def fall_back(goal: Goal, serving: Serving) -> Goal:
    """``goal``, or the last good revision in its place, with what was ``given_up`` or what it waits for."""
    ctx = goal.ctx
    if ctx.spec.rollout.strategy != "Recreate" or ctx.spec.suspend:
        return goal
    given_up = _given_up(goal, serving)
    if given_up is None and not _in_the_gap(goal, serving):
        return goal
    for entry in good_ones(ctx.memory.revisions, given_up.revision if given_up else goal.engine.revision):
        kept = ctx.observed.kept.get(entry.revision)
        if kept and (made := made_again(ctx, goal.engine, kept)):
            return replace(goal, ctx=made.ctx, engine=made.engine, given_up=given_up,
                           asked=None if given_up else goal.engine)
    return goal


def _in_the_gap(goal: Goal, serving: Serving) -> bool:
    """The replicas that served have been stopped for a revision that the spec no longer asks for, and the one that it
    asks for now has no engine yet."""
    return goal.engine.record is None and serving.stable is None


def _given_up(goal: Goal, serving: Serving) -> RolledBackStatus | None:
    ctx, revision = goal.ctx, goal.engine.revision
    memory = ctx.memory.rollout or RolloutStatus()
    if before := put_aside(ctx, memory, revision):
        # One that has drifted is better than nothing: see drift_back.
        return before if before.reason != Reason.QUALITY_DRIFTED else None
    if goal.engine.record is None:
        # The next engine is built: on the way back from an earlier one nobody need wait for it.
        return memory.rolled_back if serving.stable is None else None
    deployed = serving.deployment(revision)
    stable = memory.stable if memory.step == "Complete" else ""
    if deployed is None or revision in (served(ctx.memory.revisions), stable):
        return None
    trouble = starting_trouble(ctx, deployed, revision)
    if trouble is None or serving.answers(deployed):
        # Some of its replicas serve, and nothing else does: the others may want for room, which the way back has not.
        return None
    return RolledBackStatus(revision=revision, reason=trouble.reason, message=trouble.message,
                            time=timestamp(ctx.now), retry=ctx.retry)

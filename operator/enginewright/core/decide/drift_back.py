"""Where ``spec.quality.rollback`` asks for it: live answers that have drifted bring the last good revision back.

As the annotation of :mod:`~enginewright.core.decide.pin` does, but by itself, and without an analysis: beside the
revision that is left, which is wrong and may be faster, the one that comes back could only lose. It has to start, load
and pass its smoke test as ever. If that fails, the revision that has drifted goes on serving: some answer beats none.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import timestamp
from enginewright.core.decide.fall_back import good_ones
from enginewright.core.decide.pin import Goal, made_again
from enginewright.core.decide.quality_step import QualityResult
from enginewright.core.decide.rollout import put_aside
from enginewright.core.decide.world import World
from enginewright.core.reasons import Reason
from enginewright.core.status import RolledBackStatus, RolloutStatus


def drift_back(goal: Goal, quality: QualityResult) -> Goal:
    """``goal``, or the last good revision in its place, with what was ``given_up``. A class of a fleet never goes back
    by itself: classes are promoted together."""
    world = goal.world
    asked = world.spec.quality is not None and world.spec.quality.rollback
    if not asked or world.spec.suspend or world.obj.fleet or goal.pinned or goal.given_up:
        return goal
    given_up = _given_up(goal, quality)
    for entry in good_ones(world, given_up.revision) if given_up else ():
        kept = world.observed.kept.get(entry.revision)
        if kept and (made := made_again(world, goal.engine, kept)):
            return replace(goal, world=_without_analysis(made.world), engine=made.engine, given_up=given_up)
    return goal


def _given_up(goal: Goal, quality: QualityResult) -> RolledBackStatus | None:
    """What is not to serve: since an earlier pass, or from now on."""
    world, revision = goal.world, goal.engine.revision
    before = put_aside(world, world.memory.rollout or RolloutStatus(), revision)
    if before is not None and before.reason == Reason.QUALITY_DRIFTED:
        return before
    if goal.engine.record is None or quality.drifted != revision or quality.verdict is None:
        return None
    return RolledBackStatus(revision=revision, reason=Reason.QUALITY_DRIFTED, message=quality.verdict.message,
                            time=timestamp(world.now), retry=world.retry)


def _without_analysis(world: World) -> World:
    rollout = world.spec.rollout.model_copy(update={"analysis_seconds": 0, "steps": (), "auto_promote": True})
    return replace(world, spec=world.spec.model_copy(update={"rollout": rollout}))

"""Recreate stops the old replicas first, so that nothing is left running to roll back to: when the new revision does
not start, or the spec changes before it has and the next engine is still to be built, the last good one is made again
from what was kept of it.

The revision that was given up is not tried again before the spec or the retry annotation changes; the last good one is
never given up for another.
"""

from __future__ import annotations

from enginewright.core.conditions import timestamp
from enginewright.core.decide.quality import QualityResult
from enginewright.core.decide.target.base import Target
from enginewright.core.decide.trouble import starting_trouble
from enginewright.core.reasons import Reason
from enginewright.core.status import RolledBackStatus
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
        # The next engine is built: on the way back from an earlier one nobody need wait for it.
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
                            time=timestamp(ctx.now), retry=ctx.retry)

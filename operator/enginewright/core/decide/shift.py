"""From one revision to the next while both run: start, analyse, expand, switch, or roll back.

The position is kept in status (``rollout.step``) but every count is derived from the world, so that a lost status only
makes the analysis start again. A candidate is never shrunk on its way, and the stable revision gives up a replica only
for one of the candidate's that is available: together they never fall below what is wanted, nor, with Canary, rise
above it by more than ``maxSurge``.
"""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.conditions import Verdict, bad, parse_timestamp, timestamp
from enginewright.core.decide import children
from enginewright.core.decide.analysis import failed_inferences, restarted, restarts, starting_trouble
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.position import (
    ANALYSING,
    EXPANDING,
    STARTING,
    SWITCHING,
    WAITING,
    Shift,
    analysis_left,
    step_of,
)
from enginewright.core.decide.rollout import (
    PROGRESS_CHECK,
    RolloutResult,
    Target,
    back_to,
    remove_others,
    route_safely,
    starting,
)
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.source_step import RETRY_HINT
from enginewright.core.decide.world import World, count
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import RolledBackStatus, RolloutStatus


def shift(
    world: World, target: Target, stable: DeploymentView, serving: Serving, memory: RolloutStatus
) -> RolloutResult:
    moving = Shift(
        world=world,
        target=target,
        stable=stable,
        serving=serving,
        memory=memory,
        candidate=serving.deployment(target.revision),
    )
    given_up = memory.rolled_back
    if given_up and given_up.revision == target.revision and given_up.retry in (None, world.retry):
        return _stay_back(moving, given_up)
    if world.spec.rollout.strategy == "Recreate":
        return _recreate(moving)
    step = step_of(moving)
    if trouble := _trouble(moving):
        return _roll_back(moving, trouble)
    return _go_on(moving, step)


def _trouble(moving: Shift) -> Trouble | None:
    revision = moving.target.revision
    if found := starting_trouble(moving.world, moving.candidate, revision):
        return found
    if moving.under_analysis and (found := restarted(moving.world, revision, moving.memory.restarts or 0)):
        return found
    return failed_inferences(moving.world, revision)


def _go_on(moving: Shift, step: str) -> RolloutResult:
    world, target = moving.world, moving.target
    mine, theirs = _counts(moving, step)
    actions = children.run(
        world,
        target.revision,
        target.record,
        target.placement,
        f"revision {target.revision} is to replace {moving.stable.revision}",
    )
    actions += children.protect(world)
    actions += route_safely(world, moving.serving, _routed(moving, step), f"rollout step {step}")
    actions += children.resize(moving.candidate, mine, f"rollout step {step}")
    actions += children.resize(moving.stable, theirs, f"rollout step {step}")
    actions += remove_others(
        moving.serving, {moving.stable.revision, target.revision}, "superseded before it was proven"
    )
    analysing = step in (ANALYSING, WAITING)
    baseline = moving.memory.restarts if moving.under_analysis else restarts(world.observed, target.revision)
    memory = moving.remember(step, baseline if analysing else None)
    requeue = max(1.0, analysis_left(moving)) if step == ANALYSING else PROGRESS_CHECK
    return RolloutResult(
        memory=memory,
        actions=actions,
        verdict=_verdict(moving, step),
        watch=analysing or step == EXPANDING,
        requeue=min(requeue, PROGRESS_CHECK),
    )


def _counts(moving: Shift, step: str) -> tuple[int, int]:
    """Replicas of the candidate and of the stable revision."""
    wanted, candidate, stable = moving.target.replicas, moving.candidate, moving.stable
    asked = candidate.spec_replicas if candidate else 0
    if not moving.canary:
        return wanted, wanted
    if step in (EXPANDING, SWITCHING):
        there = max(stable.spec_replicas, stable.replicas)
        room = wanted + moving.world.spec.rollout.max_surge - there
        available = min(candidate.available, moving.serving.answering.get(candidate.revision, 0)) if candidate else 0
        return min(wanted, max(asked, room)), max(0, wanted - available)
    return min(wanted, max(moving.first, asked)), wanted


def _routed(moving: Shift, step: str) -> str:
    if step == SWITCHING:
        return moving.target.revision
    if moving.canary and step != STARTING:
        return children.EVERY
    return moving.stable.revision


def _verdict(moving: Shift, step: str) -> Verdict:
    revision, spec = moving.target.revision, moving.world.spec.rollout
    if step == STARTING:
        return starting(moving.world, moving.target, moving.candidate, moving.first)
    if step == ANALYSING:
        shares = "shares the traffic" if moving.canary else "is ready beside the old one"
        return bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.ANALYSING,
            f"Revision {revision} {shares} and is watched for {spec.analysis_seconds} s.",
        )
    if step == WAITING:
        return bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.WAITING_FOR_PROMOTION,
            f"Revision {revision} passed its analysis; promote it with kubectl annotate om {moving.world.obj.name} "
            f"{labels.PROMOTE}={revision}.",
        )
    if step == EXPANDING:
        return starting(moving.world, moving.target, moving.candidate, moving.target.replicas)
    return bad(
        Condition.ROLLOUT_COMPLETE,
        Reason.DRAINING,
        f"Traffic moves to revision {revision}; revision {moving.stable.revision} stops next.",
    )


def _roll_back(moving: Shift, trouble: Trouble) -> RolloutResult:
    now, began = moving.world.now, parse_timestamp(moving.memory.step_start_time)
    when = f" This was {(now - began).total_seconds():.0f} s into step {moving.memory.step}." if began else ""
    return _stay_back(
        moving,
        RolledBackStatus(
            revision=moving.target.revision,
            reason=trouble.reason,
            message=f"{trouble.message}{when}",
            time=timestamp(now),
            retry=moving.world.retry,
        ),
    )


def _stay_back(moving: Shift, given_up: RolledBackStatus) -> RolloutResult:
    stable = moving.stable
    why = f"revision {given_up.revision} was rolled back: {given_up.reason}"
    return RolloutResult(
        memory=RolloutStatus(stable=stable.revision, step="RolledBack", rolled_back=given_up),
        actions=back_to(moving.world, moving.serving, stable, moving.target.replicas, why),
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.ROLLED_BACK,
            f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message} Revision "
            f"{stable.revision} goes on serving. {RETRY_HINT}",
        ),
    )


def _recreate(moving: Shift) -> RolloutResult:
    """The old replicas free the device before the new ones ask for it; the gap is what Recreate means."""
    going = tuple(
        children.remove(other, "strategy Recreate stops the old first")
        for other in moving.serving.alive
        if other.revision != moving.target.revision
    )
    return RolloutResult(
        memory=RolloutStatus(stable=moving.stable.revision, candidate=moving.target.revision, step="Draining"),
        actions=going,
        requeue=PROGRESS_CHECK,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"Strategy Recreate: {count(moving.stable.replicas, 'replica')} of revision {moving.stable.revision} stop "
            f"before revision {moving.target.revision} starts.",
        ),
    )

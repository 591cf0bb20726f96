"""From one revision to the next while both run: start, analyse, expand, switch, or roll back.

The position is kept in status (``rollout.step``) but every count is derived from the world, so that a lost status only
makes the analysis start again. A candidate is never shrunk on its way, and the stable revision gives up a replica only
for one of the candidate's that is available: together they never fall below what is wanted, nor, with Canary, rise
above it by more than ``maxSurge``. With ``maxSurge`` 0 they never rise above it at all, and fall one short of it while
a replica is exchanged.
"""

from __future__ import annotations

from enginewright.core.comparison import Answer, fails_more, proven_worse
from enginewright.core.context import PassContext
from enginewright.core.decide import children
from enginewright.core.decide.analysis import restarted, restarts, starting_trouble
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.position import (
    ANALYSING,
    EXPANDING,
    STARTING,
    SWITCHING,
    WAITING,
    Position,
    RolloutState,
    flapping,
    position_of,
)
from enginewright.core.decide.recreate import recreate
from enginewright.core.decide.roll_back import roll_back, stay_back
from enginewright.core.decide.rollout import (
    PROGRESS_CHECK,
    RolloutResult,
    Target,
    put_aside,
    remove_others,
    route_safely,
)
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.shift_verdict import verdict_of
from enginewright.core.decide.traffic import shares
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action
from enginewright.core.status import RolloutStatus


def shift(
    ctx: PassContext, target: Target, stable: DeploymentView, serving: Serving, memory: RolloutStatus
) -> RolloutResult:
    moving = RolloutState(
        ctx=ctx,
        target=target,
        stable=stable,
        serving=serving,
        memory=memory,
        candidate=serving.deployment(target.revision),
    )
    if given_up := put_aside(ctx, memory, target.revision):
        return stay_back(moving, given_up)
    if ctx.spec.rollout.strategy == "Recreate":
        return recreate(moving)
    if trouble := _trouble(moving):
        return roll_back(moving, trouble)
    return _go_on(moving, position_of(moving))


def _trouble(moving: RolloutState) -> Trouble | None:
    revision = moving.target.revision
    if found := starting_trouble(moving.ctx, moving.candidate, revision):
        return found
    if moving.under_analysis and (found := restarted(moving.ctx, revision, moving.memory.restarts or 0)):
        return found
    if found := flapping(moving):
        return found
    if moving.under_analysis:
        return _as_trouble(moving.answer if moving.memory.step == ANALYSING else proven_worse(moving.answer))
    # Load shifts from one to the other now, so that latencies are not to be compared any more.
    promoted = moving.known and moving.memory.step in (EXPANDING, SWITCHING)
    return _as_trouble(fails_more(moving.ctx.observed.signals, moving.question(moving.last))) if promoted else None


def _as_trouble(answer: Answer | None) -> Trouble | None:
    if answer is None or answer.verdict != "worse" or answer.reason is None:
        return None
    return Trouble(reason=answer.reason, message=answer.message)


def _go_on(moving: RolloutState, at: Position) -> RolloutResult:
    ctx, target, step = moving.ctx, moving.target, at.step
    mine, theirs = _counts(moving, at)
    actions: tuple[Action, ...] = ()
    if mine:
        actions += children.run(
            ctx,
            target.revision,
            target.record,
            target.placement,
            mine,
            f"revision {target.revision} is to replace {moving.stable.revision}",
        )
    actions += children.protect(ctx)
    actions += route_safely(ctx, moving.serving, _routed(moving, at), f"rollout step {step}")
    actions += children.resize(moving.candidate, mine, f"rollout step {step}")
    actions += children.resize(moving.stable, theirs, f"rollout step {step}")
    actions += remove_others(
        moving.serving, {moving.stable.revision, target.revision}, "superseded before it was proven"
    )
    analysing = step in (ANALYSING, WAITING)
    baseline = moving.memory.restarts if moving.under_analysis else restarts(ctx.observed, target.revision)
    watched = analysing or step in (EXPANDING, SWITCHING)
    return RolloutResult(
        memory=moving.remember(at, baseline if analysing else None),
        actions=actions,
        traffic=shares(moving, at, theirs),
        verdict=verdict_of(moving, at),
        watch=watched,
        question=moving.question(at.number) if watched else None,
        requeue=PROGRESS_CHECK,
    )


def _counts(moving: RolloutState, at: Position) -> tuple[int, int]:
    """Replicas of the candidate and of the stable revision.

    With surge, old ones go when new ones are available. Without, one goes first, and a new one takes its room.
    """
    wanted, candidate, stable = moving.target.replicas, moving.candidate, moving.stable
    if not moving.canary:
        return wanted, wanted
    surge, split = moving.ctx.spec.rollout.max_surge, moving.splits[at.number]
    goal, least = (wanted, 0) if at.step in (EXPANDING, SWITCHING) else (split.candidate, split.stable)
    asked = candidate.spec_replicas if candidate else 0
    room = max(0, wanted + surge - max(stable.spec_replicas, stable.replicas))
    available = min(candidate.available, moving.serving.answering.get(candidate.revision, 0)) if candidate else 0
    mine = min(wanted, max(asked, min(goal, room)))
    exchanged = 1 if surge == 0 and goal > available else 0
    theirs = max(least, wanted - available - exchanged, 0)
    if surge == 0:
        theirs = min(theirs, max(0, wanted - max(asked, candidate.replicas if candidate else 0)))
    return mine, theirs


def _routed(moving: RolloutState, at: Position) -> str:
    if at.step == SWITCHING:
        return moving.target.revision
    if moving.lent and moving.target.revision in moving.serving.traffic:
        return children.EVERY
    if moving.exact:
        # The routes split the traffic; the Service follows when the stable revision is about to go.
        return children.EVERY if at.step == EXPANDING else moving.stable.revision
    # The stable revision gives up replicas for the first new ones, when there are to be several: they must serve, then.
    growing = moving.splits[at.number].candidate > 1 and moving.available(1)
    shared = at.step != STARTING or at.number > 0 or growing
    return children.EVERY if moving.canary and shared else moving.stable.revision

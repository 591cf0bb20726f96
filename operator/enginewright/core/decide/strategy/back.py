"""The ways back of a rollout: one revision alone, or a share of the traffic that is given back replica by replica.

A revision that shares the traffic cannot go at once: the stable one was shrunk for it and could not take its traffic.
So the expansion runs backwards first, within ``maxSurge``: after a rollback, and for a spec that changes in the middle,
which then goes its way as if it had come later.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import Finding, no, parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.desired import EVERY, PROGRESS_CHECK, Desired, Stops
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.strategy.analysis import figures
from enginewright.core.decide.strategy.state import RolloutState
from enginewright.core.decide.target import Target, Why
from enginewright.core.decide.trouble import starting_trouble
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Reason
from enginewright.core.routing import WHOLE, part, split
from enginewright.core.serving import pods_of
from enginewright.core.status import RolledBackStatus, RolloutStatus
from enginewright.core.step import Step

# Reasons for which a revision's answers are worth little.
WRONG = (Reason.FAILED_INFERENCES, Reason.OUTPUTS_DIFFER, Reason.SMOKE_TEST_FAILED, Reason.ENGINE_REFUSED,
         Reason.TENSORRT_VERSION_MISMATCH, Reason.DEVICE_MISMATCH, Reason.DRIVER_TOO_OLD)


def alone(
    ctx: PassContext, stable: DeploymentView, wanted: int, why: str, progress: Finding, memory: RolloutStatus, *,
    requeue: float | None = None,
) -> Desired:
    """Only ``stable``, at full strength; where the spec asks for no replica, none is spared."""
    replicas = _room_for(ctx, stable, wanted) if wanted and not ctx.spec.rollout.max_surge else {
        stable.revision: wanted}
    return Desired(
        progress=progress, memory=memory, replicas=replicas, selected=stable.revision, requeue=requeue, why=why,
        weights={stable.revision: WHOLE}, kept=frozenset({stable.revision}),
        stops=Stops.SPARING if wanted else Stops.AT_ONCE)


def _room_for(ctx: PassContext, stable: DeploymentView, wanted: int) -> dict[str, int]:
    """Without capacity to spare others make room before ``stable`` grows: one replica while it has none that answers,
    then all."""
    others = [other for other in ctx.observed.deployments if other.revision != stable.revision]
    taken = sum(max(other.replicas, 0 if other.deleting else other.spec_replicas) for other in others)
    grown = min(wanted, max(stable.spec_replicas, wanted - taken))
    shrunk = {} if ctx.serving.answers(stable) else {
        other.revision: min(other.spec_replicas, wanted - 1)
        for other in others if not other.deleting and other.spec_replicas}
    return {**shrunk, stable.revision: grown}


def withdraw(target: Target, wanted: int) -> Desired | None:
    """None unless a revision that is not the target has begun to take over, and has a share to give back."""
    ctx = target.ctx
    memory, serving, goal = ctx.rollout, ctx.serving, target.revision if target.engine.record else ""
    given_up, stable = memory.rolled_back, serving.stable
    half = serving.deployment(memory.candidate or (given_up.revision if given_up else ""))
    if stable is None or half is None or half.revision in (goal, stable.revision):
        return None
    if not (shares_traffic(ctx, half) or memory.step in (Step.EXPANDING, Step.SWITCHING)):
        return None
    why = f"revision {half.revision} is superseded before it has taken over"
    progress = no(Reason.DRAINING, f"The spec changed while revision {half.revision} took over from {stable.revision}: "
                                   f"it gives its share of the traffic back first.")
    found = give_share_back(ctx, half, wanted, why, progress, memory, wrong=wrong(ctx, half))
    return replace(found, protected=as_it_is(target)) if found else None


def as_it_is(target: Target) -> bool:
    """Whether what serves stays until a user says otherwise, as what it was made of is not known."""
    return target.reason is Why.STAYS and target.engine.placement is None


def wrong(ctx: PassContext, half: DeploymentView) -> bool:
    """Whether the half-rolled revision is known to give answers that are worth little."""
    given_up = ctx.rollout.rolled_back
    if given_up and given_up.revision == half.revision:
        return given_up.reason in WRONG
    trouble = starting_trouble(ctx, half, half.revision)
    return trouble is not None and trouble.reason in WRONG


def shares_traffic(ctx: PassContext, half: DeploymentView) -> bool:
    return half.revision in ctx.serving.traffic or half.revision in ctx.observed.gateway.routed


def give_share_back(
    ctx: PassContext, half: DeploymentView, wanted: int, why: str, progress: Finding, memory: RolloutStatus, *,
    wrong: bool = False,
) -> Desired | None:
    """What is to serve until the stable revision has all the replicas that are needed; then None.

    A revision that answers ``wrong`` only stands in for what the stable one lacks of half of them: below that, those
    that are left would drown in requests. With a surge, the stable one does not wait for room, then.
    """
    serving, stable = ctx.serving, ctx.serving.stable
    if stable is None:
        return None
    answering = serving.answering.get(stable.revision, 0)
    available = min(stable.available, answering)
    floor = (wanted + 1) // 2 if wrong else wanted
    if serving.full(stable, wanted) or (wrong and available >= floor):
        return None
    mine, room = _shares(ctx, stable, half, floor - available, wanted)
    at_once = wrong and ctx.spec.rollout.max_surge > 0
    grown = wanted if at_once else min(wanted, max(stable.spec_replicas, room))
    apart = ctx.observed.service is not None and ctx.observed.service.revision == stable.revision
    share = part(min(mine, serving.answering.get(half.revision, 0)), answering)
    return Desired(
        progress=progress, memory=memory, why=why, requeue=PROGRESS_CHECK,
        replicas={stable.revision: grown, half.revision: mine},
        selected=stable.revision if apart and serving.answers(stable) else EVERY,
        weights=split(half.revision, stable.revision, share))


def _shares(ctx: PassContext, stable: DeploymentView, half: DeploymentView, lacking: int,
            wanted: int) -> tuple[int, int]:
    """Replicas of the half-rolled revision, which never grows and keeps none that does not answer, and room for the
    stable one. Where there is no capacity to spare one replica has to go before another can come."""
    surge, serving = ctx.spec.rollout.max_surge, ctx.serving
    waiting = any(pod.unschedulable for pod in pods_of(ctx.observed, stable.revision))
    needed = lacking - (1 if waiting or not surge else 0)
    needed = max(needed, 1 if surge and not serving.answers(stable) else 0)
    answering = serving.answering.get(half.revision, 0)
    return min(half.spec_replicas, answering, needed), wanted + surge - max(half.spec_replicas, half.replicas)


def roll_back(state: RolloutState, trouble: Trouble) -> Desired:
    now, began = state.ctx.now, parse_timestamp(state.memory.step_start_time)
    when = f" This was {(now - began).total_seconds():.0f} s into step {state.memory.step}." if began else ""
    result = stay_back(state, RolledBackStatus(
        revision=state.target.revision, reason=trouble.reason, message=f"{trouble.message}{when}",
        time=timestamp(now), retry=state.ctx.began_under(state.target.revision)))
    if not state.under_analysis:
        return result
    return replace(result, memory=result.memory.model_copy(update={"analysis": figures(state.answer)}))


def stay_back(state: RolloutState, given_up: RolledBackStatus) -> Desired:
    stable = state.stable
    memory = RolloutStatus(stable=stable.revision, step=Step.ROLLED_BACK, analysis=state.memory.analysis,
                           rolled_back=given_up)
    return retreat(
        state, f"revision {given_up.revision} was rolled back: {given_up.reason}", Reason.ROLLED_BACK,
        f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message} Revision "
        f"{stable.revision} goes on serving.", memory, after=f" {state.ctx.retry_hint}", wrong=given_up.reason in WRONG)


def retreat(
    state: RolloutState, why: str, reason: Reason, message: str, memory: RolloutStatus, *, after: str = "",
    wrong: bool = False,
) -> Desired:
    """The stable revision alone, once the candidate has given its share back. ``after`` ends what is said."""
    ctx, half, revision = state.ctx, state.candidate, state.target.revision
    if half and shares_traffic(ctx, half):
        meanwhile = f" Until it has all its replicas, {revision} keeps a part of the traffic."
        progress = no(reason, f"{message}{meanwhile}{after}")
        if found := give_share_back(ctx, half, state.wanted, why, progress, memory, wrong=wrong):
            return found
    return alone(ctx, state.stable, state.wanted, why, no(reason, f"{message}{after}"), memory)

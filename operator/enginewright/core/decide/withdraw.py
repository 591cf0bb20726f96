"""The way back out of a rollout whose revision shares the traffic: it gives its share back, replica by replica.

The stable revision was shrunk for it and could not take its traffic at once. So the expansion runs backwards first,
within ``maxSurge``: after a rollback, and for a spec that changes in the middle, which then goes its way as if it had
come later.
"""

from __future__ import annotations

from enginewright.core.conditions import bad
from enginewright.core.context import PassContext
from enginewright.core.decide import children
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.position import EXPANDING, SWITCHING
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult
from enginewright.core.decide.serving import Serving, pods_of
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import Weights, part, split
from enginewright.core.status import RolloutStatus

# Reasons for which a revision's answers are worth little.
WRONG = (Reason.FAILED_INFERENCES, Reason.OUTPUTS_DIFFER, Reason.SMOKE_TEST_FAILED, Reason.ENGINE_REFUSED,
         Reason.TENSORRT_VERSION_MISMATCH, Reason.DEVICE_MISMATCH, Reason.DRIVER_TOO_OLD)


def withdraw(ctx: PassContext, serving: Serving, memory: RolloutStatus, wanted: int, goal: str) -> RolloutResult | None:
    """None when there is nothing to give back: ``goal`` is the revision to roll out, empty while it is not built."""
    given_up = memory.rolled_back
    stable = serving.stable
    half = serving.deployment(memory.candidate or (given_up.revision if given_up else ""))
    if stable is None or half is None or half.revision in (goal, stable.revision):
        return None
    if not (shares_traffic(ctx, serving, half) or memory.step in (EXPANDING, SWITCHING)):
        return None
    why = f"revision {half.revision} is superseded before it has taken over"
    found = give_share_back(ctx, serving, stable, half, wanted, why, wrong=wrong(ctx, half, memory))
    if found is None:
        return None
    actions, traffic = found
    return RolloutResult(
        memory=memory,
        requeue=PROGRESS_CHECK,
        actions=actions,
        traffic=traffic,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"The spec changed while revision {half.revision} took over from {stable.revision}: it gives its share of "
            f"the traffic back first.",
        ),
    )


def wrong(ctx: PassContext, half: DeploymentView, memory: RolloutStatus) -> bool:
    """Whether the half-rolled revision is known to give answers that are worth little."""
    if memory.rolled_back and memory.rolled_back.revision == half.revision:
        return memory.rolled_back.reason in WRONG
    trouble = starting_trouble(ctx, half, half.revision)
    return trouble is not None and trouble.reason in WRONG


def shares_traffic(ctx: PassContext, serving: Serving, half: DeploymentView) -> bool:
    return half.revision in serving.traffic or half.revision in ctx.observed.gateway.routed


def give_share_back(
    ctx: PassContext,
    serving: Serving,
    stable: DeploymentView,
    half: DeploymentView,
    wanted: int,
    why: str,
    *,
    wrong: bool = False,
) -> tuple[tuple[Action, ...], Weights] | None:
    """What is to be done and how a Gateway is to split the traffic meanwhile, until ``stable`` has all the replicas
    that are wanted; then None.

    A revision that answers ``wrong`` only stands in for what the stable one lacks of half of them: below that, those
    that are left would drown in requests. With a surge, the stable one does not
    wait for room, then.
    """
    available = min(stable.available, serving.answering.get(stable.revision, 0))
    floor = (wanted + 1) // 2 if wrong else wanted
    if serving.full(stable, wanted) or (wrong and available >= floor):
        return None
    mine, room = _counts(ctx, serving, stable, half, floor - available, wanted)
    at_once = wrong and ctx.spec.rollout.max_surge > 0
    grown = wanted if at_once else min(wanted, max(stable.spec_replicas, room))
    alone = ctx.observed.service is not None and ctx.observed.service.revision == stable.revision
    routed = stable.revision if alone and serving.answers(stable) else children.EVERY
    actions = (
        children.route(ctx, routed, why)
        + children.resize(stable, grown, why)
        + children.resize(half, mine, why)
    )
    share = part(min(mine, serving.answering.get(half.revision, 0)), serving.answering.get(stable.revision, 0))
    return actions, split(half.revision, stable.revision, share)


def _counts(
    ctx: PassContext, serving: Serving, stable: DeploymentView, half: DeploymentView, lacking: int, wanted: int
) -> tuple[int, int]:
    """Replicas of the half-rolled revision, which never grows and keeps none that does not answer, and room for the
    stable one. Where there is no capacity to spare one replica has to go before another can come."""
    surge = ctx.spec.rollout.max_surge
    waiting = any(pod.unschedulable for pod in pods_of(ctx.observed, stable.revision))
    needed = lacking - (1 if waiting or not surge else 0)
    needed = max(needed, 1 if surge and not serving.answers(stable) else 0)
    answering = serving.answering.get(half.revision, 0)
    return min(half.spec_replicas, answering, needed), wanted + surge - max(half.spec_replicas, half.replicas)

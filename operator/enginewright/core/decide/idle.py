"""No replica is wanted: nothing is started, and nothing is proven.

Whoever scales to zero overnight and finds another revision in the morning wants it proven then, as ever. So what is
not proven yet waits, and what was proven stays the one to go back to. With Recreate, which proves nothing beside the
old revision, and where nothing was proven before, the wanted revision takes the place at once; where a person promotes
(:mod:`~enginewright.core.decide.approval`), it comes here when it has been approved.
"""

from __future__ import annotations

from enginewright.core.conditions import bad
from enginewright.core.context import PassContext
from enginewright.core.decide.position import EXPANDING, SWITCHING
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult, Target, back_to, put_aside
from enginewright.core.decide.serving import Serving
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE
from enginewright.core.status import RolloutStatus


def wait_for_replicas(
    ctx: PassContext, target: Target, serving: Serving, memory: RolloutStatus
) -> RolloutResult | None:
    """None unless ``target`` is yet to be proven beside a stable revision. Its Deployment goes, should it be there: the
    rollout begins anew when replicas are wanted again."""
    stable = serving.stable
    if target.replicas or ctx.spec.rollout.strategy == "Recreate":
        return None
    if stable is None or stable.revision == target.revision or put_aside(ctx, memory, target.revision):
        return None
    if taken_over(ctx, target, serving, memory):
        return None
    actions = back_to(ctx, serving, stable, 0, "no replica is wanted, and nothing else is proven")
    return RolloutResult(
        memory=RolloutStatus(stable=stable.revision, rolled_back=memory.rolled_back),
        actions=actions,
        traffic={stable.revision: WHOLE},
        requeue=PROGRESS_CHECK if actions else None,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.WAITING_FOR_REPLICAS,
            f"No replica is wanted, so that nothing can be proven: revision {stable.revision} stays the stable one, "
            f"and the rollout of revision {target.revision} begins when there are replicas.",
        ),
    )


def nobody_serves(serving: Serving, memory: RolloutStatus, target: Target) -> bool:
    """No replica is wanted and none answers: there is no traffic to shift and nothing to analyse, so that the wanted
    revision takes the place at once. One that was given up does not."""
    given_up = memory.rolled_back.revision if memory.rolled_back else ""
    return target.replicas == 0 and not serving.answering and given_up != target.revision


def taken_over(ctx: PassContext, target: Target, serving: Serving, memory: RolloutStatus) -> bool:
    """Whether ``target`` has passed its analysis beside another revision that is still there: it expands, or the
    Service has left that one already."""
    if serving.stable is None or serving.stable.revision == target.revision:
        return False
    known = memory.candidate == target.revision and memory.step in (EXPANDING, SWITCHING)
    return known or (ctx.observed.service is not None and ctx.observed.service.revision == target.revision)

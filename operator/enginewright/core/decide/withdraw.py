"""A spec that changes in the middle of an expansion: the half-rolled revision gives its share back, replica by replica.

It has passed its analysis and carries traffic that the stable revision, shrunk meanwhile, could not take at once. So
the expansion runs backwards first, within ``maxSurge``; then the newest spec goes its way as if it had come later.
"""

from __future__ import annotations

from enginewright.core.conditions import bad
from enginewright.core.decide import children
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.position import EXPANDING, SWITCHING
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.world import World
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import part, split
from enginewright.core.status import RolloutStatus


def withdraw(world: World, serving: Serving, memory: RolloutStatus, wanted: int, goal: str) -> RolloutResult | None:
    """None when there is nothing to give back, or nobody fit to: ``goal`` is the revision to roll out, empty while it
    is not built."""
    stable, half = serving.stable, serving.deployment(memory.candidate or "")
    if stable is None or half is None or half.revision in (goal, stable.revision) or serving.full(stable, wanted):
        return None
    if memory.step not in (EXPANDING, SWITCHING) or starting_trouble(world, half, half.revision):
        return None
    why = f"revision {half.revision} is superseded before it has taken over"
    mine, theirs = _counts(world, serving, stable, half, wanted)
    share = part(min(mine, serving.answering.get(half.revision, 0)), serving.answering.get(stable.revision, 0))
    return RolloutResult(
        memory=memory,
        requeue=PROGRESS_CHECK,
        actions=children.route(world, children.EVERY, why)
        + children.resize(stable, theirs, why)
        + children.resize(half, mine, why),
        traffic=split(half.revision, stable.revision, share),
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"The spec changed while revision {half.revision} took over from {stable.revision}: it gives its share of "
            f"the traffic back first.",
        ),
    )


def _counts(
    world: World, serving: Serving, stable: DeploymentView, half: DeploymentView, wanted: int
) -> tuple[int, int]:
    """Replicas of the half-rolled revision, which never grows, and of the stable one, which never shrinks. Without a
    surge one replica has to go before another can come."""
    surge = world.spec.rollout.max_surge
    available = min(stable.available, serving.answering.get(stable.revision, 0))
    room = wanted + surge - max(half.spec_replicas, half.replicas)
    mine = max(0, wanted - available - (0 if surge else 1))
    return min(half.spec_replicas, mine), min(wanted, max(stable.spec_replicas, room))

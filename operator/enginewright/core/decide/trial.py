"""The first moments of a revision that the Service has switched to: the old one stays until it is seen to carry them.

No analysis of a revision without live traffic shows what the whole of it does. So the rollout is not over when the
Service selects the new revision; while fewer of its replicas answer than of the old one's, traffic goes back.
"""

from __future__ import annotations

from enginewright.core.conditions import parse_timestamp
from enginewright.core.decide.position import EXPANDING, SWITCHING
from enginewright.core.decide.rollout import Target
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.world import World
from enginewright.core.observed import DeploymentView
from enginewright.core.status import RolloutStatus

# How long all replicas of the new revision have to carry the traffic; where they do, more that are wanted meanwhile
# need not come first: the old ones may hold the room for them.
TRIAL_SECONDS = 15.0


def taken_over_from(world: World, target: Target, serving: Serving, memory: RolloutStatus) -> DeploymentView | None:
    """The revision that ``target`` is to replace; None when it serves, its trial over, or nothing else does."""
    if serving.stable is None or serving.stable.revision != target.revision:
        return serving.stable
    old = serving.deployment(memory.stable or "")
    if memory.candidate != target.revision or memory.step not in (EXPANDING, SWITCHING) or not target.replicas:
        return None
    if old is None or old.revision == target.revision or world.spec.rollout.strategy == "Recreate":
        return None
    if carries_less(serving, target, old):
        return old
    began = parse_timestamp(memory.step_start_time) if memory.step == SWITCHING else None
    young = began is not None and (world.now - began).total_seconds() < TRIAL_SECONDS
    ready = serving.full(serving.deployment(target.revision), target.replicas)
    return old if young and ready and serving.full(old, target.replicas) else None


def carries_less(serving: Serving, target: Target, other: DeploymentView) -> bool:
    """Whether ``other`` has more replicas to answer with than ``target``, of those that are wanted."""
    mine, theirs = (serving.answering.get(revision, 0) for revision in (target.revision, other.revision))
    return other.revision != target.revision and mine < min(theirs, target.replicas)

"""A class of a fleet waits for its turn where what serves stops for its candidate."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.conditions import bad
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult, Target, back_to, put_aside
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.world import World
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE
from enginewright.core.status import RolloutStatus


def wait_for_turn(world: World, target: Target, serving: Serving, memory: RolloutStatus) -> RolloutResult | None:
    """None where the fleet asks for nothing of the kind, or there is nothing to lose: the new revision has begun, or
    the one before it does not answer."""
    first, stable = world.obj.annotations.get(labels.AFTER, ""), serving.stable
    begun = serving.deployment(target.revision) or put_aside(world, memory, target.revision)
    if not (world.obj.fleet and first and stable) or begun or not serving.answers(stable):
        return None
    when = f"when fleet {first} says so" if first == world.obj.fleet else f"after that of OptimisedModel {first}"
    why = "with strategy Recreate" if world.spec.rollout.strategy == "Recreate" else "without a replica to spare"
    said = (f"Revision {target.revision} starts {when}: {why} the classes of a fleet take turns. Revision "
            f"{stable.revision} goes on serving.")
    return RolloutResult(
        memory=RolloutStatus(stable=stable.revision, rolled_back=memory.rolled_back),
        actions=back_to(world, serving, stable, target.replicas, "it waits for its turn"),
        traffic={stable.revision: WHOLE},
        requeue=PROGRESS_CHECK,
        verdict=bad(Condition.ROLLOUT_COMPLETE, Reason.WAITING_FOR_CLASSES, said),
    )

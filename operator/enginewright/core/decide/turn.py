"""A class of a fleet waits for its turn where what serves stops for its candidate."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.conditions import bad
from enginewright.core.context import PassContext
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult, Target, back_to, put_aside
from enginewright.core.decide.serving import Serving
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE
from enginewright.core.status import RolloutStatus


def wait_for_turn(ctx: PassContext, target: Target, serving: Serving, memory: RolloutStatus) -> RolloutResult | None:
    """None where the fleet asks for nothing of the kind, or there is nothing to lose: the new revision has begun, or
    the one before it does not answer."""
    first, stable = ctx.obj.annotations.get(labels.AFTER, ""), serving.stable
    begun = serving.deployment(target.revision) or put_aside(ctx, memory, target.revision)
    if not (ctx.obj.fleet and first and stable) or begun or not serving.answers(stable):
        return None
    when = f"when fleet {first} says so" if first == ctx.obj.fleet else f"after that of OptimisedModel {first}"
    why = "with strategy Recreate" if ctx.spec.rollout.strategy == "Recreate" else "without a replica to spare"
    said = (f"Revision {target.revision} starts {when}: {why} the classes of a fleet take turns. Revision "
            f"{stable.revision} goes on serving.")
    return RolloutResult(
        memory=RolloutStatus(stable=stable.revision, rolled_back=memory.rolled_back),
        actions=back_to(ctx, serving, stable, target.replicas, "it waits for its turn"),
        traffic={stable.revision: WHOLE},
        requeue=PROGRESS_CHECK,
        verdict=bad(Condition.ROLLOUT_COMPLETE, Reason.WAITING_FOR_CLASSES, said),
    )

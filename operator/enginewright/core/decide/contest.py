"""Somebody else writes the replicas of a Deployment of ours: an autoscaler that was pointed at it, or a person.

Their number is put back once. Should they write it again, it is left as it is and said in a condition: two that
overwrite each other make pods come and go for ever, and neither learns of the other. One more try an hour finds out
whether they have gone. While a rollout moves replicas it moves these, too: it ends, and takes the Deployment along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.conditions import bad, parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.position import WAITING
from enginewright.core.decide.rollout import RolloutResult
from enginewright.core.decide.scale_step import ScaleResult
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action, Scale
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import ContestStatus

PUT_BACK = timedelta(hours=1)


def hold_back(
    ctx: PassContext, scale: ScaleResult, rollout: RolloutResult
) -> tuple[ScaleResult, RolloutResult, ContestStatus | None]:
    """Both without what would be a fight, and the last time that a foreign number was put back."""
    memory = _recent(ctx)
    if _moves(ctx, rollout) or sum(not view.deleting for view in ctx.observed.deployments) > 1:
        return scale, rollout, memory
    contested = [(action, view) for action in rollout.actions if (view := _foreign(ctx, action))]
    if not contested:
        return scale, rollout, memory
    held = [pair for pair in contested if memory and pair[1].replicas_manager == memory.manager]
    put_back = next((view for _, view in contested if not memory or view.replicas_manager != memory.manager), None)
    if put_back:
        memory = ContestStatus(manager=put_back.replicas_manager, deployment=put_back.name, time=timestamp(ctx.now),
                               retry=ctx.retry or None)
    if not held:
        return scale, rollout, memory
    actions = tuple(action for action in rollout.actions if action not in [action for action, _ in held])
    verdict = bad(Condition.SCALING_ACTIVE, Reason.REPLICAS_CONTESTED, _explain(ctx, held))
    return replace(scale, verdict=verdict), replace(rollout, actions=actions), memory


def _moves(ctx: PassContext, rollout: RolloutResult) -> bool:
    """Not one that waits to be approved before it has a Deployment: it may wait for days."""
    candidate, step = rollout.memory.candidate, rollout.memory.step
    return candidate is not None and (step != WAITING or ctx.observed.deployment(candidate) is not None)


def _foreign(ctx: PassContext, action: Action) -> DeploymentView | None:
    """The Deployment that ``action`` scales, if somebody else has written its replicas last."""
    if not isinstance(action, Scale):
        return None
    found = (view for view in ctx.observed.deployments if view.name == action.deployment and view.replicas_manager)
    return next(found, None)


def _recent(ctx: PassContext) -> ContestStatus | None:
    told = ctx.memory.contest
    moment = parse_timestamp(told.time) if told else None
    fresh = moment is not None and ctx.now - moment < PUT_BACK
    return told if told and fresh and told.retry == (ctx.retry or None) else None


def _explain(ctx: PassContext, held: Iterable[tuple[Action, DeploymentView]]) -> str:
    said = " ".join(
        f"Field manager {view.replicas_manager} sets Deployment {view.name} to {view.spec_replicas}, again after it "
        f"was put back to what is wanted here ({action.replicas})."
        for action, view in held if isinstance(action, Scale))
    name = ctx.obj.name
    again = kubectl(f"annotate om {name} {labels.RETRY}=<anything new>", ctx.obj.namespace)
    return (f"{said} It is left so. Remove that scaler, or point it at OptimisedModel {name}, which has /scale; then "
            f"{again}. Else it is tried again in an hour.")

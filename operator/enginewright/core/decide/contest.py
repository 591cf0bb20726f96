"""Somebody else writes the replicas of a Deployment of ours: an autoscaler that was pointed at it, or a person.

Their number is put back once. Should they write it again, it is left as it is and said in a condition: two that
overwrite each other make pods come and go for ever, and neither learns of the other. One more try an hour finds out
whether they have gone. While a rollout moves replicas it moves these, too: it ends, and takes the Deployment along.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.conditions import Finding, no, parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.desired import Desired
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Reason
from enginewright.core.status import ContestStatus, RolloutStatus
from enginewright.core.step import Step

PUT_BACK = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Contest:
    """``held`` are revisions whose replicas are left as they are, ``finding`` says so; ``memory`` is the last time that
    a foreign number was put back."""

    memory: ContestStatus | None = None
    held: frozenset[str] = frozenset()
    finding: Finding | None = None


def contested(ctx: PassContext, desired: Desired, memory: RolloutStatus) -> Contest:
    """``memory`` is what will be remembered of the rollout."""
    before = _recent(ctx)
    if _moves(ctx, memory) or sum(not view.deleting for view in ctx.observed.deployments) > 1:
        return Contest(memory=before)
    views = [view for view in ctx.serving.alive if view.replicas_manager
             and desired.replicas.get(view.revision, view.spec_replicas) != view.spec_replicas]
    held = [view for view in views if before and view.replicas_manager == before.manager]
    put_back = next((view for view in views if view not in held), None)
    if put_back:
        before = ContestStatus(manager=put_back.replicas_manager, deployment=put_back.name, time=timestamp(ctx.now),
                               retry=ctx.retry or None)
    if not held:
        return Contest(memory=before)
    said = no(Reason.REPLICAS_CONTESTED, _explain(ctx, desired, held))
    return Contest(memory=before, held=frozenset(view.revision for view in held), finding=said)


def _moves(ctx: PassContext, memory: RolloutStatus) -> bool:
    """Not one that waits to be approved before it has a Deployment: it may wait for days."""
    candidate, step = memory.candidate, memory.step
    return candidate is not None and (step != Step.WAITING or ctx.observed.deployment(candidate) is not None)


def _recent(ctx: PassContext) -> ContestStatus | None:
    before = ctx.memory.contest
    moment = parse_timestamp(before.time) if before else None
    fresh = moment is not None and ctx.now - moment < PUT_BACK
    return before if before and fresh and before.retry == (ctx.retry or None) else None


def _explain(ctx: PassContext, desired: Desired, held: list[DeploymentView]) -> str:
    said = " ".join(
        f"Field manager {view.replicas_manager} sets Deployment {view.name} to {view.spec_replicas}, again after it "
        f"was put back to what is wanted here ({desired.replicas[view.revision]})." for view in held)
    name = ctx.obj.name
    again = kubectl(f"annotate om {name} {labels.RETRY}=<anything new>", ctx.obj.namespace)
    return (f"{said} It is left so. Remove that scaler, or point it at OptimisedModel {name}, which has /scale; then "
            f"{again}. Else it is tried again in an hour.")

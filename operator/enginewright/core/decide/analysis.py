"""Is the candidate good enough to go on? Pure checks, each saying what went wrong with figures."""

from __future__ import annotations

from enginewright.core.commands import kubectl
from enginewright.core.context import PassContext, count
from enginewright.core.decide.jobs import Trouble, pod_trouble
from enginewright.core.decide.repair import fetches, refusal, unreachable
from enginewright.core.decide.room import room
from enginewright.core.decide.serving import pods_of
from enginewright.core.observed import DeploymentView, Observed, PodView
from enginewright.core.placement import Placement, pinned
from enginewright.core.reasons import Reason
from enginewright.core.request import server_image

# A replica that restarts so often before it is ready will not get ready.
CRASHES = 3


def restarts(observed: Observed, revision: str) -> int:
    """Of the server alone: a replica that is new because a node was drained may have to verify its engine twice."""
    return sum(map(_server_restarts, pods_of(observed, revision)))


def _server_restarts(pod: PodView) -> int:
    return pod.restarts - pod.side_restarts


def starting_trouble(ctx: PassContext, deployment: DeploymentView | None, revision: str) -> Trouble | None:
    """Why the revision will not get ready, as far as anybody can tell."""
    pods = pods_of(ctx.observed, revision)
    record = ctx.observed.records.get(deployment.fingerprint) if deployment else None
    if refused := refusal(pods, revision, ctx.obj.namespace, record):
        return refused
    for pod in pods:
        if pod.restarts >= CRASHES and not pod.ready and not fetches(pod):
            return _crash(ctx, pod)
    if deployment and deployment.progress_deadline_exceeded:
        waits = waiting_trouble(ctx, None, revision)
        return Trouble(
            reason=Reason.PROGRESS_DEADLINE_EXCEEDED,
            message=f"{deployment.available} of {count(deployment.spec_replicas, 'replica')} got ready before "
            f"the deadline of Deployment {deployment.name}.{f' {waits.message}' if waits else ''}",
        )
    return None


def restarted(ctx: PassContext, revision: str, before: int) -> Trouble | None:
    """A restart since there were ``before``: a revision under analysis must not need any."""
    if restarts(ctx.observed, revision) <= before:
        return None
    return _crash(ctx, max(pods_of(ctx.observed, revision), key=_server_restarts))


def waiting_trouble(ctx: PassContext, placement: Placement | None, revision: str) -> Trouble | None:
    """Why replicas wait to start: nothing wrong with the revision itself. Without a ``placement`` it is another one
    than the spec asks for."""
    pods = pods_of(ctx.observed, revision)
    if away := unreachable(pods, ctx.obj.namespace):
        return away
    deployed = ctx.observed.deployment(revision)
    record = ctx.observed.records.get(deployed.fingerprint) if deployed else None
    if placement and record and record.outcome.engine:
        placement = pinned(placement, record.outcome.engine.device)
    image = f"server image {server_image(ctx.spec, ctx.config)}" if placement else "its server image"
    return pod_trouble(pods, placement, image, room(ctx, placement, pods)) or _refused(deployed)


def _refused(deployed: DeploymentView | None) -> Trouble | None:
    """Pods that could not even be made: a quota, mostly. No pod is there to say so."""
    if deployed is None or not deployed.refused:
        return None
    return Trouble(reason=Reason.POD_CANNOT_START,
                   message=f"Deployment {deployed.name} cannot make its pods: {deployed.refused.rstrip('.')}.")


def trouble(
    ctx: PassContext, deployment: DeploymentView | None, revision: str, placement: Placement | None
) -> Trouble | None:
    """Why replicas of the revision are missing, for good or for want of room."""
    return starting_trouble(ctx, deployment, revision) or waiting_trouble(ctx, placement, revision)


def _crash(ctx: PassContext, pod: PodView) -> Trouble:
    why = pod.terminated_reason or (f"exit code {pod.exit_code}" if pod.exit_code is not None else "no reason given")
    container = f", container {pod.failed_container}" if pod.failed_container else ""
    return Trouble(
        reason=Reason.CRASHING,
        message=f"Replica {pod.name} restarted {count(pod.restarts, 'time')} ({why}{container}); "
        f"{kubectl(f'logs --previous {pod.name}', ctx.obj.namespace)} says more.",
    )

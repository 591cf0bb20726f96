"""Why replicas are missing: what a revision's pods say of themselves, of their engine, and of room on nodes."""

from __future__ import annotations

from enginewright.core.commands import kubectl
from enginewright.core.conditions import Finding, no
from enginewright.core.context import PassContext
from enginewright.core.decide.jobs import Trouble, pod_trouble
from enginewright.core.decide.no_node import Asked
from enginewright.core.labels import CONTAINER_FITS, CONTAINER_VERIFY
from enginewright.core.observed import DeploymentView, EngineRecord, Observed, PodView
from enginewright.core.placement import Placement, pinned
from enginewright.core.planner.in_the_way import room
from enginewright.core.published import published
from enginewright.core.quantity import count
from enginewright.core.reasons import Reason
from enginewright.core.request import server_image
from enginewright.core.serving import pods_of
from enginewright_builder.contract import EXIT_TRANSIENT, EXIT_UNCACHEABLE, EXIT_USER, MISFITS, SMOKE_TEST_FAILED

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
            message=f"{deployment.available} of {count(deployment.spec_replicas, 'replica')} got ready before the "
                    f"deadline of Deployment {deployment.name}.{f' {waits.message}' if waits else ''}")
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
    if placement and record and (summary := published(record.outcome)):
        placement = pinned(placement, summary.device)
    image = f"server image {server_image(ctx.spec, ctx.config)}" if placement else "its server image"
    advice = room(ctx.observed.nodes, ctx.obj.namespace, placement, pods)
    asked_in = Asked.REPLICA if placement else Asked.ELSEWHERE
    return pod_trouble(pods, image, asked_in, placement, advice) or _refused(deployed)


def _refused(deployed: DeploymentView | None) -> Trouble | None:
    """Pods that could not even be made: a quota, mostly. No pod is there to say so."""
    if deployed is None or not deployed.refused:
        return None
    return Trouble(reason=Reason.POD_CANNOT_START,
                   message=f"Deployment {deployed.name} cannot make its pods: {deployed.refused.rstrip('.')}.")


def trouble(
    ctx: PassContext, deployment: DeploymentView | None, revision: str, placement: Placement | None
) -> Trouble | None:
    """Why replicas of the revision are missing, for good or for lack of room."""
    return starting_trouble(ctx, deployment, revision) or waiting_trouble(ctx, placement, revision)


def starting(ctx: PassContext, revision: str, placement: Placement | None, wanted: int) -> Finding:
    """How far a revision is that is getting ready, or why it does not."""
    deployed = ctx.serving.deployment(revision)
    if found := trouble(ctx, deployed, revision, placement):
        return no(found.reason, found.message)
    ready = deployed.available if deployed else 0
    return no(Reason.PROGRESSING, f"Revision {revision}: {ready} of {count(wanted, 'replica')} ready.")


def _crash(ctx: PassContext, pod: PodView) -> Trouble:
    why = pod.terminated_reason or (f"exit code {pod.exit_code}" if pod.exit_code is not None else "no reason given")
    container = f", container {pod.failed_container}" if pod.failed_container else ""
    return Trouble(
        reason=Reason.CRASHING,
        message=f"Replica {pod.name} restarted {count(pod.restarts, 'time')} ({why}{container}); "
        f"{kubectl(f'logs --previous {pod.name}', ctx.obj.namespace)} says more.",
    )


def refusing(pods: tuple[PodView, ...], revision: str, record: EngineRecord | None = None) -> tuple[PodView, ...]:
    """The replicas of ``revision`` whose verify container says that the engine is not what was published; without those
    that look for one that was there before ``record``."""
    return tuple(
        pod
        for pod in pods
        if pod.revision == revision
        and not pod.deleting
        and not pod.ready
        and pod.failed_container == CONTAINER_VERIFY
        and pod.exit_code == EXIT_USER
        and not (record and _looks_for_another(pod, record))
    )


def look_for_another(pods: tuple[PodView, ...], deployed: DeploymentView, record: EngineRecord) -> bool:
    """Whether the engine has been built again since ``deployed`` was written, and replicas refuse it for that."""
    if deployed.manifest_digest == record.outcome.manifest_digest:
        return False
    return any(_looks_for_another(pod, record) for pod in refusing(pods, deployed.revision))


def _looks_for_another(pod: PodView, record: EngineRecord) -> bool:
    return pod.manifest_digest not in ("", record.outcome.manifest_digest)


def fetches(pod: PodView) -> bool:
    """Whether a replica tries to fetch its engine and cannot, which says nothing of the engine: the bucket refuses, or
    does not answer. The kubelet goes on trying."""
    failed = pod.failed_container == CONTAINER_VERIFY and pod.exit_code == EXIT_TRANSIENT
    return failed and not pod.ready and not pod.deleting


def unreachable(pods: tuple[PodView, ...], namespace: str) -> Trouble | None:
    waiting = next(filter(fetches, pods), None)
    if waiting is None:
        return None
    words = _last_words(waiting, namespace)
    return Trouble(reason=Reason.STORE_UNREACHABLE, message=f"Replica {waiting.name} waits for its engine: {words}")


def refusal(
    pods: tuple[PodView, ...], revision: str, namespace: str, record: EngineRecord | None = None
) -> Trouble | None:
    """Why a replica will not serve: its engine is not what was published, or does not answer as it was proven to. One
    that looks for an engine that was there before ``record`` is about to be replaced, and says nothing of it."""
    found = refusing(pods, revision, record)
    if not found:
        return (_misfit(pods, revision) or _uncacheable(pods, revision, namespace)
                or _wrong_answers(pods, revision))
    words = _last_words(found[0], namespace)
    return Trouble(
        reason=Reason.ENGINE_REFUSED, message=f"Replica {found[0].name} refuses the engine before loading it: {words}"
    )


def _last_words(pod: PodView, namespace: str) -> str:
    """What the verify container left as its last words, or where to look for them."""
    log = kubectl(f"logs {pod.name} -c {CONTAINER_VERIFY}", namespace)
    return pod.terminated_message.strip() or f"{log} says why"


def _misfit(pods: tuple[PodView, ...], revision: str) -> Trouble | None:
    """A replica whose TensorRT or GPU is not what the engine was built with. Another build would give the same engine,
    so that none is begun."""
    for pod in pods:
        reason, _, words = pod.terminated_message.strip().partition(": ")
        alive = pod.revision == revision and not pod.deleting and not pod.ready
        if alive and pod.failed_container == CONTAINER_FITS and pod.exit_code == EXIT_USER and reason in MISFITS:
            where = f" on node {pod.node}" if pod.node else ""
            return Trouble(
                reason=reason, message=f"Replica {pod.name}{where} refuses the engine before loading it: {words}."
            )
    return None


def _uncacheable(pods: tuple[PodView, ...], revision: str, namespace: str) -> Trouble | None:
    """A replica whose engine is whole and not for a response cache. Another build would give the same interface."""
    for pod in pods:
        refused = pod.failed_container == CONTAINER_VERIFY and pod.exit_code == EXIT_UNCACHEABLE
        if refused and pod.revision == revision and not pod.deleting and not pod.ready:
            return Trouble(reason=Reason.CACHE_UNSAFE,
                           message=f"Replica {pod.name} does not start: {_last_words(pod, namespace)}.")
    return None


def _wrong_answers(pods: tuple[PodView, ...], revision: str) -> Trouble | None:
    """What a smoke test said that ended its server. Once is enough: answers do not mend themselves."""
    for pod in pods:
        failed = pod.terminated_message.startswith(SMOKE_TEST_FAILED)
        if failed and pod.revision == revision and not pod.deleting and not pod.ready:
            words = pod.terminated_message.removeprefix(SMOKE_TEST_FAILED).strip()
            return Trouble(
                reason=Reason.SMOKE_TEST_FAILED, message=f"Replica {pod.name} failed its smoke test: {words}."
            )
    return None

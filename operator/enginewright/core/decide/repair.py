"""What if the store has lost or damaged an engine that the index still lists?

Servers check before they load, and say so by the exit code of their verify container. Then the index entry goes and the
engine is built again, a few times. The new one has another manifest, by whose digest replicas know their engine: the
Deployment of the revision that is asked for is written anew, also that of another object that shares the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.commands import kubectl
from enginewright.core.conditions import Verdict, bad, parse_timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.jobs import Trouble
from enginewright.core.labels import CONTAINER_FITS, CONTAINER_VERIFY
from enginewright.core.manifests import record_name
from enginewright.core.observed import DeploymentView, EngineRecord, PodView
from enginewright.core.plan import Action, Delete
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import BuildStatus
from enginewright_builder.contract import EXIT_TRANSIENT, EXIT_USER, MISFITS, SMOKE_TEST_FAILED

MAX_REPAIRS = 2


@dataclass(frozen=True, kw_only=True)
class Repair:
    """With a ``verdict`` the record is given up in this pass; without one it stands."""

    verdict: Verdict | None = None
    memory: BuildStatus | None = None
    actions: tuple[Action, ...] = ()


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


def outdated(pods: tuple[PodView, ...], deployed: DeploymentView, record: EngineRecord) -> bool:
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
    said = _said(waiting, namespace)
    return Trouble(reason=Reason.STORE_UNREACHABLE, message=f"Replica {waiting.name} waits for its engine: {said}")


def refusal(
    pods: tuple[PodView, ...], revision: str, namespace: str, record: EngineRecord | None = None
) -> Trouble | None:
    """Why a replica will not serve: its engine is not what was published, or does not answer as it was proven to. One
    that looks for an engine that was there before ``record`` is about to be replaced, and says nothing of it."""
    found = refusing(pods, revision, record)
    if not found:
        return _misfit(pods, revision) or _wrong_answers(pods, revision)
    said = _said(found[0], namespace)
    return Trouble(
        reason=Reason.ENGINE_REFUSED, message=f"Replica {found[0].name} refuses the engine before loading it: {said}"
    )


def _said(pod: PodView, namespace: str) -> str:
    """What the verify container left as its last words, or where to look for them."""
    log = kubectl(f"logs {pod.name} -c {CONTAINER_VERIFY}", namespace)
    return pod.terminated_message.strip() or f"{log} says why"


def _misfit(pods: tuple[PodView, ...], revision: str) -> Trouble | None:
    """A replica whose TensorRT or GPU is not what the engine was built with. Another build would give the same engine,
    so that none is begun."""
    for pod in pods:
        reason, _, said = pod.terminated_message.strip().partition(": ")
        alive = pod.revision == revision and not pod.deleting and not pod.ready
        if alive and pod.failed_container == CONTAINER_FITS and pod.exit_code == EXIT_USER and reason in MISFITS:
            where = f" on node {pod.node}" if pod.node else ""
            return Trouble(
                reason=reason, message=f"Replica {pod.name}{where} refuses the engine before loading it: {said}."
            )
    return None


def _wrong_answers(pods: tuple[PodView, ...], revision: str) -> Trouble | None:
    """What a smoke test said that ended its server. Once is enough: answers do not mend themselves."""
    for pod in pods:
        failed = pod.terminated_message.startswith(SMOKE_TEST_FAILED)
        if failed and pod.revision == revision and not pod.deleting and not pod.ready:
            said = pod.terminated_message.removeprefix(SMOKE_TEST_FAILED).strip()
            return Trouble(
                reason=Reason.SMOKE_TEST_FAILED, message=f"Replica {pod.name} failed its smoke test: {said}."
            )
    return None


def repair_step(ctx: PassContext, revision: str, record: EngineRecord, memory: BuildStatus | None) -> Repair:
    found = refusing(ctx.observed.pods, revision, record)
    if not found or ctx.spec.suspend:
        return Repair()
    repairs = (memory.repairs if memory else None) or 0
    if stale := tuple(pod for pod in found if repairs and _before(pod, record)):
        return Repair(actions=tuple(_restart(pod) for pod in stale))
    if repairs >= MAX_REPAIRS:
        return Repair()
    return _give_up(ctx, record, memory or BuildStatus(fingerprint=record.fingerprint), repairs + 1, found[0])


def _before(pod: PodView, record: EngineRecord) -> bool:
    """Whether the pod is older than the engine as it is now: it looked at what was there before the repair."""
    built = parse_timestamp(record.outcome.built)
    return built is not None and pod.created is not None and pod.created <= built


def _restart(pod: PodView) -> Delete:
    return Delete(
        api_version="v1",
        kind="Pod",
        name=pod.name,
        why="it refused the engine that has been built again since; a new replica looks again",
    )


def _give_up(ctx: PassContext, record: EngineRecord, memory: BuildStatus, repairs: int, pod: PodView) -> Repair:
    """The finished build Job goes first: its old success would bring the record right back."""
    done = tuple(
        Delete(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why="its engine is lost")
        for job in ctx.observed.jobs
        if job.fingerprint == record.fingerprint and not job.deleting
    )
    drop = Delete(
        api_version="v1",
        kind="ConfigMap",
        name=record_name(record.fingerprint, ctx.spec.store.uri),
        why=f"replica {pod.name} found that the store has lost this engine",
    )
    message = (
        f"The store lost engine {record.fingerprint[:8]} or part of it ({pod.terminated_message.strip() or pod.name}); "
        f"it is built again ({repairs} of {MAX_REPAIRS})."
    )
    return Repair(
        verdict=bad(Condition.ENGINE_BUILT, Reason.ENGINE_LOST, message),
        memory=memory.model_copy(update={"repairs": repairs, "attempts": (memory.attempts or 0) + 1, "failures": None}),
        actions=(*done, drop),
    )

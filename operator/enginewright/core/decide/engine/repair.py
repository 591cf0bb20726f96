"""What if the store has lost or damaged an engine that the index still lists?

Servers check before they load, and say so by the exit code of their verify container. Then the index entry goes and the
engine is built again, a few times. The new one has another manifest, by whose digest replicas know their engine: the
Deployment of the revision that is asked for is written again, also that of another object that shares the engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.conditions import Finding, no, parse_timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.jobs import delete_job
from enginewright.core.decide.trouble import refusing
from enginewright.core.manifests import record_name
from enginewright.core.observed import EngineRecord, PodView
from enginewright.core.plan import Action, Delete
from enginewright.core.reasons import Reason
from enginewright.core.status import BuildStatus

MAX_REPAIRS = 2


@dataclass(frozen=True, kw_only=True)
class Repair:
    """With a ``finding`` the record is given up in this pass; without one it stands."""

    finding: Finding | None = None
    memory: BuildStatus | None = None
    actions: tuple[Action, ...] = ()


def repair_step(ctx: PassContext, revision: str, record: EngineRecord, memory: BuildStatus | None) -> Repair:
    found = refusing(ctx.observed.pods, revision, record)
    if not found or ctx.suspended:
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
        delete_job(job, "its engine is lost")
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
        finding=no(Reason.ENGINE_LOST, message),
        memory=memory.model_copy(update={"repairs": repairs, "attempts": (memory.attempts or 0) + 1, "failures": None}),
        actions=(*done, drop),
    )

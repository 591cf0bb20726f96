"""Second step: what is the source? Its content digests, found once by a small Job and remembered in status; without a
Job where the spec states them and an engine of just that is on record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core import labels
from enginewright.core.conditions import Verdict, bad, good, parse_timestamp, timestamp
from enginewright.core.context import LOOK_AGAIN, PassContext, earliest
from enginewright.core.decide import backoff
from enginewright.core.decide.jobs import JobFailure, job_failure, live, outdated, pod_trouble, podless, podless_in
from enginewright.core.decide.stated_source import stated, stated_source
from enginewright.core.manifests import request_configmap, resolve_job, resolve_job_name
from enginewright.core.observed import JobView
from enginewright.core.plan import Action, Create, Delete
from enginewright.core.reasons import Condition, Reason
from enginewright.core.request import build_key, resolve_request, source_claims, source_key, store_claim
from enginewright.core.status import FailureStatus, SourceStatus
from enginewright_builder.contract import ResolvedSource

RETRY_HINT = "Change the spec, or annotate the object with enginewright.io/retry=<anything new> to try again."


@dataclass(frozen=True, kw_only=True)
class SourceResult:
    verdict: Verdict
    memory: SourceStatus
    resolved: ResolvedSource | None = None
    actions: tuple[Action, ...] = ()
    requeue: float | None = None


def source_step(ctx: PassContext) -> SourceResult:
    key = source_key(ctx.spec)
    remembered = ctx.memory.source
    memory = remembered if remembered and remembered.key == key else SourceStatus(key=key)
    superseded = _delete_superseded(ctx, resolve_job_name(ctx.obj.name, key))
    if not memory.digest and (found := stated_source(ctx)):
        memory = _remembered(key, found)
    result = _resolved(memory, known(memory)) if memory.digest else _resolve(ctx, _forgive(ctx, memory))
    return SourceResult(
        verdict=result.verdict,
        memory=result.memory,
        resolved=result.resolved,
        actions=superseded + result.actions,
        requeue=result.requeue,
    )


def missing_claim(ctx: PassContext) -> tuple[str, str] | None:
    """Reason and message when a volume that a Job would mount does not exist."""
    for claim in source_claims(ctx.spec):
        if claim not in ctx.observed.claims:
            return Reason.VOLUME_MISSING, (
                f"PersistentVolumeClaim {claim}, which spec.source or its data names, does not "
                f"exist in namespace {ctx.obj.namespace}: create it or correct the uri."
            )
    return missing_store(ctx)


def missing_store(ctx: PassContext) -> tuple[str, str] | None:
    claim = store_claim(ctx.spec)
    if not claim or claim in ctx.observed.claims:  # of a bucket the Jobs say whether it is there
        return None
    return Reason.STORE_MISSING, (
        f"PersistentVolumeClaim {claim} of spec.store.uri {ctx.spec.store.uri} does not exist "
        f"in namespace {ctx.obj.namespace}: create it or correct the uri."
    )


def _remembered(key: str, found: ResolvedSource) -> SourceStatus:
    return SourceStatus(
        key=key,
        digest=found.digest,
        format=found.format,
        size_bytes=found.size_bytes,
        evaluation_digest=found.evaluation_digest or None,
        calibration_digest=found.calibration_digest or None,
    )


def known(memory: SourceStatus) -> ResolvedSource:
    return ResolvedSource(
        digest=memory.digest or "",
        format=memory.format or "",
        size_bytes=memory.size_bytes or 0,
        evaluation_digest=memory.evaluation_digest or "",
        calibration_digest=memory.calibration_digest or "",
    )


def _forgive(ctx: PassContext, memory: SourceStatus) -> SourceStatus:
    """Looking is cheap, so a spec that might cure them and any new retry annotation forget old errors. The time of the
    last failure stays: it tells an old Job from a new one."""
    if memory.retry in (None, ctx.retry) and memory.spec_key in (None, build_key(ctx.spec)):
        return memory
    return SourceStatus(key=memory.key, last_failure_time=memory.last_failure_time)


def _resolve(ctx: PassContext, memory: SourceStatus) -> SourceResult:
    job = ctx.observed.job(resolve_job_name(ctx.obj.name, memory.key))
    if job and not job.deleting and not _counted(job, memory):
        return _watch(ctx, job, memory)
    if memory.failure:
        return _failed(memory, memory.failure)
    return _start(ctx, job, memory)


def _counted(job: JobView, memory: SourceStatus) -> bool:
    """Whether this Job's failure is remembered already: the Job was there before the failure was."""
    last = parse_timestamp(memory.last_failure_time)
    return last is not None and job.created <= last and not live(job)


def _start(ctx: PassContext, old: JobView | None, memory: SourceStatus) -> SourceResult:
    attempts = memory.attempts or 0
    if ctx.asking and stated(ctx.spec):
        told = "The source's digests are stated: whether their engine is on record is known with what the server has."
        return SourceResult(verdict=bad(Condition.SOURCE_RESOLVED, Reason.RESOLVING, told), memory=memory)
    if missing := missing_claim(ctx):
        return SourceResult(verdict=bad(Condition.SOURCE_RESOLVED, *missing), memory=memory, requeue=LOOK_AGAIN)
    if ctx.spec.suspend:
        return SourceResult(
            memory=memory,
            verdict=bad(
                Condition.SOURCE_RESOLVED, Reason.SUSPENDED, "spec.suspend is true: the source is not looked at."
            ),
        )
    if wait := backoff.remaining(memory.last_failure_time, attempts, ctx.now):
        return SourceResult(verdict=_retrying(memory), memory=memory, requeue=wait)
    name = resolve_job_name(ctx.obj.name, memory.key)
    verdict = bad(Condition.SOURCE_RESOLVED, Reason.RESOLVING, f"Job {name} looks at {ctx.spec.source.uri}.")
    if old:
        clear = () if old.deleting else (_delete(old, "an earlier attempt, in the way of the next"),)
        return SourceResult(verdict=verdict, memory=memory, actions=clear, requeue=1.0)
    request = resolve_request(ctx.obj.name, ctx.spec, ctx.config, ctx.runtime)
    return SourceResult(
        verdict=verdict,
        memory=memory,
        actions=(
            Create(manifest=request_configmap(ctx.owner, name, request), why="the request of the resolve Job"),
            Create(
                manifest=resolve_job(ctx.owner, ctx.spec, ctx.config), why="the source's digests are not known"
            ),
        ),
    )


def _watch(ctx: PassContext, job: JobView, memory: SourceStatus) -> SourceResult:
    outcome = job.outcome
    if outcome and outcome.ok and outcome.source:
        return _resolved(_remembered(memory.key, outcome.source), outcome.source)
    if not live(job):
        failure = job_failure(
            job, ctx.obj.namespace, never_started=False, too_slow="check that the source can be read"
        )
        if failure.reason == Reason.BUILD_DEADLINE_EXCEEDED:
            # A volume may be slow for a while, and nothing in the spec gives it more time.
            failure = replace(failure, retry="limited")
        return _count(ctx, job, memory, failure)
    if ctx.spec.suspend:
        return SourceResult(
            memory=memory,
            actions=(_delete(job, "spec.suspend is true"),),
            verdict=bad(
                Condition.SOURCE_RESOLVED, Reason.SUSPENDED, "spec.suspend is true: the source is not looked at."
            ),
        )
    if outdated(job, resolve_job(ctx.owner, ctx.spec, ctx.config)):
        return _renew(job, memory)
    trouble = pod_trouble(job.pods, None, f"builder image {ctx.config.images.builder}") or podless(
        job, ctx.now, ctx.obj.namespace
    )
    verdict = (
        bad(Condition.SOURCE_RESOLVED, trouble.reason, trouble.message)
        if trouble
        else bad(Condition.SOURCE_RESOLVED, Reason.RESOLVING, f"Job {job.name} looks at {ctx.spec.source.uri}.")
    )
    requeue = None if job.pods else earliest(LOOK_AGAIN, podless_in(job, ctx.now))
    return SourceResult(verdict=verdict, memory=memory, requeue=requeue)


def _renew(job: JobView, memory: SourceStatus) -> SourceResult:
    why = "it has not begun, and would be made otherwise now"
    told = f"Waits for Job {job.name} to go, which had not begun, and is made anew as it is wanted now."
    request = Delete(api_version="v1", kind="ConfigMap", name=job.name, why=f"the request of a Job that goes: {why}",
                     spent=True)
    verdict = bad(Condition.SOURCE_RESOLVED, Reason.RESOLVING, told)
    return SourceResult(memory=memory, verdict=verdict, actions=(request, _delete(job, why)), requeue=1.0)


def _count(ctx: PassContext, job: JobView, memory: SourceStatus, failure: JobFailure) -> SourceResult:
    attempts = (memory.attempts or 0) + 1
    final = failure.retry in ("never", "spec") or (failure.retry == "limited" and attempts >= backoff.LIMIT)
    told = FailureStatus(reason=failure.reason, message=failure.message)
    memory = SourceStatus(
        key=memory.key,
        attempts=attempts,
        last_failure_time=timestamp(ctx.now),
        retry=ctx.retry,
        spec_key=build_key(ctx.spec),
        failure=told if final else None,
        last_failure=told,
    )
    return _failed(memory, told) if final else _start(ctx, job, memory)


def _retrying(memory: SourceStatus) -> Verdict:
    attempts = memory.attempts or 0
    why = memory.last_failure.message if memory.last_failure else "The last attempt failed."
    when = backoff.next_attempt(memory.last_failure_time, attempts)
    return bad(Condition.SOURCE_RESOLVED, Reason.RESOLVE_RETRYING, f"{why} Attempt {attempts + 1} starts {when}.")


def _failed(memory: SourceStatus, failure: FailureStatus) -> SourceResult:
    return SourceResult(
        memory=memory, verdict=bad(Condition.SOURCE_RESOLVED, failure.reason, f"{failure.message} {RETRY_HINT}")
    )


def _resolved(memory: SourceStatus, found: ResolvedSource) -> SourceResult:
    return SourceResult(
        memory=memory,
        resolved=found,
        verdict=good(
            Condition.SOURCE_RESOLVED,
            Reason.RESOLVED,
            f"{found.format}, {found.size_bytes / 1e6:.1f} MB, {found.digest}.",
        ),
    )


def _delete_superseded(ctx: PassContext, name: str) -> tuple[Action, ...]:
    """Resolve Jobs of a source that is no longer asked for."""
    return tuple(
        _delete(job, "the source changed")
        for job in ctx.observed.jobs
        if job.step in ("", labels.COMPONENT_RESOLVE) and not job.fingerprint and job.name != name and not job.deleting
    )


def _delete(job: JobView, why: str) -> Delete:
    return Delete(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why=why)

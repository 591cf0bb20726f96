"""The source stage: what is it? Its content digests, found once by a small Job and remembered in status.

No Job is needed where the spec names all content by digests and an engine of just these is on record: the engine was
built from it, which its build Job checked, and the record tells the rest, format and size. A resolve Job runs all the
same where the spec asks for a signature, which only that Job checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from enginewright.core import labels
from enginewright.core.conditions import Verdict, bad, good, parse_timestamp, timestamp
from enginewright.core.context import LOOK_AGAIN, PassContext, earliest
from enginewright.core.decide import jobs
from enginewright.core.decide.jobs import JobFailure, delete_job
from enginewright.core.decide.no_node import Asked
from enginewright.core.decide.slice import fingerprints
from enginewright.core.manifests import begun_under, request_configmap, resolve_job, resolve_job_name
from enginewright.core.observed import JobView
from enginewright.core.plan import Action, Create
from enginewright.core.reasons import Condition, Reason
from enginewright.core.request import build_key, resolve_request, source_claims, source_key, store_claim
from enginewright.core.spec import Spec
from enginewright.core.spec.source import Format
from enginewright.core.spec.tasks import generates
from enginewright.core.status import CheckpointStatus, FailureStatus, SourceStatus
from enginewright_builder.contract import CAUSAL_FORMAT, ResolvedSource

# Few enough to try each where the spec leaves the format open.
FORMATS = tuple(one for one in get_args(Format) if one != "auto")


@dataclass(frozen=True, kw_only=True)
class SourceResult:
    verdict: Verdict
    memory: SourceStatus
    resolved: ResolvedSource | None = None
    actions: tuple[Action, ...] = ()
    requeue: float | None = None


def resolve(ctx: PassContext) -> SourceResult:
    key = source_key(ctx.spec)
    remembered = ctx.memory.source
    memory = remembered if remembered and remembered.key == key else SourceStatus(key=key)
    if not memory.digest and (found := _stated(ctx)):
        memory = _remembered(key, found)
    result = _resolved(memory, known(memory)) if memory.digest else _resolve(ctx, _forgive(ctx, memory))
    return replace(result, actions=_delete_superseded(ctx, resolve_job_name(ctx.obj.name, key)) + result.actions)


def missing_claim(ctx: PassContext) -> tuple[str, str] | None:
    """Reason and message when a volume that a Job would mount does not exist."""
    for claim in source_claims(ctx.spec):
        if claim not in ctx.observed.claims:
            return Reason.VOLUME_MISSING, (
                f"PersistentVolumeClaim {claim}, which spec.source or its data names, does not exist in namespace "
                f"{ctx.obj.namespace}: create it or correct the uri.")
    return missing_store(ctx)


def missing_store(ctx: PassContext) -> tuple[str, str] | None:
    claim = store_claim(ctx.spec)
    if not claim or claim in ctx.observed.claims:  # of a bucket the Jobs say whether it is there
        return None
    return Reason.STORE_MISSING, (
        f"PersistentVolumeClaim {claim} of spec.store.uri {ctx.spec.store.uri} does not exist in namespace "
        f"{ctx.obj.namespace}: create it or correct the uri.")


def stated_fingerprints(ctx: PassContext) -> frozenset[str]:
    """Of the engines on whose records a source that the spec states may be."""
    return frozenset().union(*(fingerprints(ctx, source) for source in _candidates(ctx.spec)))


def _stated(ctx: PassContext) -> ResolvedSource | None:
    """What the source is by the record of its engine; None where a Job has to look at it."""
    for source in _candidates(ctx.spec):
        for fingerprint in sorted(fingerprints(ctx, source)):
            record = ctx.observed.records.get(fingerprint)
            found = record.outcome.source if record else None
            if found and found.digest == source.digest:
                return found
    return None


def _candidates(spec: Spec) -> Iterator[ResolvedSource]:
    """None unless the spec names all of its content by digests, and asks for no signature."""
    evaluation, calibration = spec.accuracy.evaluation, spec.engine.calibration
    digests = [spec.source.digest, *(one.digest for one in (evaluation, calibration) if one),
               *(one.digest for one in (*spec.engine.checkpoints, *spec.engine.drafts))]
    if not all(digests) or spec.source.signature is not None:
        return
    formats = FORMATS if spec.source.format == "auto" else (spec.source.format,)
    for name in (CAUSAL_FORMAT,) if generates(spec) else formats:
        yield ResolvedSource(
            digest=spec.source.digest, format=name, size_bytes=0,
            evaluation_digest=evaluation.digest if evaluation else "",
            calibration_digest=calibration.digest if calibration else "",
            checkpoint_digests={one.name: one.digest for one in spec.engine.checkpoints},
            draft_digests={one.name: one.digest for one in spec.engine.drafts},
        )


def _remembered(key: str, found: ResolvedSource) -> SourceStatus:
    return SourceStatus(
        key=key, digest=found.digest, format=found.format, size_bytes=found.size_bytes,
        evaluation_digest=found.evaluation_digest or None, calibration_digest=found.calibration_digest or None,
        checkpoints=_by_name(found.checkpoint_digests), drafts=_by_name(found.draft_digests))


def _by_name(digests: Mapping[str, str]) -> tuple[CheckpointStatus, ...] | None:
    return tuple(CheckpointStatus(name=name, digest=digest) for name, digest in sorted(digests.items())) or None


def known(memory: SourceStatus) -> ResolvedSource:
    return ResolvedSource(
        digest=memory.digest or "", format=memory.format or "", size_bytes=memory.size_bytes or 0,
        evaluation_digest=memory.evaluation_digest or "", calibration_digest=memory.calibration_digest or "",
        checkpoint_digests={one.name: one.digest for one in memory.checkpoints or ()},
        draft_digests={one.name: one.digest for one in memory.drafts or ()})


def _forgive(ctx: PassContext, memory: SourceStatus) -> SourceStatus:
    """Looking is cheap, so a spec that might cure them and any new retry annotation forget old errors. The time of the
    last failure stays: it tells an old Job from a new one."""
    if not jobs.forgiven(ctx, memory):
        return memory
    return SourceStatus(key=memory.key, last_failure_time=memory.last_failure_time)


def _resolve(ctx: PassContext, memory: SourceStatus) -> SourceResult:
    job = ctx.observed.job(resolve_job_name(ctx.obj.name, memory.key))
    if job and not job.deleting and not _counted(job, memory):
        outcome = job.outcome
        if outcome and outcome.ok and outcome.source:
            return _resolved(_remembered(memory.key, outcome.source), outcome.source)
        return _watch(ctx, job, memory) if job.live else _count(ctx, job, memory)
    if memory.failure:
        return _failed(ctx, memory, memory.failure)
    return _start(ctx, job, memory)


def _counted(job: JobView, memory: SourceStatus) -> bool:
    """Whether this Job's failure is remembered already: the Job was there before the failure was."""
    last = parse_timestamp(memory.last_failure_time)
    return last is not None and job.created <= last and not job.live


def _says(memory: SourceStatus, reason: str, message: str, actions: tuple[Action, ...] = (), *,
          requeue: float | None = None) -> SourceResult:
    return SourceResult(verdict=bad(Condition.SOURCE_RESOLVED, reason, message), memory=memory, actions=actions,
                        requeue=requeue)


def _suspended(ctx: PassContext, memory: SourceStatus, job: JobView | None) -> SourceResult | None:
    """Starts no Job, and stops ``job``, which runs; None where the spec is not suspended."""
    if not ctx.suspended:
        return None
    stop = (delete_job(job, "spec.suspend is true"),) if job else ()
    return _says(memory, Reason.SUSPENDED, "spec.suspend is true: the source is not looked at.", stop)


def _looks(ctx: PassContext, name: str) -> str:
    return f"Job {name} looks at {ctx.spec.source.uri}."


def _start(ctx: PassContext, old: JobView | None, memory: SourceStatus) -> SourceResult:
    if ctx.asking and any(True for _ in _candidates(ctx.spec)):
        return _says(memory, Reason.RESOLVING, "The source's digests are stated: whether their engine is on record is "
                     "known with what the server has.")
    if missing := missing_claim(ctx):
        return _says(memory, *missing, requeue=LOOK_AGAIN)
    if suspended := _suspended(ctx, memory, None):
        return suspended
    attempts = memory.attempts or 0
    if wait := jobs.remaining(memory.last_failure_time, attempts, ctx.now):
        why = memory.last_failure.message if memory.last_failure else "The last attempt failed."
        when = jobs.next_attempt(memory.last_failure_time, attempts)
        return _says(memory, Reason.RESOLVE_RETRYING, f"{why} Attempt {attempts + 1} starts {when}.", requeue=wait)
    name = resolve_job_name(ctx.obj.name, memory.key)
    if old:
        clear = () if old.deleting else (delete_job(old, "an earlier attempt, in the way of the next"),)
        return _says(memory, Reason.RESOLVING, _looks(ctx, name), clear, requeue=1.0)
    request = resolve_request(ctx.obj.name, ctx.spec, ctx.config, ctx.runtime,
                              namespace=ctx.obj.namespace)
    return _says(memory, Reason.RESOLVING, _looks(ctx, name), (
        Create(manifest=request_configmap(ctx.owner, name, request), why="the request of the resolve Job"),
        Create(manifest=begun_under(resolve_job(ctx.owner, ctx.spec, ctx.config), ctx.retry),
               why="the source's digests are not known"),
    ))


def _watch(ctx: PassContext, job: JobView, memory: SourceStatus) -> SourceResult:
    if suspended := _suspended(ctx, memory, job):
        return suspended
    if jobs.outdated(job, resolve_job(ctx.owner, ctx.spec, ctx.config)):
        return _says(memory, Reason.RESOLVING, *jobs.renewed(job), requeue=1.0)
    trouble = (jobs.pod_trouble(job.pods, f"builder image {ctx.config.images.builder}", Asked.SMALL_JOB)
               or jobs.podless(job, ctx.now, ctx.obj.namespace))
    requeue = None if job.pods else earliest(LOOK_AGAIN, jobs.podless_in(job, ctx.now))
    if trouble:
        return _says(memory, trouble.reason, trouble.message, requeue=requeue)
    return _says(memory, Reason.RESOLVING, _looks(ctx, job.name), requeue=requeue)


def _failure(ctx: PassContext, job: JobView) -> JobFailure:
    failure = jobs.job_failure(job, ctx.obj.namespace, never_started=False,
                               too_slow="check that the source can be read")
    # A volume may be slow for a while, and nothing in the spec gives it more time.
    late = failure.reason == Reason.BUILD_DEADLINE_EXCEEDED
    return replace(failure, retry="limited") if late else failure


def _count(ctx: PassContext, job: JobView, memory: SourceStatus) -> SourceResult:
    failure, attempts = _failure(ctx, job), (memory.attempts or 0) + 1
    status = FailureStatus(reason=failure.reason, message=failure.message)
    final = failure.final(attempts)
    memory = SourceStatus(
        key=memory.key, attempts=attempts, last_failure_time=timestamp(ctx.now), retry=job.retry,
        spec_key=build_key(ctx.spec), failure=status if final else None, last_failure=status)
    memory = _forgive(ctx, memory)
    return _failed(ctx, memory, memory.failure) if memory.failure else _start(ctx, job, memory)


def _failed(ctx: PassContext, memory: SourceStatus, failure: FailureStatus) -> SourceResult:
    return _says(memory, failure.reason, f"{failure.message} {ctx.retry_hint}")


def _resolved(memory: SourceStatus, found: ResolvedSource) -> SourceResult:
    verdict = good(Condition.SOURCE_RESOLVED, Reason.RESOLVED,
                   f"{found.format}, {found.size_bytes / 1e6:.1f} MB, {found.digest}.")
    return SourceResult(memory=memory, resolved=found, verdict=verdict)


def _delete_superseded(ctx: PassContext, name: str) -> tuple[Action, ...]:
    """Resolve Jobs of a source that is no longer asked for."""
    return tuple(
        delete_job(job, "the source changed") for job in ctx.observed.jobs
        if job.step in ("", labels.COMPONENT_RESOLVE) and not job.fingerprint and job.name != name and not job.deleting)

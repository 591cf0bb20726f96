"""The build Job of one fingerprint: start it, follow it, take its result, or try again.

Names are deterministic (``<om>-build-<fp8>-<attempt>``) and at most one build Job of an object is alive, so that an
operator that is killed anywhere goes on with the Job that is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core import labels
from enginewright.core.access import store_access
from enginewright.core.applying import claim as device_claim
from enginewright.core.build_steps import in_words
from enginewright.core.commands import kubectl
from enginewright.core.conditions import Finding, no, yes
from enginewright.core.context import LOOK_AGAIN, PassContext, earliest
from enginewright.core.decide import attempts
from enginewright.core.decide.engine import lease
from enginewright.core.decide.jobs import (
    JobFailure,
    delete_job,
    job_failure,
    outdated,
    pod_end,
    pod_trouble,
    podless,
    podless_in,
    ran_out,
    remaining,
    renewed,
    server_gave_up,
    spent,
    taken_away,
)
from enginewright.core.decide.no_node import Asked
from enginewright.core.decide.source import missing_claim
from enginewright.core.manifests import (
    begun_under,
    build_deadline,
    build_job,
    build_job_name,
    engine_record,
    request_configmap,
    signing_secret,
)
from enginewright.core.observed import ClaimView, EngineRecord, JobView
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, Create, MakeKey, Manifest, Replace
from enginewright.core.planner.in_the_way import room
from enginewright.core.published import backend_of, published
from enginewright.core.reasons import Reason
from enginewright.core.request import server_image, store_claim
from enginewright.core.spec.base import in_bucket
from enginewright.core.spec.tasks import generates
from enginewright.core.status import BuildStatus
from enginewright_builder.contract import SIGNING_KEY, BuildRequest, CandidateSummary, Outcome, Progress, proves

# Progress is read from the pod's log, which no watch reports.
FOLLOW = 5.0
TOO_SLOW = "raise spec.engine.buildBudgetSeconds"


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """``holds`` says that this object builds: it keeps or takes the build's lease."""

    finding: Finding
    memory: BuildStatus
    record: EngineRecord | None = None
    candidates: tuple[CandidateSummary, ...] = ()
    actions: tuple[Action, ...] = ()
    requeue: float | None = None
    holds: bool = False


@dataclass(frozen=True, kw_only=True)
class _Build:
    """What the steps below share."""

    ctx: PassContext
    request: BuildRequest
    fingerprint: str
    placement: Placement
    memory: BuildStatus

    @property
    def attempt(self) -> int:
        return (self.memory.attempts or 0) + 1

    @property
    def namespace(self) -> str:
        return self.ctx.obj.namespace

    @property
    def name(self) -> str:
        return build_job_name(self.ctx.obj.name, self.fingerprint, self.attempt)

    def says(self, reason: str, message: str, memory: BuildStatus | None = None, *, actions: tuple[Action, ...] = (),
             requeue: float | None = None) -> BuildResult:
        return BuildResult(finding=no(reason, message), memory=memory or self.memory, actions=actions, requeue=requeue)


def build_step(
    ctx: PassContext, request: BuildRequest, fingerprint: str, placement: Placement, memory: BuildStatus | None
) -> BuildResult:
    build = _Build(
        ctx=ctx,
        request=request,
        fingerprint=fingerprint,
        placement=placement,
        memory=attempts.catch_up(ctx, attempts.forgive(ctx, memory or BuildStatus(fingerprint=fingerprint))),
    )
    job = ctx.observed.job(build.name)
    if job is None or job.deleting:
        return _start(build)
    if job.store_uri not in ("", ctx.spec.store.uri):
        return _clear(build, job)
    if job.outcome and job.outcome.ok and published(job.outcome):
        return _finish(build, job, job.outcome)
    ended = ran_out(job, TOO_SLOW, ctx.obj.namespace) or server_gave_up(job)
    return _follow(build, job) if job.live and not ended else _fail(build, job)


def _clear(build: _Build, job: JobView) -> BuildResult:
    """The same engine was built for another store: what that Job says, ended or not, is not of this one."""
    why = f"it builds into {job.store_uri}, and spec.store.uri changed"
    return _take_away(build, *taken_away(job, why, f"it built into {job.store_uri}"))


def _take_away(build: _Build, message: str, actions: tuple[Action, ...]) -> BuildResult:
    memory = build.memory.model_copy(update={"job": None, "step": None, "percent": None})
    return build.says(Reason.BUILD_PENDING, message, memory, actions=actions, requeue=1.0)


def _start(build: _Build) -> BuildResult:
    ctx, memory = build.ctx, build.memory
    if memory.failure:
        return build.says(memory.failure.reason, f"{memory.failure.message} {ctx.retry_hint}")
    if suspended := _suspended(build, None):
        return suspended
    if missing := missing_claim(ctx):
        return build.says(*missing, requeue=LOOK_AGAIN)
    if wait := remaining(memory.last_failure_time, memory.failures or 0, ctx.now):
        return build.says(Reason.BUILD_RETRYING, attempts.retrying(memory), requeue=wait)
    others = [job for job in ctx.observed.jobs if job.fingerprint and (job.live or (job.deleting and job.active))]
    if others:
        return build.says(Reason.BUILD_PENDING, f"Waits for Job {others[0].name} to stop.", requeue=2.0)
    if elsewhere := lease.builder(ctx, build.fingerprint):
        return build.says(
            Reason.WAITING_FOR_ENGINE,
            f"OptimisedModel {elsewhere.holder_name} builds engine {build.fingerprint[:8]}, which this one asks for, "
            f"too; it is taken when it is published.",
            memory.model_copy(update={"job": None, "step": None, "percent": None}),
            requeue=lease.ASK_AGAIN,
        )
    return replace(_create(build, memory), holds=True)


def _suspended(build: _Build, job: JobView | None) -> BuildResult | None:
    """Starts no Job, and stops ``job``, which runs; None where the spec is not suspended."""
    if not build.ctx.suspended:
        return None
    if job is None:
        return build.says(Reason.SUSPENDED, "spec.suspend is true: no build is started.")
    return build.says(Reason.SUSPENDED, "spec.suspend is true: the build was stopped.",
                      build.memory.model_copy(update={"job": job.name}),
                      actions=(delete_job(job, "spec.suspend is true"),))


def _create(build: _Build, memory: BuildStatus) -> BuildResult:
    ctx = build.ctx
    return build.says(
        Reason.BUILD_PENDING,
        f"Job {build.name} waits for its pod to start.",
        memory.model_copy(update={"job": build.name, "step": None, "percent": None}),
        actions=(
            *lease.hold(ctx, build.fingerprint, f"Job {build.name} is to build it"),
            *device_claim(ctx, build.placement),
            MakeKey(manifest=signing_secret(ctx.obj.namespace), entry=SIGNING_KEY,
                    why="build Jobs sign engines with it"),
            Create(manifest=request_configmap(ctx.owner, build.name, build.request),
                   why="the request of the build Job"),
            Create(manifest=begun_under(_job(build), ctx.retry),
                   why=f"no engine {build.fingerprint[:8]} in the store"),
        ),
    )


def _job(build: _Build) -> Manifest:
    ctx = build.ctx
    return build_job(ctx.owner, ctx.spec, build.placement, build.fingerprint, build.attempt, ctx.config)


def _follow(build: _Build, job: JobView) -> BuildResult:
    memory = build.memory.model_copy(update={"job": job.name})
    if suspended := _suspended(build, job):
        return suspended
    if outdated(job, _job(build)):
        return replace(_take_away(build, *renewed(job)), holds=True)
    return _keep_hold(build, job, _where(build, job, memory))


def _keep_hold(build: _Build, job: JobView, result: BuildResult) -> BuildResult:
    """Its Job lives, so the build is this object's, and it comes back in time to say so again."""
    actions: tuple[Action, ...] = ()
    if lease.builder(build.ctx, build.fingerprint) is None:
        actions = lease.hold(build.ctx, build.fingerprint, f"Job {job.name} builds it")
    return replace(
        result, holds=True, actions=result.actions + actions, requeue=earliest(result.requeue, lease.RENEW_SECONDS)
    )


def _where(build: _Build, job: JobView, memory: BuildStatus) -> BuildResult:
    if job.suspended:
        queue = build.ctx.spec.engine.queue_name
        where = f"Kueue queue {queue} admits it" if queue else "it is resumed"
        return build.says(Reason.WAITING_FOR_QUEUE, f"Job {job.name} is suspended until {where}.", memory)
    return replace(_pods_now(build, job, memory), requeue=earliest(FOLLOW, podless_in(job, build.ctx.now)))


def _pods_now(build: _Build, job: JobView, memory: BuildStatus) -> BuildResult:
    """What the Job's pods are doing."""
    image = (f"builder image {build.ctx.config.images.builder}, "
             f"server image {server_image(build.ctx.spec, build.ctx.config)}")
    if trouble := pod_trouble(job.pods, image, Asked.BUILD, build.placement, _room(build, job)):
        return build.says(trouble.reason, trouble.message, memory)
    if none := podless(job, build.ctx.now, build.namespace, queued=bool(build.ctx.spec.engine.queue_name)):
        return build.says(none.reason, none.message, memory)
    if job.progress:
        return _progress(build, job, job.progress, memory)
    if ended := pod_end(job.pods, TOO_SLOW, build.namespace):
        return build.says(Reason.BUILD_RETRYING, f"{ended.message} Job {job.name} starts another pod.", memory)
    if any(pod.phase == "Running" for pod in job.pods):
        return build.says(Reason.BUILDING, f"Job {job.name} has begun.", memory)
    return build.says(Reason.BUILD_PENDING, f"Job {job.name} waits for its pod to start.", memory)


def _room(build: _Build, job: JobView) -> str:
    return room(build.ctx.observed.nodes, build.namespace, build.placement, job.pods)


def _progress(build: _Build, job: JobView, progress: Progress, memory: BuildStatus) -> BuildResult:
    """Said again when the step changes, not for every line of the log."""
    percent = int(progress.fraction * 100)
    if memory.step == progress.step and memory.percent is not None:
        percent = memory.percent
    memory = memory.model_copy(update={"step": progress.step, "percent": percent})
    where = f"{in_words(progress.step)} ({percent} %)"
    if ended := pod_end(job.pods, TOO_SLOW, build.namespace):
        return build.says(
            Reason.BUILD_RETRYING, f"{ended.message} Another pod builds again: {where}.", memory
        )
    follow = kubectl(f"logs -f job/{job.name}{_container(build, progress)}", build.namespace)
    return build.says(Reason.BUILDING, f"{where}; follow with {follow}.", memory)


def _container(build: _Build, progress: Progress) -> str:
    """Which one to follow."""
    served = proves(progress.step, generates=generates(build.ctx.spec))
    return f" -c {labels.CONTAINER_PROVE if served else labels.CONTAINER_BUILD}"


def _finish(build: _Build, job: JobView, outcome: Outcome) -> BuildResult:
    """Writes the record and goes on in the same pass: the engine can be served."""
    ctx, memory = build.ctx, build.memory.model_copy(update={"job": job.name, "step": None, "percent": None})
    if outcome.fingerprint not in ("", build.fingerprint):
        return _count(build, job, JobFailure(
            reason=Reason.BUILD_FAILED, retry="spec",
            message=f"Job {job.name} built {outcome.fingerprint[:8]} where {build.fingerprint[:8]} was asked for: "
                    f"operator and builder image are of different releases."))
    claim = ctx.observed.claims.get(store_claim(ctx.spec))
    if claim is None and not in_bucket(ctx.spec.store.uri):
        return build.says(*(missing_claim(ctx) or (Reason.STORE_MISSING, "")), memory, requeue=LOOK_AGAIN)
    outcome = replace(outcome, fingerprint=build.fingerprint)
    record = EngineRecord(fingerprint=build.fingerprint, store_claim=store_claim(ctx.spec), outcome=outcome,
                          store_uri=ctx.spec.store.uri)
    return BuildResult(
        finding=present(record, outcome.cache_hit),
        record=record,
        memory=memory.model_copy(update=dict.fromkeys(
            ("failure", "failures", "disruptions", "last_failure", "last_failure_time", "retry", "spec_key"))),
        actions=(spent(job.name, "the request of a finished build"), _record(build, job, claim, outcome)),
    )


def _record(build: _Build, job: JobView, claim: ClaimView | None, outcome: Outcome) -> Action:
    """One of the same engine that is there already was retired, because no object had asked for it. It is replaced
    in one write, so that others that want the engine do not build it meanwhile."""
    ctx = build.ctx
    record = engine_record(ctx.obj.namespace, claim, ctx.spec.store.uri, outcome, store_access(ctx.spec))
    old = ctx.observed.records.get(build.fingerprint)
    if old is None:
        return Create(manifest=record, why=f"Job {job.name} published the engine")
    metadata = {**record["metadata"], "annotations": {**record["metadata"]["annotations"], labels.UNREFERENCED: None}}
    return Replace(manifest={**record, "metadata": metadata}, version=old.version,
                   why=f"the engine was retired, and Job {job.name} found or built it for who wants it again")


def _fail(build: _Build, job: JobView) -> BuildResult:
    """A Job that lives has ended for us: its pod ran out of time, or its server does not start. No rule of a
    podFailurePolicy sees either: the kubelet tells the first as the pod's reason alone, without a condition, and starts
    the server forever."""
    waiting = attempts.never_started(build.ctx, build.memory)
    candidates = job.outcome.candidates if job.outcome else ()
    failure = job_failure(job, build.namespace, never_started=waiting, too_slow=TOO_SLOW)
    raised = 0 < job.deadline < build_deadline(build.ctx.spec, build.ctx.config)
    if raised and failure.reason == Reason.BUILD_DEADLINE_EXCEEDED:
        # A user raised the budget while it ran, for the same engine: the remedy is there already.
        failure = replace(failure, retry="always")
    failed = _count(build, job, failure)
    why = "its server does not start" if server_gave_up(job) else "its pod ran out of time, as another one would"
    stop = (delete_job(job, why),) if job.live else ()
    return replace(failed, candidates=candidates, actions=(*stop, *failed.actions))


def _count(build: _Build, job: JobView, failure: JobFailure) -> BuildResult:
    """Remembers the failure and says what the next pass will say of it."""
    done = spent(build.name, "the request of a build that failed")
    result = _start(replace(build, memory=attempts.count(build.ctx, build.memory, failure, job.retry)))
    return replace(result, actions=(done, *result.actions))


def present(record: EngineRecord, cache_hit: bool) -> Finding:
    """What is said of an engine that is there."""
    serving = record.outcome.serving
    return _present(record, cache_hit).adding(
        "The model takes no batches, so the server joins no requests; the build report says why, and what to change."
        if serving and not serving.max_batch_size else "")


def _present(record: EngineRecord, cache_hit: bool) -> Finding:
    summary, engine = published(record.outcome), record.outcome.engine
    kind = "language model" if record.outcome.generate else "engine"
    what = f"{backend_of(summary)} {summary.precision} {kind}" if summary else kind
    if engine and engine.fallback:
        return yes(Reason.SOURCE_SERVED, (
            f"No candidate may be served ({engine.fallback}; see status.candidates): the source model itself is, as "
            f"spec.engine.fallback allows, as {what} {record.fingerprint[:8]} with {engine.speedup:.2f} times "
            f"the throughput of the source as it is."))
    if cache_hit:
        return yes(Reason.CACHE_HIT,
                   f"The store had the {what} {record.fingerprint[:8]} already: nothing was built.")
    return yes(Reason.BUILT,
               f"Built the {what} {record.fingerprint[:8]} in {record.outcome.build_seconds:.0f} s.")

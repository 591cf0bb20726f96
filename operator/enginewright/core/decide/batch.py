"""The pass of an object with ``spec.batch``: its engine as of every model, then one Indexed Job, and no replicas.

A run is its input, output and shards. Once it is complete it is never begun again, whatever becomes of the engine.
While its Job runs nothing is looked up or built. A change of the spec, a new retry annotation and ``suspend`` stop the
Job; another one goes on with the rows that have no answers, as answers lie in the output and not in the Job
(docs/adr/0044-offline-runs.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from enginewright.core import conditions, labels
from enginewright.core.applying import claim as device_claim
from enginewright.core.conditions import Finding, Verdict, merge, no, parse_timestamp, yes
from enginewright.core.context import LOOK_AGAIN, PassContext, earliest
from enginewright.core.cost import replica_price
from enginewright.core.decide import blocks
from enginewright.core.decide.conditions.evidence import accuracy, objective
from enginewright.core.decide.conditions.readiness import of_run
from enginewright.core.decide.engine.obtain import EngineResult, obtain
from enginewright.core.decide.jobs import delete_job, explain, pod_end, pod_trouble, podless
from enginewright.core.decide.no_node import Asked
from enginewright.core.decide.server_step import ServerResult, informed, server_step
from enginewright.core.decide.source import SourceResult, resolve
from enginewright.core.events import transitions
from enginewright.core.manifests import batch_job, batch_job_name, batch_key
from enginewright.core.observed import JobView
from enginewright.core.plan import Action, Create, Plan
from enginewright.core.published import published
from enginewright.core.quantity import count
from enginewright.core.reasons import Reason
from enginewright.core.request import claim_of, server_image
from enginewright.core.spec.batch import BatchSpec
from enginewright.core.status import BatchStatus, FailureStatus
from enginewright_builder.contract import shard_range

_HOUR = 3600.0


def decide_batch(ctx: PassContext, batch: BatchSpec) -> Plan:
    key = batch_key(batch)
    memory = ctx.memory.batch if ctx.memory.batch and ctx.memory.batch.key == key else BatchStatus(key=key)
    memory = memory.model_copy(update={"shards": batch.shards})
    job = ctx.observed.job(memory.job) if memory.job else None
    old = _superseded(ctx, memory.job)
    if memory.completion_time:
        return _plan(ctx, memory, _complete(memory), old)
    if job and not job.deleting:
        memory = _seen(memory, job)
        if job.succeeded:
            memory = _priced(ctx, memory, batch, job)
            return _plan(ctx, memory, _complete(memory), old)
        if _outdated(ctx, memory):
            return _stopped(ctx, memory, job, old)
        if job.failed:
            if lost := _lost(ctx, batch, memory, job, old):
                return lost
            memory = memory.model_copy(update={"failure": _failure(ctx, job)})
    if memory.failure and not _outdated(ctx, memory):
        return _plan(ctx, memory, no(Reason.BATCH_FAILED, memory.failure.message), old)
    if job and job.deleting:
        return _plan(ctx, memory, _running(f"Waits for Job {job.name} to stop."), old, requeue=2.0)
    if job:
        return _plan(ctx, memory, _follow(ctx, memory, job), old, requeue=LOOK_AGAIN)
    return _walk(ctx, batch, memory, old)


def _superseded(ctx: PassContext, name: str | None) -> tuple[Action, ...]:
    """Jobs of runs that are not asked for any more."""
    return tuple(delete_job(job, "spec.batch asks for another run") for job in ctx.observed.jobs
                 if job.step == labels.COMPONENT_BATCH and name and job.name != name and not job.deleting)


def _outdated(ctx: PassContext, memory: BatchStatus) -> bool:
    """Whether the user has changed something since the Job was made, so that another one may fare better."""
    return ctx.suspended or (memory.generation, memory.retry) != (ctx.obj.generation, ctx.retry)


def _stopped(ctx: PassContext, memory: BatchStatus, job: JobView, old: tuple[Action, ...]) -> Plan:
    why = "spec.suspend is true" if ctx.suspended else "the spec or the retry annotation was changed"
    found = _suspended() if ctx.suspended else _running(f"Job {job.name} is stopped, as {why}; another one goes on.")
    # What failed is forgiven: the Job that comes is another try.
    memory = memory.model_copy(update={"failure": None})
    return _plan(ctx, memory, found, (*old, delete_job(job, why)), requeue=2.0)


def _seen(memory: BatchStatus, job: JobView) -> BatchStatus:
    shard = job.outcome.shard if job.outcome else None
    rows = shard.total if shard else memory.rows
    done = sum(len(shard_range(rows, memory.shards or 1, one)) for one in job.completed) if rows is not None else None
    return memory.model_copy(update={
        "completed": len(job.completed), "failed": job.failed_shards or None, "rows": rows, "rows_completed": done,
        "start_time": job.started or memory.start_time, "completion_time": job.ended if job.succeeded else None})


def _priced(ctx: PassContext, memory: BatchStatus, batch: BatchSpec, job: JobView) -> BatchStatus:
    began, ended = parse_timestamp(job.started), parse_timestamp(job.ended)
    # A Job that is complete without a time of it was made so by hand.
    memory = memory.model_copy(update={"completion_time": job.ended or conditions.timestamp(ctx.now), "failure": None})
    if began is None or ended is None or memory.rows is None:
        return memory
    seconds = max(1.0, (ended - began).total_seconds())
    update: dict[str, Any] = {"rows_per_second": round(memory.rows / seconds, 1)}
    record = ctx.observed.records.get(memory.fingerprint or "")
    summary = published(record.outcome) if record else None
    hourly = replica_price(summary, ctx.config.prices) if summary else None
    if hourly is not None:
        pods = min(batch.parallelism, batch.shards)
        update |= {"cost": float(f"{hourly * pods * seconds / _HOUR:.3g}"), "currency": ctx.config.prices.currency}
    return memory.model_copy(update=update)


def _failure(ctx: PassContext, job: JobView) -> FailureStatus:
    error = job.outcome.error if job.outcome else None
    end = pod_end(job.pods, "", ctx.obj.namespace)
    if end and end.reason == Reason.OUT_OF_MEMORY:  # what is said of it elsewhere is of builds
        error, end = None, replace(end, message="a pod ran out of memory; raise spec.serving.resources.limits.memory.")
    message = explain(error) if error else end.message if end else f"{job.failure_message or 'it left no result'}."
    given_up = f" ({count(job.failed_shards, 'shard')} given up)" if job.failed_shards else ""
    return FailureStatus(reason=error.reason if error else Reason.BATCH_FAILED,
                         message=f"Job {job.name} failed{given_up}: {message} What was answered stays. "
                                 f"{ctx.retry_hint}")


def _follow(ctx: PassContext, memory: BatchStatus, job: JobView) -> Finding:
    images = f"builder image {ctx.config.images.builder}, server image {server_image(ctx.spec, ctx.config)}"
    trouble = pod_trouble(job.pods, images, Asked.REPLICA) or podless(job, ctx.now, ctx.obj.namespace)
    done = f"{memory.completed or 0} of {count(memory.shards or 0, 'shard')} are done"
    rows = f", {memory.rows_completed} of {memory.rows} rows" if memory.rows is not None else ""
    if trouble and not job.completed:
        return no(trouble.reason, trouble.message)
    return _running(f"Job {job.name}: {done}{rows}.{f' {trouble.message}' if trouble else ''}")


def _running(message: str) -> Finding:
    return no(Reason.BATCH_RUNNING, message)


def _suspended() -> Finding:
    return no(Reason.SUSPENDED, "spec.suspend is true: no row is asked for; those answered stay.")


def _complete(memory: BatchStatus) -> Finding:
    rows = "All rows" if memory.rows is None else f"All {memory.rows} rows"
    speed = f" ({memory.rows_per_second:g} a second)" if memory.rows_per_second else ""
    return yes(Reason.BATCH_COMPLETE, f"{rows} are answered{speed}.")


def _plan(ctx: PassContext, memory: BatchStatus, found: Finding, actions: tuple[Action, ...] = (), *,
          requeue: float | None = None) -> Plan:
    """What was said of source and engine stands."""
    ready = of_run(found)
    status = {**ctx.obj.status, "batch": memory.as_json()}
    wanted = conditions.refused(ctx.obj.status, status, (ready,), ctx.obj.generation, ctx.now)
    return Plan(serving=actions, events=transitions(ctx.obj.status.get("conditions"), (ready,)),
                status={**wanted, "observedGeneration": ctx.obj.generation}, requeue_after=requeue)


def _lost(ctx: PassContext, batch: BatchSpec, memory: BatchStatus, job: JobView,
          old: tuple[Action, ...]) -> Plan | None:
    """Where pods found that the store has lost the engine: it is built again, as for replicas, and the Job
    recreated."""
    pods = tuple(pod for pod in job.pods if pod.failed_container == labels.CONTAINER_VERIFY)
    if not pods:
        return None
    found = _found(replace(ctx, observed=replace(ctx.observed, pods=pods)))
    if found.engine.verdict.reason != Reason.ENGINE_LOST:
        return None
    return _walk(ctx, batch, memory, (*old, delete_job(job, "its engine is lost")), found)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What the stages found that a run has in common with what serves."""

    ctx: PassContext
    server: ServerResult
    source: SourceResult
    engine: EngineResult


def _found(ctx: PassContext) -> _Found:
    server = server_step(ctx)
    ctx = informed(ctx, server)
    source = resolve(ctx)
    return _Found(ctx=ctx, server=server, source=source, engine=obtain(ctx, source, server))


def _walk(ctx: PassContext, batch: BatchSpec, memory: BatchStatus, old: tuple[Action, ...],
          found: _Found | None = None) -> Plan:
    """From the source to the engine, as for what serves, and to the Job."""
    found = found or _found(ctx)
    ctx, engine = found.ctx, found.engine
    proven = accuracy(ctx.spec, engine)
    before = (found.source.verdict, engine.verdict, proven)
    state, actions, requeue = _begin(ctx, batch, engine, before)
    if actions:
        name = batch_job_name(ctx.obj.name, batch, engine.fingerprint)
        memory = BatchStatus(key=memory.key, shards=batch.shards, job=name, fingerprint=engine.fingerprint,
                             generation=ctx.obj.generation, retry=ctx.retry, rows=memory.rows)
    ready = of_run(state)
    verdicts = (ready, *before, objective(ctx.spec, engine))
    known = ctx.obj.status.get("conditions")
    return Plan(
        building=found.server.actions + found.source.actions + engine.actions, serving=(*old, *actions),
        events=transitions(known, verdicts),
        status={"observedGeneration": ctx.obj.generation,
                "conditions": merge(known, verdicts, ctx.obj.generation, ctx.now), **_blocks(found, memory, ready)},
        status_of_building=("build",) if engine.verdict.reason == Reason.ENGINE_LOST else (),
        requeue_after=earliest(found.server.requeue, found.source.requeue, engine.requeue, requeue))


def _begin(ctx: PassContext, batch: BatchSpec, engine: EngineResult,
           before: Iterable[Verdict]) -> tuple[Finding, tuple[Action, ...], float | None]:
    """What is said, the writes that make the Job, and when to look again."""
    if unmet := next((one for one in before if not one.ok), None):
        return no(unmet.reason, unmet.message), (), None
    if ctx.suspended:
        return _suspended(), (), None
    for field, uri in (("input", batch.input.uri), ("output", batch.output.uri)):
        if claim_of(uri) not in ctx.observed.claims:
            return no(Reason.VOLUME_MISSING,
                       f"PersistentVolumeClaim {claim_of(uri)}, which spec.batch.{field}.uri names, does not exist in "
                       f"namespace {ctx.obj.namespace}; create it."), (), LOOK_AGAIN
    if engine.record is None or engine.placement is None:  # of an engine that is built there are both
        return _running("Waits for the engine."), (), LOOK_AGAIN
    job = batch_job(ctx.owner, ctx.spec, engine.record, engine.placement, ctx.config)
    name = job["metadata"]["name"]
    actions = (*device_claim(ctx, engine.placement), Create(manifest=job, why="the data set has rows without answers"))
    return _running(f"Job {name} begins."), actions, None


def _blocks(found: _Found, memory: BatchStatus, ready: Verdict) -> dict[str, Any]:
    ctx, engine = found.ctx, found.engine
    shown = blocks.shown_record(ctx, engine)
    block, cost = blocks.engine_block(ctx, engine, shown), blocks.cost_block(ctx, shown)
    summary = blocks.summary_block(block, cost, None, engine.placement, 0, 0, ready.reason)
    parts = {
        "source": found.source.memory, "server": found.server.memory, "build": engine.memory, "engine": block,
        "placement": blocks.placement_block(ctx, engine.placement, engine.tried), "cost": cost,
        "batching": blocks.batching_block(shown), "batch": memory,
        "summary": summary.model_copy(update={"replicas": None}),
    }
    status: dict[str, Any] = {name: part.as_json() for name, part in parts.items() if part is not None}
    measured = engine.candidates or (engine.record.outcome.candidates if engine.record else ())
    if measured:
        status["candidates"] = [one.as_json() for one in blocks.candidate_blocks(measured)]
    return {**status, **({"fingerprint": engine.fingerprint} if engine.fingerprint else {})}

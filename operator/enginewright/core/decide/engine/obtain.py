"""The walk of the engine stage: what is to be built and for what, whether it is on record, and the build if not.

An engine is bound to its class of device and to the runtime in the server's image; both are in its fingerprint, so that
a change of them asks for another engine without anybody having touched the model. That is said, while the old one
serves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core.collect import retired
from enginewright.core.conditions import Finding, Verdict, no, open_question
from enginewright.core.context import LOOK_AGAIN, PassContext
from enginewright.core.decide import fit
from enginewright.core.decide.engine import build, lease, repair
from enginewright.core.decide.jobs import delete_job, spent
from enginewright.core.decide.server_step import ServerResult
from enginewright.core.decide.slice import begun, choose
from enginewright.core.decide.source import SourceResult, missing_store
from enginewright.core.manifests import record_name, revision_name
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, MarkRecord
from enginewright.core.problems import Problem
from enginewright.core.published import published
from enginewright.core.reasons import Condition, Reason
from enginewright.core.request import build_request, store_claim
from enginewright.core.spec import Spec
from enginewright.core.status import BuildStatus, TargetStatus, TriedProfileStatus
from enginewright.core.way_back import serves
from enginewright_builder.contract import BuildRequest, CandidateSummary, ResolvedSource, RuntimeRequest

_WAITS = open_question(Reason.ASKING_SERVER_IMAGE, "The server image is asked what it has.")
_WORDS = {"device": "device", "device_count": "devices of one replica", "server_image": "server image",
          "backends": "backends of the server image", "builder_image": "builder image"}


@dataclass(frozen=True, kw_only=True)
class EngineResult:
    """``revision`` is what would be served, known as soon as the fingerprint is; ``target`` what it is built for.
    ``candidates`` are those of a build that shipped nothing, ``tried`` MIG profiles that do not do."""

    verdict: Verdict
    fingerprint: str = ""
    revision: str = ""
    placement: Placement | None = None
    record: EngineRecord | None = None
    target: TargetStatus | None = None
    cache_hit: bool = False
    memory: BuildStatus | None = None
    candidates: tuple[CandidateSummary, ...] = ()
    tried: tuple[TriedProfileStatus, ...] = ()
    actions: tuple[Action, ...] = ()
    requeue: float | None = None


def obtain(ctx: PassContext, source: SourceResult, server: ServerResult) -> EngineResult:
    if source.resolved is None:
        missing = missing_store(ctx)
        found = no(*missing) if missing else (
            open_question(Reason.WAITING_FOR_SOURCE, "Builds start when the source is resolved."))
        return _nothing(ctx, found, LOOK_AGAIN if missing else None)
    if ctx.runtime is None:
        return _nothing(ctx, server.verdict or _WAITS)
    chosen = choose(ctx, source.resolved)
    if isinstance(chosen, Problem):
        return _nothing(ctx, no(Reason.INVALID_SPEC, str(chosen)))
    result = _for_fingerprint(ctx, source.resolved, chosen.placement, ctx.runtime)
    return replace(result, tried=chosen.tried, verdict=result.verdict.adding(chosen.message))


def _nothing(ctx: PassContext, found: Finding, requeue: float | None = None) -> EngineResult:
    return EngineResult(verdict=_verdict(found), memory=ctx.memory.build, requeue=requeue)


def _verdict(found: Finding) -> Verdict:
    return found.about(Condition.ENGINE_BUILT)


def _for_fingerprint(ctx: PassContext, resolved: ResolvedSource, placement: Placement,
                     runtime: RuntimeRequest) -> EngineResult:
    request = build_request(ctx.obj.name, ctx.spec, resolved, placement, ctx.config, runtime, rebuild=ctx.rebuild,
                            namespace=ctx.obj.namespace)
    fingerprint = request.fingerprint()
    remembered = ctx.memory.build
    memory = remembered if remembered and remembered.fingerprint == fingerprint else begun(ctx, fingerprint)
    if request.bucket and memory and memory.repairs:  # a replica has refused what has the right size
        request = replace(request, bucket=replace(request.bucket, check_digests=True))
    result = EngineResult(
        verdict=_verdict(_WAITS), fingerprint=fingerprint, placement=placement, memory=memory,
        revision=revision_name(fingerprint, ctx.spec, placement, ctx.config), target=_built_for(request, ctx.spec))
    record = ctx.observed.records.get(fingerprint)
    if record and _usable(ctx, record):
        return _present(ctx, result, record)
    begun_once = any(job.fingerprint == fingerprint for job in ctx.observed.jobs)
    if not begun_once and (misfit := fit.unfit(ctx, placement)):
        return replace(result, verdict=_since(ctx, result.target, no(*misfit)),
                       requeue=LOOK_AGAIN if misfit[0] == Reason.DRIVER_TOO_OLD else None,
                       actions=_stop_superseded(ctx, "") + lease.let_go(ctx))
    done = build.build_step(ctx, request, fingerprint, placement, memory)
    return replace(
        result,
        verdict=_since(ctx, result.target, done.finding).adding(fit.left_out(ctx, placement)),
        memory=done.memory, candidates=done.candidates, requeue=done.requeue, record=done.record,
        cache_hit=bool(done.record and done.record.outcome.cache_hit),
        # Given up only after what the build gave is on record: who sees no lease then sees the engine.
        actions=_stop_superseded(ctx, fingerprint) + done.actions
        + lease.let_go(ctx, fingerprint if done.holds else ""),
    )


def _built_for(request: BuildRequest, spec: Spec) -> TargetStatus:
    device, runtime = request.device, request.runtime
    what = (device.products[0] if device.products else "any GPU") if device.accelerator == "gpu" else "cpu"
    return TargetStatus(
        device=" ".join(filter(None, (what, device.mig_profile, device.architecture))),
        device_count=max(1, device.gpu_count), server_image=runtime.server_image,
        backends=", ".join((*runtime.backends, *runtime.python_runtimes)), builder_image=request.builder_image,
        objective=_within(spec))


def _within(spec: Spec) -> str:
    """The latency that a throughput is measured within."""
    if tokens := spec.objective.tokens:
        times = ((tokens.ttft_milliseconds, "until the first token"), (tokens.tpot_milliseconds, "for each after it"))
        return f"p{tokens.percentile:g} " + " and ".join(f"{time:g} ms {what}" for time, what in times if time)
    latency = spec.objective.latency
    return f"p{latency.percentile:g} {latency.milliseconds:g} ms" if latency else "any latency"


def _since(ctx: PassContext, target: TargetStatus | None, found: Finding) -> Verdict:
    """What a build says, with what has changed since the revision that serves. The reason says so only while the build
    runs: why one waits, fails or is tried again goes before."""
    stable = serves(ctx.memory.revisions)
    changes = _changes(stable.target, target) if stable and stable.target and target else ""
    if found.ok or stable is None or not changes:
        return _verdict(found)
    reason = Reason.TARGET_CHANGED if found.reason == Reason.BUILDING else found.reason
    message = f"Since revision {stable.revision}, which goes on serving, was built: {changes}. {found.message}"
    return _verdict(replace(found, reason=reason, message=message))


def _changes(before: TargetStatus, now: TargetStatus) -> str:
    return "; ".join(f"{words} {getattr(before, name)} → {getattr(now, name)}" for name, words in _WORDS.items()
                     if getattr(before, name) != getattr(now, name))


def _usable(ctx: PassContext, record: EngineRecord) -> bool:
    """An engine that no object asked for in the grace period may be removed at any moment: a build Job
    finds it, or not."""
    if retired(record.unreferenced, ctx.now, ctx.config):
        return False
    return record.store_claim == store_claim(ctx.spec) and published(record.outcome) is not None


def _present(ctx: PassContext, result: EngineResult, record: EngineRecord) -> EngineResult:
    mended = repair.repair_step(ctx, result.revision, record, result.memory)
    if mended.finding:
        return replace(result, verdict=_verdict(mended.finding), memory=mended.memory, actions=mended.actions)
    cache_hit = _cache_hit(ctx, record)
    # Another object may have built it while our Job still runs: what it would do is done.
    actions = _stop_superseded(ctx, "") + lease.let_go(ctx) + mended.actions + _want(ctx, record)
    return replace(result, record=record, cache_hit=cache_hit, actions=actions,
                   verdict=_verdict(build.present(record, cache_hit)))


def _want(ctx: PassContext, record: EngineRecord) -> tuple[Action, ...]:
    """Says at once that an object refers to the engine, should it have been marked as unused."""
    if record.unreferenced is None:
        return ()
    name = record_name(record.fingerprint, ctx.spec.store.uri)
    return (MarkRecord(name=name, version=record.version, since=None, why="this object wants the engine"),)


def _cache_hit(ctx: PassContext, record: EngineRecord) -> bool:
    """Whether this object got the engine without building it. What status says stays said; else its own Job, or the
    memory of one, tells."""
    before = ctx.memory.engine
    if before and before.fingerprint == record.fingerprint and before.cache_hit is not None:
        return before.cache_hit
    remembered = ctx.memory.build
    own = any(job.fingerprint == record.fingerprint for job in ctx.observed.jobs) or bool(
        remembered and remembered.fingerprint == record.fingerprint and remembered.job
    )
    return record.outcome.cache_hit or not own


def _stop_superseded(ctx: PassContext, fingerprint: str) -> tuple[Action, ...]:
    """Deletes every running build but the one of ``fingerprint``."""
    return tuple(
        action
        for job in ctx.observed.jobs
        if job.fingerprint and job.fingerprint != fingerprint and job.live and not (job.outcome and job.outcome.ok)
        for action in (spent(job.name, "the request of a superseded build"),
                       delete_job(job, "its engine is no longer wanted"))
    )

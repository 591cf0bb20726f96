"""Third step: is there a proven engine for this spec? Looked up first, built only when nobody has built it yet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core.collect import retired
from enginewright.core.conditions import Verdict, bad, unknown
from enginewright.core.context import LOOK_AGAIN, PassContext
from enginewright.core.decide import build, build_lease, compatibility, repair, server_fit
from enginewright.core.decide.jobs import live
from enginewright.core.decide.server_step import ServerResult
from enginewright.core.decide.slice_choice import begun, choose
from enginewright.core.decide.source_step import SourceResult, missing_store
from enginewright.core.manifests import record_name, revision_name
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, Delete, MarkRecord
from enginewright.core.problems import Problem
from enginewright.core.reasons import Condition, Reason
from enginewright.core.request import build_request, store_claim
from enginewright.core.status import BuildStatus, TargetStatus, TriedProfileStatus
from enginewright_builder.contract import CandidateSummary, ResolvedSource, RuntimeRequest

_WAITS = unknown(Condition.ENGINE_BUILT, Reason.ASKING_SERVER_IMAGE, "The server image is asked what it has.")


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


def engine_step(ctx: PassContext, source: SourceResult, server: ServerResult) -> EngineResult:
    if source.resolved is None:
        missing = missing_store(ctx)
        verdict = (
            bad(Condition.ENGINE_BUILT, *missing)
            if missing
            else unknown(Condition.ENGINE_BUILT, Reason.WAITING_FOR_SOURCE, "Builds start when the source is resolved.")
        )
        return EngineResult(verdict=verdict, memory=ctx.memory.build, requeue=LOOK_AGAIN if missing else None)
    if ctx.runtime is None:
        return EngineResult(verdict=server.verdict or _WAITS, memory=ctx.memory.build)
    chosen = choose(ctx, source.resolved)
    if isinstance(chosen, Problem):
        return EngineResult(
            verdict=bad(Condition.ENGINE_BUILT, Reason.INVALID_SPEC, str(chosen)), memory=ctx.memory.build
        )
    result = _for_fingerprint(ctx, source.resolved, chosen.placement, ctx.runtime)
    said = " ".join(filter(None, (result.verdict.message, chosen.said)))
    return replace(result, tried=chosen.tried, verdict=replace(result.verdict, message=said))


def _for_fingerprint(ctx: PassContext, resolved: ResolvedSource, placement: Placement,
                     runtime: RuntimeRequest) -> EngineResult:
    request = build_request(ctx.obj.name, ctx.spec, resolved, placement, ctx.config, runtime,
                            rebuild=ctx.rebuild)
    fingerprint = request.fingerprint()
    remembered = ctx.memory.build
    memory = remembered if remembered and remembered.fingerprint == fingerprint else begun(ctx, fingerprint)
    if request.bucket and memory and memory.repairs:  # a replica has refused what has the right size
        request = replace(request, bucket=replace(request.bucket, check_digests=True))
    result = EngineResult(
        verdict=unknown(Condition.ENGINE_BUILT, Reason.WAITING_FOR_SOURCE, ""),
        fingerprint=fingerprint,
        revision=revision_name(fingerprint, ctx.spec, placement, ctx.config),
        placement=placement,
        memory=memory,
        target=compatibility.target_of(request),
    )
    record = ctx.observed.records.get(fingerprint)
    if record and _usable(ctx, record):
        return _present(ctx, result, record)
    begun_once = any(job.fingerprint == fingerprint for job in ctx.observed.jobs)
    if not begun_once and (misfit := server_fit.unfit(ctx, placement)):
        verdict = compatibility.explain(ctx, result.target, bad(Condition.ENGINE_BUILT, *misfit))
        return replace(result, verdict=verdict, requeue=LOOK_AGAIN if misfit[0] == Reason.DRIVER_TOO_OLD else None,
                       actions=_stop_superseded(ctx, "") + build_lease.let_go(ctx))
    done = build.build_step(ctx, request, fingerprint, placement, memory)
    verdict = compatibility.explain(ctx, result.target, done.verdict)
    said = " ".join(filter(None, (verdict.message, server_fit.left_out(ctx, placement))))
    return replace(
        result,
        verdict=replace(verdict, message=said),
        memory=done.memory,
        candidates=done.candidates,
        requeue=done.requeue,
        record=done.record,
        cache_hit=bool(done.record and done.record.outcome.cache_hit),
        # Given up only after what the build gave is on record: who sees no lease then sees the engine.
        actions=_stop_superseded(ctx, fingerprint)
        + done.actions
        + build_lease.let_go(ctx, fingerprint if done.holds else ""),
    )


def _usable(ctx: PassContext, record: EngineRecord) -> bool:
    """An engine that nobody wanted for the grace period may be removed at any moment: a build Job finds it, or not."""
    if retired(record.unreferenced, ctx.now, ctx.config):
        return False
    return record.store_claim == store_claim(ctx.spec) and record.outcome.engine is not None


def _present(ctx: PassContext, result: EngineResult, record: EngineRecord) -> EngineResult:
    mended = repair.repair_step(ctx, result.revision, record, result.memory)
    if mended.verdict:
        return replace(result, verdict=mended.verdict, memory=mended.memory, actions=mended.actions)
    cache_hit = _cache_hit(ctx, record)
    # Another object may have built it while our Job still runs: what it would do is done.
    actions = _stop_superseded(ctx, "") + build_lease.let_go(ctx) + mended.actions + _want(ctx, record)
    return replace(
        result, record=record, cache_hit=cache_hit, actions=actions, verdict=build.present_verdict(record, cache_hit)
    )


def _want(ctx: PassContext, record: EngineRecord) -> tuple[Action, ...]:
    """Says at once that somebody refers to the engine, should it have been marked as unused."""
    if record.unreferenced is None:
        return ()
    name = record_name(record.fingerprint, ctx.spec.store.uri)
    return (MarkRecord(name=name, version=record.version, since=None, why="this object wants the engine"),)


def _cache_hit(ctx: PassContext, record: EngineRecord) -> bool:
    """Whether this object got the engine without building it. What status says stays said; else its own Job, or the
    memory of one, tells."""
    told = ctx.memory.engine
    if told and told.fingerprint == record.fingerprint and told.cache_hit is not None:
        return told.cache_hit
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
        if job.fingerprint and job.fingerprint != fingerprint and live(job) and not (job.outcome and job.outcome.ok)
        for action in (
            build.spent(job.name, "the request of a superseded build"),
            Delete(
                api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why="its engine is no longer wanted"
            ),
        )
    )

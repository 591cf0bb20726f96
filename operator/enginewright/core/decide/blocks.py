"""The blocks of status that show what was chosen and measured."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from enginewright.core.conditions import timestamp
from enginewright.core.context import PassContext
from enginewright.core.cost import price_words, replica_cost, rounded
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.money import Paid, idle_share, per_million_served, saved_per_hour, served_rate
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.published import published
from enginewright.core.quantity import VISIBLE, legible
from enginewright.core.signals import MINUTE
from enginewright.core.sizing import proposed
from enginewright.core.spec import Spec
from enginewright.core.status import (
    AutoscalingStatus,
    BatchingStatus,
    CandidateStatus,
    CostStatus,
    EngineStatus,
    GroupsStatus,
    MemoryStatus,
    PlacementStatus,
    ProposedResourcesStatus,
    ServedStatus,
    SummaryStatus,
    TaskStatus,
    TokensStatus,
    TriedProfileStatus,
)
from enginewright_builder.contract import (
    CandidateSummary,
    EngineSummary,
    GenerateSummary,
    GroupsSummary,
    MemoryFigures,
    TaskFigure,
    TokenFigures,
)

# A status is read by people, and etcd keeps each version of it.
MAX_CANDIDATES: Final = 32
MAX_NAME: Final = 128
MAX_WORDS: Final = 256


def shown_record(ctx: PassContext, engine: EngineResult) -> EngineRecord | None:
    """The engine that serves; the one of the spec while no revision serves. None when its record is not at hand."""
    stable = ctx.serving.stable
    if stable is None or stable.revision == engine.revision:
        return engine.record
    return ctx.observed.records.get(stable.fingerprint)


def engine_block(ctx: PassContext, engine: EngineResult, shown: EngineRecord | None) -> EngineStatus | None:
    """What serves goes on being shown when its record has gone (a rebuild, another store)."""
    before, summary = ctx.memory.engine, published(shown.outcome) if shown else None
    if shown is None or summary is None:
        return before if ctx.serving.stable else None
    mine = engine.record is not None and engine.record.fingerprint == shown.fingerprint
    remembered = before.cache_hit if before and before.fingerprint == shown.fingerprint else None
    figures = (_of_engine(ctx.spec, shown, summary) if isinstance(summary, EngineSummary) else
               _of_language_model(shown, summary))
    return figures.model_copy(update={
        "built": shown.outcome.built or None,
        "build_seconds": shown.outcome.build_seconds,
        "manifest_digest": shown.outcome.manifest_digest or None,
        "cache_hit": engine.cache_hit if mine else remembered,
    })


def _of_language_model(shown: EngineRecord, summary: GenerateSummary) -> EngineStatus:
    return EngineStatus(
        fingerprint=shown.fingerprint,
        backend=summary.server,
        precision=summary.precision,
        ships=f"{summary.server} {summary.name}"[:MAX_WORDS],
        speedup=summary.gain,
        tokens=_tokens_block(summary.tokens),
        accuracy=legible(summary.accuracy),
        accuracy_low=legible(summary.accuracy_low),
        size_bytes=summary.size_bytes,
        memory_bytes=summary.memory_bytes or None,
        device=summary.device,
        runtime_version=summary.server_version,
        load_seconds=summary.load_seconds,
    )


def _of_engine(spec: Spec, shown: EngineRecord, summary: EngineSummary) -> EngineStatus:
    memory = summary.memory
    return EngineStatus(
        fingerprint=shown.fingerprint,
        backend=summary.backend,
        precision=summary.precision,
        ships=shipped_words(shown.outcome.candidates),
        fallback=summary.fallback or None,
        triton_backend=summary.triton_backend,
        speedup=summary.speedup,
        p50_milliseconds=legible(summary.p50_ms),
        p95_milliseconds=legible(summary.p95_ms),
        p99_milliseconds=legible(summary.p99_ms),
        p999_milliseconds=legible(summary.p999_ms),
        mean_milliseconds=legible(summary.mean_ms),
        pre_milliseconds=legible(summary.pre_ms),
        post_milliseconds=legible(summary.post_ms),
        throughput=legible(summary.throughput),
        accuracy=legible(summary.accuracy),
        accuracy_low=legible(summary.accuracy_low),
        evaluation=summary.evaluation,
        task=_task_block(summary.task),
        groups=_groups_block(summary.groups),
        size_bytes=summary.size_bytes,
        memory_bytes=summary.memory_bytes,
        memory=_memory_block(memory) if memory else None,
        proposed_resources=_proposed_block(memory, spec) if memory and memory.peak_bytes else None,
        device=summary.device,
        runtime_version=summary.runtime_version,
        load_seconds=summary.load_seconds,
        bound=summary.bound or None,
        gpu_utilisation=legible(summary.gpu_utilisation),
        inferences_per_joule=legible(summary.inferences_per_joule),
        power_watts=legible(summary.power_watts),
    )


def _memory_block(found: MemoryFigures) -> MemoryStatus:
    return MemoryStatus(seen=found.seen, empty_bytes=found.empty_bytes, loaded_bytes=found.loaded_bytes,
                        peak_bytes=found.peak_bytes, held_bytes=found.held_bytes,
                        device_peak_bytes=found.device_peak_bytes, pinned_bytes=found.pinned_bytes)


def _proposed_block(found: MemoryFigures, spec: Spec) -> ProposedResourcesStatus:
    resources = proposed(found, spec)
    return ProposedResourcesStatus(requests=resources.requests, limits=resources.limits)


def cost_block(ctx: PassContext, shown: EngineRecord | None) -> CostStatus | None:
    """Of the engine that is shown, at today's prices."""
    summary = published(shown.outcome) if shown else None
    cost = replica_cost(summary, ctx.config.prices) if summary else None
    if summary is None or cost is None:
        return None
    capacity, speedup = ((summary.tokens.output_rate, summary.gain) if isinstance(summary, GenerateSummary)
                         else (cost.throughput, summary.speedup))
    paid = Paid(replicas=sum(deployment.replicas for deployment in ctx.observed.deployments),
                least=ctx.spec.autoscaling.min_replicas if ctx.spec.autoscaling else 1, capacity=capacity or 0.0,
                speedup=speedup, price_per_hour=cost.price_per_hour)
    return cost.model_copy(update={"served": _served(ctx, paid)})


def _served(ctx: PassContext, paid: Paid) -> ServedStatus | None:
    """It moves with every request, so status gets another one where it differs visibly, and once a minute at most."""
    window, before = ctx.observed.signals, ctx.memory.cost.served if ctx.memory.cost else None
    if window is None or not paid.capacity:
        return None
    rate = served_rate(window.samples, ctx.observed.monotonic)
    if rate is None or (before and (ctx.fresh(before.time, MINUTE) or not _differs(before, paid, rate))):
        return before
    million, saved = per_million_served(paid, rate), saved_per_hour(paid, rate)
    return ServedStatus(per_second=rounded(rate), per_million=None if million is None else rounded(million),
                        idle_share=legible(idle_share(paid, rate)), saved_per_hour=None if saved is None else rounded(
                            saved), time=timestamp(ctx.now))


def _differs(before: ServedStatus, paid: Paid, rate: float) -> bool:
    """By a tenth of what was served, or of what there is to serve."""
    idle = idle_share(paid, rate)
    moved = (idle is None) != (before.idle_share is None) or abs((idle or 0.0) - (before.idle_share or 0.0)) >= VISIBLE
    return moved or abs(rate - before.per_second) > VISIBLE * max(rate, before.per_second)


def batching_block(shown: EngineRecord | None) -> BatchingStatus | None:
    serving = shown.outcome.serving if shown else None
    if serving is None:
        return None
    return BatchingStatus(
        max_batch_size=serving.max_batch_size,
        preferred_batch_sizes=serving.preferred_batch_sizes,
        max_queue_delay_microseconds=serving.max_queue_delay_us,
        instances=serving.instance_count,
    )


def candidate_blocks(candidates: Iterable[CandidateSummary]) -> tuple[CandidateStatus, ...]:
    return tuple(
        CandidateStatus(
            backend=item.backend,
            precision=item.precision,
            name=item.name[:MAX_NAME] or None,
            serves=item.serves or None,
            batch=item.batch,
            p50_milliseconds=legible(item.p50_ms),
            p95_milliseconds=legible(item.p95_ms),
            p99_milliseconds=legible(item.p99_ms),
            throughput=legible(item.throughput),
            accuracy=legible(item.accuracy),
            accuracy_low=legible(item.accuracy_low),
            task=_task_block(item.task),
            tokens=_tokens_block(item.tokens),
            size_bytes=item.size_bytes,
            verdict=item.verdict,
            reason=item.reason or None,
        )
        for item in islice(candidates, MAX_CANDIDATES)
    )


def _task_block(task: TaskFigure | None) -> TaskStatus | None:
    if task is None:
        return None
    return TaskStatus(metric=task.metric, value=legible(task.value), source=legible(task.source),
                      loss_high=legible(task.loss_high))


def _tokens_block(tokens: TokenFigures | None) -> TokensStatus | None:
    if tokens is None:
        return None
    return TokensStatus(
        ttft_p50_milliseconds=legible(tokens.ttft_p50_ms),
        ttft_p99_milliseconds=legible(tokens.ttft_p99_ms),
        tpot_p50_milliseconds=legible(tokens.tpot_p50_ms),
        tpot_p99_milliseconds=legible(tokens.tpot_p99_ms),
        output_rate=legible(tokens.output_rate),
        goodput=legible(tokens.goodput),
        concurrency=tokens.concurrency,
        proposed_tokens=tokens.proposed or None,
        accepted_tokens=tokens.accepted if tokens.proposed else None,
    )


def _groups_block(groups: GroupsSummary | None) -> GroupsStatus | None:
    if groups is None:
        return None
    return GroupsStatus(by=groups.by[:MAX_NAME], judged=groups.judged, too_small=groups.too_small_count,
                        too_small_names=tuple(name[:MAX_NAME] for name in groups.too_small) or None,
                        worst=groups.worst[:MAX_NAME] or None)


def shipped_words(candidates: Iterable[CandidateSummary]) -> str | None:
    """``tensorrt fp16``, or ``tensorrt fp16 @1 to batch 1, torch fp16 to 32`` where several ship. None when no
    candidate says for which batches it ships, as those of older builders."""
    limits: dict[int, str] = {batch: item.name for item in candidates for batch in item.serves}
    parts: list[tuple[str, int]] = []
    for batch, name in sorted(limits.items()):
        if parts and parts[-1][0] == name:
            parts.pop()
        parts.append((name, batch))
    if len(parts) < 2:
        return parts[0][0] if parts else None
    (first, limit), *others = parts
    return ", ".join([f"{first} to batch {limit}", *(f"{name} to {batch}" for name, batch in others)])[:MAX_WORDS]


def placement_block(
    ctx: PassContext, placement: Placement | None, tried: tuple[TriedProfileStatus, ...] = ()
) -> PlacementStatus | None:
    """While a source is resolved nothing is chosen: what was stays said, and with it which profiles do not do."""
    if placement is None:
        return ctx.memory.placement
    device = placement.device
    return PlacementStatus(
        accelerator=device.accelerator,
        resource=next(iter(placement.limits), None),
        mig_profile=device.mig_profile or None,
        device_class=placement.claim.device_class if placement.claim else None,
        reason=placement.description,
        tried=tried or None,
    )


def _p99(engine: EngineStatus) -> str | None:
    """As the build measured it: of a language model until the first token."""
    found = engine.tokens.ttft_p99_milliseconds if engine.tokens else engine.p99_milliseconds
    return None if found is None else f"{found:.1f} ms"


def summary_block(
    engine: EngineStatus | None,
    cost: CostStatus | None,
    scaling: AutoscalingStatus | None,
    placement: Placement | None,
    ready: int,
    wanted: int,
    reason: str,
) -> SummaryStatus:
    depth = scaling.queue_depth if scaling else None
    return SummaryStatus(
        engine=engine.backend if engine else None,
        precision=engine.precision if engine else None,
        ships=engine.ships if engine else None,
        replicas=f"{ready}/{wanted}",
        queue=None if depth is None else str(depth),
        p99=_p99(engine) if engine else None,
        live_p99=f"{scaling.p99_milliseconds:.1f} ms" if scaling and scaling.p99_milliseconds is not None else None,
        accelerator=placement.description if placement else None,
        speedup=f"{engine.speedup:.1f}x" if engine and engine.speedup is not None else None,
        cost=price_words(cost),
        reason=reason,
    )

"""Last step: everything that was found, as status, events and one plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enginewright.core import labels
from enginewright.core.conditions import Verdict, bad, merge
from enginewright.core.context import LOOK_AGAIN, Memory, PassContext, earliest
from enginewright.core.decide import blocks
from enginewright.core.decide.activation import held_verdict
from enginewright.core.decide.ailing import ailing, ailing_stable, explained
from enginewright.core.decide.batching_step import batching_verdict
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.history import HistoryResult
from enginewright.core.decide.proof import accuracy_verdict, objective_verdict
from enginewright.core.decide.quality_step import QualityResult
from enginewright.core.decide.readiness import available_verdict, ready_verdict
from enginewright.core.decide.rollout import RolloutResult
from enginewright.core.decide.scale_step import ScaleResult
from enginewright.core.decide.server_step import ServerResult
from enginewright.core.decide.serving import Serving, unwatched
from enginewright.core.decide.source_step import SourceResult
from enginewright.core.events import decision_event, transitions
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Plan
from enginewright.core.problems import Problem, summarise
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import ContestStatus, PinStatus, StatusModel


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the steps found, in the order of the walk."""

    server: ServerResult
    source: SourceResult
    engine: EngineResult
    serving: Serving
    scale: ScaleResult
    rollout: RolloutResult
    history: HistoryResult
    quality: QualityResult
    pin: PinStatus | None = None
    contest: ContestStatus | None = None


def report(ctx: PassContext, found: Findings) -> Plan:
    accuracy = accuracy_verdict(ctx.spec, found.engine)
    first = (found.source.verdict, found.engine.verdict, accuracy, found.rollout.verdict)
    ready = ready_verdict(ctx.observed, found.serving, found.engine.revision, found.scale.wanted, first,
                          scaled=ctx.spec.autoscaling is not None and not ctx.spec.suspend)
    short = ready.reason == Reason.REPLICAS_NOT_READY
    missing = ailing(ctx, found.engine, found.engine.revision) if short else None
    available = available_verdict(ctx.obj, found.serving, found.engine.revision)
    relied = ailing_stable(ctx, found.engine, found.serving, available)
    verdicts = (
        explained(ready, missing),
        held_verdict(ctx, found.serving, found.engine.revision, found.scale.wanted)
        or explained(available, relied),
        found.source.verdict,
        found.engine.verdict,
        accuracy,
        objective_verdict(ctx.spec, found.engine),
        found.rollout.verdict,
        found.scale.verdict,
        *filter(None, (found.quality.verdict, batching_verdict(ctx, found.engine, found.serving))),
    )
    old = ctx.obj.status.get("conditions")
    decided = (decision_event(found.scale.decision),) if found.scale.decision else ()
    return Plan(
        building=found.server.actions + found.source.actions + found.engine.actions,
        keeping=found.history.actions,
        serving=found.rollout.actions,
        events=transitions(old, verdicts) + decided,
        status={
            "observedGeneration": ctx.obj.generation,
            "conditions": merge(old, verdicts, ctx.obj.generation, ctx.now),
            **_blocks(ctx, found, ready),
        },
        # How often an engine was given up is counted when it has gone.
        deeds_of_building=("build",) if found.engine.verdict.reason == Reason.ENGINE_LOST else (),
        deeds_of_serving=("contest",),
        requeue_after=earliest(found.server.requeue, found.source.requeue, found.engine.requeue, found.rollout.requeue,
                               found.scale.requeue, found.quality.requeue,
                               # Room comes and goes on nodes, which nobody watches.
                               LOOK_AGAIN if any(one and one.reason == Reason.UNSCHEDULABLE
                                                 for one in (missing, relied)) else None),
        recommendation=found.scale.recommendation,
        watch_queue=found.scale.watch or found.rollout.watch,
        question=found.rollout.question,
        limits=found.scale.limits,
    )


def _blocks(ctx: PassContext, found: Findings, ready: Verdict) -> dict[str, Any]:
    serving, observed = found.serving, ctx.observed
    shown = blocks.shown_record(ctx, found.engine, serving)
    engine = blocks.engine_block(ctx, found.engine, shown, serving)
    cost = blocks.cost_block(ctx, shown)
    replicas_ready = sum(deployment.ready for deployment in observed.deployments)
    parts: dict[str, StatusModel | None] = {
        "source": found.source.memory,
        "server": found.server.memory,
        "build": found.engine.memory,
        "engine": engine,
        "placement": blocks.placement_block(ctx, found.engine.placement, found.engine.tried),
        "rollout": found.rollout.memory,
        "pin": found.pin,
        "contest": found.contest,
        "autoscaling": found.scale.memory,
        "quality": found.quality.memory,
        "cost": cost,
        "batching": blocks.batching_block(shown),
        "summary": blocks.summary_block(
            engine, cost, found.scale.memory, found.engine.placement, replicas_ready, found.scale.wanted, ready.reason
        ),
    }
    status: dict[str, Any] = {name: block.as_json() for name, block in parts.items() if block is not None}
    if found.history.memory:
        status["revisions"] = [entry.as_json() for entry in found.history.memory]
    if candidates := _candidates(ctx, found):
        status["candidates"] = candidates
    if found.engine.fingerprint:
        status["fingerprint"] = found.engine.fingerprint
    status["replicas"] = sum(deployment.replicas for deployment in observed.deployments)
    status["readyReplicas"] = replicas_ready
    status["selector"] = labels.as_selector(labels.model_selector(ctx.obj.name))
    return status


def _candidates(ctx: PassContext, found: Findings) -> list[Any]:
    """Of the newest build that measured any; they stay until another one did."""
    outcome = found.engine.record.outcome if found.engine.record else None
    measured = found.engine.candidates or (outcome.candidates if outcome else ())
    if measured:
        return [candidate.as_json() for candidate in blocks.candidate_blocks(measured)]
    told = ctx.obj.status.get("candidates")
    return list(told) if isinstance(told, list) else []


def refuse(obj: ObjectView, observed: Observed, problems: tuple[Problem, ...]) -> Plan:
    """A spec that makes no sense changes nothing but what is said: what serves goes on serving, and a revision that is
    half rolled out keeps its share."""
    serving = Serving.of(observed, Memory.of(obj.status).rollout)
    served = serving.stable.revision if serving.stable else ""
    held = unwatched(observed, serving)
    said = f"{summarise(problems)}.{held}" if held else summarise(problems)
    verdicts = (bad(Condition.READY, Reason.INVALID_SPEC, said), available_verdict(obj, serving, served))
    return refused(obj, observed, verdicts)


def refused(obj: ObjectView, observed: Observed, verdicts: tuple[Verdict, ...]) -> Plan:
    """Nothing is done; all that was said stands but for ``verdicts`` on the spec that makes no sense."""
    old = obj.status.get("conditions")
    spoken = {verdict.type for verdict in verdicts}
    kept = [entry for entry in old if entry.get("type") not in spoken] if isinstance(old, list) else []
    summary = {**(obj.status.get("summary") or {}), "reason": str(Reason.INVALID_SPEC)}
    return Plan(
        events=transitions(old, verdicts),
        status={
            **obj.status,
            "observedGeneration": obj.generation,
            "summary": summary,
            "conditions": merge(old, verdicts, obj.generation, observed.now) + kept,
        },
    )

"""The last stage: everything that was found, as status, events and one plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from enginewright.core import labels
from enginewright.core.conditions import Verdict, merge
from enginewright.core.context import LOOK_AGAIN, Memory, PassContext, earliest
from enginewright.core.decide import blocks, scale
from enginewright.core.decide.conditions import readiness
from enginewright.core.decide.conditions import rollout as rollout_condition
from enginewright.core.decide.conditions.evidence import accuracy, objective
from enginewright.core.decide.conditions.readiness import Readiness
from enginewright.core.decide.conditions.rollout import Rollout
from enginewright.core.decide.conditions.throughput import throughput
from enginewright.core.decide.converge import Converged
from enginewright.core.decide.desired import Desired
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.history import HistoryResult, remember
from enginewright.core.decide.quality import QualityResult
from enginewright.core.decide.scale import Contest, ScaleResult
from enginewright.core.decide.server_step import ServerResult
from enginewright.core.decide.source import SourceResult
from enginewright.core.decide.target import Target
from enginewright.core.events import decision_event, transitions
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Plan
from enginewright.core.problems import Problem
from enginewright.core.reasons import Reason
from enginewright.core.refusal import refused
from enginewright.core.serving import Serving
from enginewright.core.status import RolloutStatus, StatusModel


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the stages found, in the order of the walk."""

    server: ServerResult
    source: SourceResult
    engine: EngineResult
    scale: ScaleResult
    quality: QualityResult
    target: Target
    desired: Desired
    rollout: Rollout
    contest: Contest
    converged: Converged


def report(ctx: PassContext, found: Findings) -> Plan:
    engine, target = found.engine, found.target
    digest = found.source.memory.digest if target.ctx is ctx else None
    rollout, memory = rollout_condition.verdict(ctx, found.rollout, found.converged, digest)
    proven = accuracy(ctx.spec, engine)
    held, compared = throughput(target)
    ready = readiness.readiness(ctx, engine, found.scale.wanted, (
        found.source.verdict, engine.verdict, proven, rollout))
    verdicts = (
        ready.ready, ready.available, found.source.verdict, engine.verdict, proven,
        objective(ctx.spec, engine), rollout, scale.verdict(found.scale, found.contest),
        *filter(None, (found.quality.verdict, held)),
    )
    history, old = remember(target, memory), ctx.obj.status.get("conditions")
    decided = (decision_event(found.scale.decision),) if found.scale.decision else ()
    return Plan(
        building=found.server.actions + found.source.actions + engine.actions,
        keeping=history.actions,
        serving=found.converged.actions,
        events=transitions(old, verdicts) + decided,
        status={
            "observedGeneration": ctx.obj.generation,
            "conditions": merge(old, verdicts, ctx.obj.generation, ctx.now),
            **_blocks(ctx, found, memory, history, ready.ready),
            **({"throughput": compared.as_json()} if compared else {}),
        },
        # How often an engine was given up is counted when it has gone.
        status_of_building=("build",) if engine.verdict.reason == Reason.ENGINE_LOST else (),
        status_of_serving=("contest",),
        requeue_after=_requeue(found, ready),
        recommendation=found.scale.recommendation,
        watch_queue=found.scale.watch or found.desired.watch,
        question=found.desired.question,
        limits=found.scale.limits,
    )


def _requeue(found: Findings, ready: Readiness) -> float | None:
    return earliest(found.server.requeue, found.source.requeue, found.engine.requeue, found.converged.requeue,
                    found.scale.requeue, found.quality.requeue, LOOK_AGAIN if ready.unplaced else None)


def _blocks(ctx: PassContext, found: Findings, memory: RolloutStatus, history: HistoryResult,
            ready: Verdict) -> dict[str, Any]:
    observed, engine = ctx.observed, found.engine
    shown = blocks.shown_record(ctx, engine)
    block, cost = blocks.engine_block(ctx, engine, shown), blocks.cost_block(ctx, shown)
    replicas_ready = sum(deployment.ready for deployment in observed.deployments)
    parts: dict[str, StatusModel | None] = {
        "source": found.source.memory,
        "server": found.server.memory,
        "build": engine.memory,
        "engine": block,
        "placement": blocks.placement_block(ctx, engine.placement, engine.tried),
        "rollout": memory,
        "pin": found.target.pin.memory,
        "contest": found.contest.memory,
        "autoscaling": found.scale.memory,
        "quality": found.quality.memory,
        "cost": cost,
        "batching": blocks.batching_block(shown),
        "summary": blocks.summary_block(
            block, cost, found.scale.memory, engine.placement, replicas_ready, found.scale.wanted, ready.reason),
    }
    status: dict[str, Any] = {name: part.as_json() for name, part in parts.items() if part is not None}
    if history.memory:
        status["revisions"] = [entry.as_json() for entry in history.memory]
    if candidates := _candidates(ctx, engine):
        status["candidates"] = candidates
    if engine.fingerprint:
        status["fingerprint"] = engine.fingerprint
    status["replicas"] = sum(deployment.replicas for deployment in observed.deployments)
    status["readyReplicas"] = replicas_ready
    status["selector"] = labels.as_selector(labels.model_selector(ctx.obj.name))
    return status


def _candidates(ctx: PassContext, engine: EngineResult) -> list[Any]:
    """Of the newest build that measured any; they stay until another one did."""
    measured = engine.candidates or (engine.record.outcome.candidates if engine.record else ())
    if measured:
        return [candidate.as_json() for candidate in blocks.candidate_blocks(measured)]
    before = ctx.obj.status.get("candidates")
    return list(before) if isinstance(before, list) else []


def refuse(obj: ObjectView, observed: Observed, problems: tuple[Problem, ...]) -> Plan:
    """A spec that makes no sense changes nothing but what is said."""
    serving = Serving.of(observed, Memory.of(obj.status).rollout)
    return refused(obj, observed, readiness.refused(obj, serving, problems))

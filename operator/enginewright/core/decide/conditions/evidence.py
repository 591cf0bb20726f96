"""Conditions AccuracyVerified and ObjectiveMet: what the evidence of an engine says, with figures."""

from __future__ import annotations

from enginewright.core.conditions import Verdict, bad, good, unknown
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.objective import measured
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import Spec
from enginewright_builder.contract import EngineSummary


def accuracy(spec: Spec, engine: EngineResult) -> Verdict:
    failure = engine.memory.failure if engine.memory and engine.record is None else None
    if failure and failure.reason == Reason.ACCURACY_NOT_REACHED:
        return bad(
            Condition.ACCURACY_VERIFIED,
            Reason.ACCURACY_NOT_REACHED,
            f"{failure.message} status.candidates has what was measured.",
        )
    summary = engine.record.outcome.engine if engine.record else None
    if summary is None:
        return unknown(Condition.ACCURACY_VERIFIED, Reason.WAITING_FOR_ENGINE, "Measured when the engine is built.")
    figures = (
        f"{spec.accuracy.metric} {summary.accuracy:.4f} (at least {summary.accuracy_low:.4f} with 95 % confidence; "
        f"{1 - spec.accuracy.max_loss:g} is needed)"
    )
    if summary.evaluation == "synthetic":
        return good(
            Condition.ACCURACY_VERIFIED,
            Reason.VERIFIED_ON_SYNTHETIC_DATA,
            f"{figures} on synthetic inputs: name real ones in spec.accuracy.evaluation.",
        )
    return good(Condition.ACCURACY_VERIFIED, Reason.VERIFIED, f"{figures} on held-out data{_beside(summary)}.")


def _beside(summary: EngineSummary) -> str:
    """Figures on labels and groups, where they were asked for."""
    task, groups = summary.task, summary.groups
    figures = (f"; {task.metric} on the labels {task.value:.4f}, the source's {task.source:.4f} (a loss of at most "
            f"{max(0.0, task.loss_high):.4f} with 95 % confidence; {task.max_loss:g} is allowed)") if task else ""
    if groups is None:
        return figures
    small = f", {groups.too_small_count} more had too few samples" if groups.too_small_count else ""
    return f"{figures}; held in {groups.judged} groups by {groups.by}{small}"


def objective(spec: Spec, engine: EngineResult) -> Verdict:
    latency, throughput = spec.objective.latency, spec.objective.throughput
    if latency is None and not throughput:
        return good(Condition.OBJECTIVE_MET, Reason.NO_OBJECTIVE, "spec.objective asks for no latency or throughput.")
    summary = engine.record.outcome.engine if engine.record else None
    if summary is None:
        return unknown(Condition.OBJECTIVE_MET, Reason.WAITING_FOR_ENGINE, "Measured when the engine is built.")
    figures = measured(spec, summary)
    if summary.objective_met:
        return good(Condition.OBJECTIVE_MET, Reason.MET, f"{figures}.")
    return bad(
        Condition.OBJECTIVE_MET,
        Reason.NOT_MET,
        f"{figures}: the best configuration that was found misses it; relax spec.objective or use faster hardware.",
    )

"""Conditions AccuracyVerified and ObjectiveMet: what the evidence of an engine says, with figures."""

from __future__ import annotations

from enginewright.core.conditions import Verdict, bad, good, unknown
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.objective import measured
from enginewright.core.language_models import asks_of_tokens
from enginewright.core.published import published
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import Spec
from enginewright.core.spec.tasks import generates
from enginewright_builder.contract import EngineSummary, GenerateSummary


def accuracy(spec: Spec, engine: EngineResult) -> Verdict:
    failure = engine.memory.failure if engine.memory and engine.record is None else None
    if failure and failure.reason == Reason.ACCURACY_NOT_REACHED:
        return bad(
            Condition.ACCURACY_VERIFIED,
            Reason.ACCURACY_NOT_REACHED,
            f"{failure.message} status.candidates has what was measured.",
        )
    summary = published(engine.record.outcome) if engine.record else None
    if summary is None:
        return unknown(Condition.ACCURACY_VERIFIED, Reason.WAITING_FOR_ENGINE, "Measured when the engine is built.")
    if isinstance(summary, GenerateSummary):
        return good(Condition.ACCURACY_VERIFIED, Reason.VERIFIED, f"{_agreement(spec, summary)}.")
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


def _agreement(spec: Spec, summary: GenerateSummary) -> str:
    """What is needed is what the unquantised model itself keeps, less what may be lost beyond that."""
    allowed = spec.accuracy.max_loss + summary.noise_floor
    return (f"{summary.accuracy:.4f} of the next tokens after {summary.prompts} prompts are the unquantised model's "
            f"(at least {summary.accuracy_low:.4f} with 95 % confidence; {1 - allowed:.4f} is needed: maxLoss is "
            f"{spec.accuracy.max_loss:g}, and that model itself chooses {summary.noise_floor:.4f} otherwise)")


def objective(spec: Spec, engine: EngineResult) -> Verdict:
    if not (spec.objective.latency or spec.objective.throughput or asks_of_tokens(spec)):
        asked = "no times of tokens" if generates(spec) else "no latency or throughput"
        return good(Condition.OBJECTIVE_MET, Reason.NO_OBJECTIVE, f"spec.objective asks for {asked}.")
    summary = published(engine.record.outcome) if engine.record else None
    if summary is None:
        return unknown(Condition.OBJECTIVE_MET, Reason.WAITING_FOR_ENGINE, "Measured when the engine is built.")
    figures = measured(spec, summary)
    if summary.objective_met:
        return good(Condition.OBJECTIVE_MET, Reason.MET, f"{figures}.")
    if summary.too_few_requests:
        return unknown(Condition.OBJECTIVE_MET, Reason.OBJECTIVE_UNKNOWN,
                       f"{figures}; give engine.buildBudgetSeconds more and rebuild, or use a faster device.")
    return bad(
        Condition.OBJECTIVE_MET,
        Reason.NOT_MET,
        f"{figures}: the best configuration that was found misses it; relax spec.objective or use faster hardware.",
    )

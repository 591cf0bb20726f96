"""Why a ladder ends with nothing to serve, in words that say what to change."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from enginewright_builder.contract import AccuracyRequest, CandidateSummary
from enginewright_builder.engines.base import Rung
from enginewright_builder.errors import UserError

_BUDGET_FIELD = "spec.engine.buildBudgetSeconds"
_ALLOW = "; or write spec.engine.fallback: source to serve the source model itself"


class NothingToServeError(UserError):
    """No candidate may be served; ``candidates`` has the evidence and the one that is offered."""

    def __init__(self, reason: str, message: str, candidates: tuple[CandidateSummary, ...], *, field: str,
                 value: object, remedy: str) -> None:
        super().__init__(reason, message, field=field, value=value, remedy=remedy)
        self.candidates = candidates


def precision_unsupported(precision: str, rungs: Sequence[Rung]) -> UserError:
    reasons = "; ".join(f"{rung.backend}: {rung.unavailable}" for rung in rungs) or "no engine has it"
    return UserError("PrecisionUnsupported", f"{precision} cannot be built here: {reasons}",
                     field="spec.engine.precision", value=precision, remedy="write auto, or give what is missing")


def without_source(error: NothingToServeError) -> NothingToServeError:
    """The same where the user allows the source model itself to be served, and it cannot be."""
    return NothingToServeError(
        error.reason, f"{error.message}; nor can the source model itself be served: no engine of full precision passes "
                      "here", error.candidates, field=error.field, value=error.value,
        remedy=error.remedy.removesuffix(_ALLOW))


def not_faster_than_source(summaries: tuple[CandidateSummary, ...]) -> NothingToServeError:
    return NothingToServeError(
        "NotFasterThanSource", f"no candidate is faster than the source model as it is{_offer(summaries)}", summaries,
        field="spec.engine", value="", remedy="allow more precisions (spec.engine.precision: auto), or build on other "
                                              f"hardware{_ALLOW}")


def accuracy_not_reached(summaries: tuple[CandidateSummary, ...], accuracy: AccuracyRequest,
                         asked_for: Collection[str]) -> NothingToServeError:
    """``asked_for`` names those of the candidates that were not tried only to be offered."""
    measured = [one for one in summaries if one.name in asked_for and one.accuracy_low is not None]
    best = max(measured, key=lambda one: one.accuracy_low or 0.0, default=None)
    figures = (f"the closest is {best.name} with {accuracy.metric} {best.accuracy:.4f} "
               f"(lower bound {best.accuracy_low:.4f})" if best else "none could be measured")
    if best is not None and (best.accuracy_low or 0.0) >= 1 - accuracy.tolerance:
        return _lost_elsewhere(summaries, best, accuracy)
    return NothingToServeError(
        "AccuracyNotReached", f"no candidate asked for reaches {accuracy.metric} ≥ {1 - accuracy.tolerance:.4g}: "
                              f"{figures}{_offer(summaries)}", summaries,
        field="spec.accuracy.maxLoss", value=accuracy.tolerance,
        remedy="raise the tolerance, allow more precisions (spec.engine.precision: auto), or give more evaluation "
               f"samples{_ALLOW}")


def _lost_elsewhere(summaries: tuple[CandidateSummary, ...], best: CandidateSummary, accuracy: AccuracyRequest
                    ) -> NothingToServeError:
    """Where agreement over all samples is as asked, and a guard, the labels or a group are not."""
    task = best.task
    on_labels = accuracy.task is not None and task is not None and task.loss_high > task.max_loss
    field, value = (("spec.accuracy.task.maxLoss", accuracy.task.tolerance) if on_labels and accuracy.task else
                    ("spec.accuracy.maxLoss", accuracy.tolerance))
    return NothingToServeError(
        "AccuracyNotReached", f"no candidate asked for passes: {best.name} has {accuracy.metric} {best.accuracy:.4f} "
                              f"over all samples, but {_plain(best.reason)}{_offer(summaries)}", summaries,
        field=field, value=value,
        remedy="raise the tolerance, allow more precisions (spec.engine.precision: auto), or give calibration and "
               f"evaluation samples of what it fails at{_ALLOW}")


def _plain(reason: str) -> str:
    return reason.removeprefix("not served, but the best there is: ")


def budget_too_small(summaries: tuple[CandidateSummary, ...], seconds: float, spent: float, missing: float,
                     source: str) -> NothingToServeError:
    """``missing`` is what the next build and all after it would take, in seconds, as far as it is known."""
    skipped = ", ".join(one.name for one in summaries if one.verdict == "Skipped")
    offer = _offer(summaries) or f"; the source model ({source}) is not served unless you allow it"
    return NothingToServeError(
        "BudgetTooSmall", f"the time budget of {seconds:.0f} s was spent before a candidate passed: {spent:.0f} s are "
                          f"gone, not tried are {skipped}{offer}", summaries,
        field=_BUDGET_FIELD, value=f"{seconds:.0f}",
        remedy=f"write {math.ceil((spent + missing) / 10) * 10} or more{_ALLOW}")


def _offer(summaries: Sequence[CandidateSummary]) -> str:
    offered = next((one for one in summaries if one.verdict == "Offered"), None)
    return f"; offered instead: {offered.name}" if offered else ""

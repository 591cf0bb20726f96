"""Why a ladder ends with nothing to serve, in words that say what to change."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from enginewright_builder.contract import AccuracyRequest, CandidateSummary
from enginewright_builder.engines.base import Rung
from enginewright_builder.errors import UserError

_BUDGET_FIELD = "spec.engine.buildBudgetSeconds"
_CALIBRATION = "spec.engine.calibration"
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


def not_faster_than_source(summaries: tuple[CandidateSummary, ...], accuracy: AccuracyRequest, precision: str,
                           untried: Sequence[str] = ()) -> NothingToServeError:
    """``precision`` is the one that was asked for; ``untried`` are those that there was no time for."""
    refused = any(one.verdict == "AccuracyRefused" for one in summaries)
    more = ((f"raise {_BUDGET_FIELD}, which left no time for {', '.join(untried)}",) if untried else ()) + (
        (f"raise spec.accuracy.maxLoss from {accuracy.tolerance:g}, which refused candidates",) if refused else ())
    return NothingToServeError(
        "NotFasterThanSource", f"no candidate that passes is faster than the source model as it is{_offer(summaries)}",
        summaries, field="spec.engine", value="",
        remedy=_one_of(*more, *_more_candidates(summaries, precision), "build on other hardware"))


def accuracy_not_reached(summaries: tuple[CandidateSummary, ...], accuracy: AccuracyRequest,
                         asked_for: Collection[str], precision: str) -> NothingToServeError:
    """``asked_for`` names those of the candidates that were not tried only to be offered; ``precision`` is the one that
    was asked for."""
    measured = [one for one in summaries if one.name in asked_for and one.accuracy_low is not None]
    best = max(measured, key=lambda one: one.accuracy_low or 0.0, default=None)
    if best is None:
        return _none_measured(summaries, asked_for, precision)
    if (best.accuracy_low or 0.0) >= 1 - accuracy.tolerance:
        return _lost_elsewhere(summaries, best, accuracy, precision)
    figures = (f"the closest is {best.name} with {accuracy.metric} {best.accuracy:.4f} "
               f"(lower bound {best.accuracy_low:.4f})")
    return NothingToServeError(
        "AccuracyNotReached", f"no candidate asked for reaches {accuracy.metric} ≥ {1 - accuracy.tolerance:.4g}: "
                              f"{figures}{_offer(summaries)}", summaries,
        field="spec.accuracy.maxLoss", value=accuracy.tolerance,
        remedy=_one_of("raise it", *_more_candidates(summaries, precision), "give more evaluation samples"))


def _none_measured(summaries: tuple[CandidateSummary, ...], asked_for: Collection[str], precision: str
                   ) -> NothingToServeError:
    """Where what stands in the way is no loss of accuracy."""
    reasons = "; ".join(f"{one.name}: {_plain(one.reason)}" for one in summaries if one.name in asked_for)
    return NothingToServeError(
        "AccuracyNotReached", f"no candidate asked for could be measured: {reasons or 'there is none'}"
                              f"{_offer(summaries)}", summaries,
        field="spec.engine.precision", value=precision,
        remedy=_one_of(*_more_candidates(summaries, precision), "change the model by what the reasons say"))


def _lost_elsewhere(summaries: tuple[CandidateSummary, ...], best: CandidateSummary, accuracy: AccuracyRequest,
                    precision: str) -> NothingToServeError:
    """Where agreement over all samples is as asked, and a guard, the labels or a group are not."""
    task = best.task
    on_labels = accuracy.task is not None and task is not None and task.loss_high > task.max_loss
    field, value = (("spec.accuracy.task.maxLoss", accuracy.task.tolerance) if on_labels and accuracy.task else
                    ("spec.accuracy.maxLoss", accuracy.tolerance))
    return NothingToServeError(
        "AccuracyNotReached", f"no candidate asked for passes: {best.name} has {accuracy.metric} {best.accuracy:.4f} "
                              f"over all samples, but {_plain(best.reason)}{_offer(summaries)}", summaries,
        field=field, value=value,
        remedy=_one_of("raise it", *_more_candidates(summaries, precision),
                       "give calibration and evaluation samples of what it fails at"))


def _more_candidates(summaries: Sequence[CandidateSummary], precision: str) -> tuple[str, ...]:
    """What would let others compete."""
    without_data = any(one.verdict == "Skipped" and _CALIBRATION in one.reason for one in summaries)
    narrow = precision not in ("", "auto")
    return (*((f"give {_CALIBRATION}, which 8-bit candidates need",) if without_data else ()),
            *(("allow more precisions (spec.engine.precision: auto)",) if narrow else ()))


def _one_of(*remedies: str) -> str:
    return ", or ".join((", ".join(remedies[:-1]), remedies[-1]) if len(remedies) > 1 else remedies) + _ALLOW


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

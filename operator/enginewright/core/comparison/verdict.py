"""From what was measured to an answer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from enginewright.core.comparison import texts
from enginewright.core.comparison.after_switch import after_switch
from enginewright.core.comparison.doubt import UNSETTLED
from enginewright.core.comparison.latency import TAIL_WINDOW, Tail
from enginewright.core.comparison.mirrored import LEAST_MIRRORED, Mirrored
from enginewright.core.comparison.outputs import COMPARED_PAIRS, disagreement, uncompared
from enginewright.core.comparison.percentile import missed, unknown
from enginewright.core.comparison.question import Answer, Limits, Question
from enginewright.core.comparison.tally import Sums, sums_of
from enginewright.core.comparison.unread import Unread, unread
from enginewright.core.comparison.words import as_ratio, failures, figures, rejections
from enginewright.core.reasons import Reason
from enginewright.core.sequential import FEWEST_VALUES
from enginewright.core.signals import SignalWindow

# Evidence of more failures (as odds) that is not enough to give up but too much to promote.
DOUBT: Final = math.log(8.0)
# Until both sides' tails can be distinguished: as many as a series needs, and the first, which is left out.
TAIL_SECONDS: Final = (FEWEST_VALUES + 1) * TAIL_WINDOW


def compare(window: SignalWindow | None, question: Question, mirrored: Mirrored | None = None) -> Answer:
    """``mirrored`` is what live requests that both answered say, or the candidate's test answers, where they are to say
    something."""
    if window is None or window.analysis != question.key:
        return Answer(verdict="open", message="no request has been measured yet")
    if question.switched is not None:
        return after_switch(window, question, question.switched)
    sums = sums_of(window, question)
    if question.alone:
        return _alone(window, sums, question)
    return _beside(window, sums, question, mirrored)


def _beside(window: SignalWindow, sums: Sums, question: Question, mirrored: Mirrored | None) -> Answer:
    """A candidate beside the stable revision in the same seconds."""
    answer = Answer(
        verdict="open",
        message=figures(sums, question.limits) + (f"; {mirrored.figures}" if mirrored else ""),
        uncompared=uncompared(window.probes, question.limits),
        mirrored=mirrored,
        ratio=sums.ratio and as_ratio(sums.ratio),
        measure=sums.slowest.name if sums.texts and sums.slowest else "",
        requests=round(sums.candidate.requests),
        failures=round(sums.candidate.failed),
        seconds=sums.seconds,
    )
    if worse := _worse(window, sums, question, mirrored):
        reason, message = worse
        return replace(answer, verdict="worse", reason=reason, message=message)
    if answer.uncompared and _fewest(sums) >= question.limits.requests:
        answer = replace(answer, message=f"{answer.message}; outputs were not compared: {answer.uncompared}")
    silent = unread(window, question)
    if silent and silent.blamed:
        return _silent(answer, silent, sums, question.limits)
    if missing := (_missing(window, sums, question.limits) or _mirroring(sums, question.limits, mirrored)
                   or _objective_awaited(sums, question.limits)):
        few = _fewest(sums) < question.limits.requests
        starved = (few and bool(window.probes.problem)) or sums.waited >= question.limits.patience
        return replace(answer, message=f"{answer.message}; {missing}", starved=starved)
    if silent:
        return _silent(answer, silent, sums, question.limits)
    if sums.doubt <= DOUBT and (sums.cure or _as_good(sums, question.limits)):
        return replace(answer, verdict="good")
    if sums.seconds >= question.limits.patience:
        return _best_guess(answer, sums, question.limits)
    unclear = "its failures may still be chance" if sums.doubt > DOUBT else "too close to tell yet"
    return replace(answer, message=f"{answer.message}; {unclear}")


def _silent(answer: Answer, silent: Unread, sums: Sums, limits: Limits) -> Answer:
    """The sums are of the other replicas alone, however good they are."""
    if silent.blamed and silent.seconds >= limits.patience:
        message = f"What it does could not be measured: {silent.words}, while the stable revision's answered."
        return replace(answer, verdict="worse", reason=Reason.METRICS_UNREADABLE, message=message)
    return replace(answer, message=f"{answer.message}; {silent.words}", starved=sums.waited >= limits.patience,
                   reason=Reason.METRICS_UNREADABLE if silent.known else None)


def _as_good(sums: Sums, limits: Limits) -> bool:
    if sums.rejected.pending or sums.rejected.evidence > UNSETTLED:
        return False
    return _fast(sums, limits) and (sums.texts is None or texts.settled(sums.texts, limits))


def _likely_as_good(sums: Sums, limits: Limits) -> bool:
    """Of texts all but their length only refuses, and only once it is certain."""
    return _fast(sums, limits, likely=True) and (sums.texts is None or texts.as_long(sums.texts, limits))


def _fast(sums: Sums, limits: Limits, *, likely: bool = False) -> bool:
    """By all measures that there are: for certain, or likelier than not."""
    there = [one.ratio for one in sums.latencies if not one.absent]
    most = math.log1p(limits.slowdown)
    return bool(there) and all(one is not None and (one.mean if likely else one.high) < most for one in there)


def _alone(window: SignalWindow, sums: Sums, question: Question) -> Answer:
    """Nothing to compare with: enough requests, and hardly a failure among them."""
    limits = question.limits
    answer = Answer(
        verdict="open",
        message=f"{figures(sums, limits)}; no stable replica is left to compare it with",
        uncompared="no replica of the stable revision ran beside it",
        requests=round(sums.candidate.requests),
        failures=round(sums.candidate.failed),
        seconds=sums.seconds,
    )
    if sums.doubt >= -math.log(sums.alpha):
        failed, whole = sums.candidate.failed, sums.candidate.failed + sums.candidate.requests
        message = f"{failed:.0f} of {whole:.0f} inferences failed."
        return replace(answer, verdict="worse", reason=Reason.FAILED_INFERENCES, message=message)
    if limits.required and (words := missed(sums.percentile, limits, sums.alpha)):
        message = f"It misses the objective: {words}"
        return replace(answer, verdict="worse", reason=Reason.OBJECTIVE_MISSED, message=message)
    if sums.candidate.requests < limits.requests:
        starved = bool(window.probes.problem) or sums.waited >= limits.patience
        return replace(answer, message=f"{answer.message}; {limits.requests} requests are needed", starved=starved)
    if awaited := _objective_awaited(sums, limits):
        return replace(answer, message=f"{answer.message}; {awaited}", starved=sums.waited >= limits.patience)
    if silent := unread(window, question):
        return _silent(answer, silent, sums, limits)
    if sums.seconds < limits.watched or sums.doubt > DOUBT:
        return replace(answer, starved=sums.waited >= limits.patience)
    return replace(answer, verdict="good")


def _best_guess(answer: Answer, sums: Sums, limits: Limits) -> Answer:
    """Out of patience: the limit may lie within what is possible, but not below what is likeliest."""
    if _likely_as_good(sums, limits) and sums.doubt <= DOUBT:
        return replace(answer, verdict="good", message=f"{answer.message}, as far as could be measured")
    message = f"It could not be shown to be as good: {answer.message}."
    return replace(answer, verdict="worse", reason=Reason.ANALYSIS_INCONCLUSIVE, message=message)


def fails_more(window: SignalWindow | None, question: Question) -> Answer | None:
    """Whether the candidate is proven to fail more often, latency aside: for when load shifts from one to the other."""
    if window is None or window.analysis != question.key:
        return None
    sums = sums_of(window, question)
    if sums.doubt < -math.log(sums.alpha):
        return None
    return Answer(verdict="worse", reason=Reason.FAILED_INFERENCES, message=failures(sums))


def proven_worse(answer: Answer, limits: Limits) -> Answer | None:
    """While a person is waited for: one that is shown to be worse, or to miss an objective that is ``required``, not
    one that is no longer shown to be good."""
    if answer.verdict != "worse":
        return None
    if answer.reason == Reason.OBJECTIVE_MISSED and limits.required:
        return answer
    differs = answer.reason == Reason.OUTPUTS_DIFFER and answer.mirrored is not None and answer.mirrored.disagrees
    proven = (Reason.FAILED_INFERENCES, Reason.SLOWER, Reason.METRICS_UNREADABLE)
    return answer if differs or answer.reason in proven else None


def _worse(
    window: SignalWindow, sums: Sums, question: Question, mirrored: Mirrored | None
) -> tuple[Reason, str] | None:
    limits = question.limits
    if sums.doubt >= -math.log(sums.texts.chance if sums.texts else sums.alpha):
        return Reason.FAILED_INFERENCES, failures(sums)
    if flaw := disagreement(window.probes, limits):
        return Reason.OUTPUTS_DIFFER, flaw
    if mirrored and mirrored.disagrees:
        return Reason.OUTPUTS_DIFFER, mirrored.flaw
    if sums.texts and (found := texts.left(sums.texts) or texts.other_answers(sums.texts, limits)):
        return found
    if sums.cure:
        # What answers and does not fail is better than what fails, however fast that is.
        return None
    if slow := _slower(sums, limits):
        return Reason.SLOWER, slow
    if sums.rejected.evidence >= -math.log(sums.alpha):
        return Reason.SLOWER, rejections(sums)
    if sums.texts and (found := texts.late(sums.texts, limits)):
        return found
    if limits.required and (words := missed(sums.percentile, limits, sums.alpha)):
        return Reason.OBJECTIVE_MISSED, f"It misses the objective: {words}"
    return _slow_tail(sums.tail, question, sums.alpha)


def _slower(sums: Sums, limits: Limits) -> str:
    """Empty where it is not, or may not be."""
    slow = [one.name for one in sums.latencies if one.ratio and one.ratio.low > math.log1p(limits.slowdown)]
    if not slow:
        return ""
    if sums.texts is None:
        return f"It is slower than the stable revision: {figures(sums, limits)}."
    return (f"By its {' and its '.join(slow)} it is slower than the stable revision: {figures(sums, limits)}. If that "
            f"is meant, raise spec.rollout.analysis.maxSlowdown.")


def _slow_tail(tail: Tail, question: Question, alpha: float) -> tuple[Reason, str] | None:
    """p99 against the objective, where the stable revision keeps it, and against the stable revision."""
    if tail.newest is None:
        return None
    mine, theirs = tail.newest
    figures = f"p99 {mine:.3g} ms, of the stable revision {theirs:.3g} ms"
    ratio = tail.ratio.interval(alpha)
    if ratio and ratio.low > math.log1p(question.limits.slowdown):
        return Reason.SLOWER, f"Its tail is slower than the stable revision's: {figures}."
    if question.limits.milliseconds is None:
        return None
    most = question.limits.milliseconds
    off, theirs_off = tail.candidate.interval(alpha), tail.stable.interval(alpha)
    if off and theirs_off and off.low > math.log(most) > theirs_off.mean:
        return (Reason.OBJECTIVE_MISSED,
                f"It misses the objective of {most:g} ms, which the stable one keeps: {figures}.")
    return None


def _missing(window: SignalWindow, sums: Sums, limits: Limits) -> str:
    """Which samples, or how much time is missing; empty when nothing is."""
    if _fewest(sums) < limits.requests:
        tried = f"; {window.probes.problem}" if window.probes.problem else ""
        return f"{limits.requests} requests of each are needed{tried}"
    awaited = limits.similarity is not None and not uncompared(window.probes, limits)
    if awaited and len(window.probes.similarities) < COMPARED_PAIRS:
        return "outputs are being compared"
    if _tail_is_awaited(sums, limits):
        return "p99 is compared once a minute"
    return f"the analysis lasts {limits.watched:.0f} s at least" if sums.seconds < limits.watched else ""


def _mirroring(sums: Sums, limits: Limits, mirrored: Mirrored | None) -> str:
    """Empty once there are enough, or the analysis has taken as long as it is meant to: a quarter of that is
    ``watched``. Where no live request comes the analysis waits no longer for one."""
    if mirrored is None or mirrored.enough or sums.seconds >= min(4 * limits.watched, limits.patience):
        return ""
    return f"{LEAST_MIRRORED} {mirrored.what} are needed"


def _tail_is_awaited(sums: Sums, limits: Limits) -> bool:
    """Where it is exported, and the analysis may take as long as it needs: a quarter of that is ``watched``."""
    time = 4 * limits.watched >= TAIL_SECONDS and sums.waited < limits.patience
    return time and sums.tail.due is not None and sums.tail.ratio.count < FEWEST_VALUES


def _objective_awaited(sums: Sums, limits: Limits) -> str:
    """Not of what mends a stable revision that fails."""
    return unknown(sums.percentile, limits) if limits.awaited and not sums.cure else ""


def _fewest(sums: Sums) -> float:
    """Of the stable revision failures count as well: else one that fails always would stand in its own cure's way."""
    return min(sums.candidate.requests, sums.stable.requests + sums.stable.failed)

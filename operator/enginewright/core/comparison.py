"""A candidate against the stable revision in the same seconds: is it proven as good, proven worse, or still open?

Latency is compared second by second, so that what slows both (a busy node, a burst of large requests) cancels out;
failures against those of the stable revision, so that a client's bad requests, which hit both, blame nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from enginewright.core.observed import ProbeResults, Round, SignalWindow, Traffic
from enginewright.core.reasons import Reason
from enginewright.core.sequential import Interval, Trials, confidence_sequence, more_failures

# Chance of a wrong word on latency, and on failures, however long the analysis takes.
ALPHA: Final = 0.001
# Evidence of more failures (as odds) that is not enough to give up but too much to promote.
DOUBT: Final = math.log(8.0)
# Requests of each side that make one pair of means; seconds are put together until they hold so many.
PAIR_REQUESTS: Final = 5.0
# From about here on the noise of a second's mean is the machine's, not that of few requests.
ENOUGH_REQUESTS: Final = 20.0
# One second counts at most as eight times slower or faster: a stall is one event.
MOST_LOG_RATIO: Final = math.log(8.0)
# Load a replica may get more or less than the other side's before time in the queue is left out.
FAIR_LOAD: Final = 1.5
# What failures are held against where there is no stable replica.
TOLERABLE: Final = Traffic(requests=99.0, failed=1.0)
# Answers of both to the same input before promotion, and strays among them that say something.
COMPARED_PAIRS: Final = 5
FLAWED_PAIRS: Final = 3
# Answers of both without one number to compare (text, no detections): more will not have any either.
FRUITLESS_PAIRS: Final = 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """``slowdown`` is the largest relative rise of mean latency (0.25: a quarter slower). ``requests`` are needed of
    each side. ``milliseconds`` bounds the ``percentile`` where the server exports it, None without an objective.
    ``similarity`` is the least cosine between the outputs of both to the same input; None where they are meant to
    differ. Nobody is good before ``watched`` seconds; after ``patience`` seconds the best estimate decides."""

    slowdown: float = 0.25
    requests: int = 60
    percentile: float = 99.0
    milliseconds: float | None = None
    similarity: float | None = None
    watched: float = 0.0
    patience: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which two revisions are compared. ``key`` names the analysis: another one begins with no samples. ``model`` is
    the name under which both serve it. ``alone`` when the stable one has no replica left to compare with."""

    key: str
    stable: str
    candidate: str
    model: str
    limits: Limits = Limits()
    alone: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``ratio`` is the candidate's mean latency over the stable revision's, None before it can be told. ``requests``
    and ``failures`` are the candidate's, ``seconds`` how long both were watched. ``message`` says all this, and when
    the verdict is open, what is missing; ``starved`` says that it may never come: it is requests, and probes bring
    none, or it has not come with all patience, and a person has to say what is to be. ``uncompared`` is why outputs
    were not compared that should have been."""

    verdict: Literal["good", "worse", "open"]
    message: str
    reason: Reason | None = None
    ratio: Interval | None = None
    requests: int = 0
    failures: int = 0
    seconds: float = 0.0
    starved: bool = False
    uncompared: str = ""


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """What both did over the whole analysis: ``seconds`` since the candidate's first sample, ``waited`` since anybody
    was asked for one. ``cure`` when it is the stable revision that is shown to fail more."""

    candidate: Traffic
    stable: Traffic
    seconds: float
    waited: float
    ratio: Interval | None
    doubt: float
    cure: bool


def compare(window: SignalWindow | None, question: Question) -> Answer:
    if window is None or window.analysis != question.key:
        return Answer(verdict="open", message="no request has been measured yet")
    sums = _sums(window.rounds, question)
    if question.alone:
        return _alone(window, sums, question.limits)
    answer = Answer(
        verdict="open",
        message=_figures(sums, question.limits),
        uncompared=_uncompared(window.probes, question.limits),
        ratio=sums.ratio and _exp(sums.ratio),
        requests=round(sums.candidate.requests),
        failures=round(sums.candidate.failed),
        seconds=sums.seconds,
    )
    if worse := _worse(window, sums, question):
        reason, message = worse
        return replace(answer, verdict="worse", reason=reason, message=message)
    if answer.uncompared and _fewest(sums) >= question.limits.requests:
        answer = replace(answer, message=f"{answer.message}; outputs were not compared: {answer.uncompared}")
    if missing := _missing(window, sums, question.limits):
        few = _fewest(sums) < question.limits.requests
        starved = (few and bool(window.probes.problem)) or sums.waited >= question.limits.patience
        return replace(answer, message=f"{answer.message}; {missing}", starved=starved)
    if sums.doubt <= DOUBT and (sums.cure or _fast(sums, question.limits)):
        return replace(answer, verdict="good")
    if sums.seconds >= question.limits.patience:
        return _best_guess(answer, sums, question.limits)
    unclear = "its failures are not told from chance yet" if sums.doubt > DOUBT else "too close to tell yet"
    return replace(answer, message=f"{answer.message}; {unclear}")


def _fast(sums: _Sums, limits: Limits) -> bool:
    return sums.ratio is not None and sums.ratio.high < math.log1p(limits.slowdown)


def _alone(window: SignalWindow, sums: _Sums, limits: Limits) -> Answer:
    """Nothing to compare with: enough requests, and hardly a failure among them."""
    answer = Answer(
        verdict="open",
        message=f"{_figures(sums, limits)}; no stable replica is left to compare it with",
        requests=round(sums.candidate.requests),
        failures=round(sums.candidate.failed),
        seconds=sums.seconds,
    )
    if sums.doubt >= -math.log(ALPHA):
        failed, whole = sums.candidate.failed, sums.candidate.failed + sums.candidate.requests
        message = f"{failed:.0f} of {whole:.0f} inferences failed."
        return replace(answer, verdict="worse", reason=Reason.FAILED_INFERENCES, message=message)
    if sums.candidate.requests < limits.requests:
        starved = bool(window.probes.problem) or sums.waited >= limits.patience
        return replace(answer, message=f"{answer.message}; {limits.requests} requests are needed", starved=starved)
    if sums.seconds < limits.watched or sums.doubt > DOUBT:
        return replace(answer, starved=sums.waited >= limits.patience)
    return replace(answer, verdict="good")


def _best_guess(answer: Answer, sums: _Sums, limits: Limits) -> Answer:
    """Out of patience: the limit may lie within what is possible, but not below what is likeliest."""
    near = sums.ratio is not None and sums.ratio.mean < math.log1p(limits.slowdown)
    if near and sums.doubt <= DOUBT:
        return replace(answer, verdict="good", message=f"{answer.message}, as far as could be told")
    message = f"It could not be shown to be as good: {answer.message}."
    return replace(answer, verdict="worse", reason=Reason.ANALYSIS_INCONCLUSIVE, message=message)


def fails_more(window: SignalWindow | None, question: Question) -> Answer | None:
    """Whether the candidate is proven to fail more often, latency aside: for when load shifts from one to the other."""
    if window is None or window.analysis != question.key:
        return None
    sums = _sums(window.rounds, question)
    if sums.doubt < -math.log(ALPHA):
        return None
    return Answer(verdict="worse", reason=Reason.FAILED_INFERENCES, message=_failures(sums))


def proven_worse(answer: Answer) -> Answer | None:
    """While a person is waited for: one that is shown to be worse, not one that is no longer shown to be good."""
    proven = answer.verdict == "worse" and answer.reason in (Reason.FAILED_INFERENCES, Reason.SLOWER)
    return answer if proven else None


def _sums(rounds: Sequence[Round], question: Question) -> _Sums:
    pairs = [
        (one.traffic.get(question.candidate, Traffic()), one.traffic.get(question.stable, Traffic())) for one in rounds
    ]
    watched = [one.time for one in rounds if question.candidate in one.traffic]
    candidate, stable = _add(pair[0] for pair in pairs), _add(pair[1] for pair in pairs)
    doubt = more_failures(_trials(pairs, TOLERABLE if question.alone else stable, question.alone))
    mirrored = [(theirs, mine) for mine, theirs in pairs]
    return _Sums(
        candidate=candidate,
        stable=stable,
        seconds=watched[-1] - watched[0] if watched else 0.0,
        waited=rounds[-1].time - rounds[0].time if rounds else 0.0,
        ratio=_ratio(pairs),
        doubt=doubt,
        cure=not question.alone and more_failures(_trials(mirrored, candidate, False)) >= -math.log(ALPHA),
    )


def _add(parts: Iterable[Traffic]) -> Traffic:
    total = Traffic()
    for part in parts:
        total = total + part
    return total


def _trials(pairs: Sequence[tuple[Traffic, Traffic]], whole: Traffic, alone: bool) -> Iterable[Trials]:
    """Seconds in which the stable revision got no request are put together with the next in which it did: what it did
    may be held against the candidate once only. What is left when it gets none any more is held, as one, against all
    it got."""
    mine, rounds = Traffic(), 0
    for candidate, stable in pairs:
        mine, rounds = mine + candidate, rounds + (candidate.failed > 0)
        other = whole if alone else stable
        if other.requests + other.failed > 0:
            yield _trial(mine, other, rounds)
            mine, rounds = Traffic(), 0
    yield _trial(mine, whole, rounds)


def _trial(mine: Traffic, other: Traffic, rounds: int) -> Trials:
    return Trials(mine.failed, mine.failed + mine.requests, other.failed, other.failed + other.requests, rounds)


def _ratio(pairs: Sequence[tuple[Traffic, Traffic]]) -> Interval | None:
    """Logarithm of the candidate's mean latency over the stable revision's.

    The logarithm of a mean of n requests is too small by variance / 2n (delta method). That cancels out where both get
    as many; where not, it is put right by the variance that the pairs themselves show.
    """
    blocks = list(_blocks(pairs))
    values = [_log_ratio(candidate, stable) for candidate, stable in blocks]
    few = [(1 / candidate.requests, 1 / stable.requests) for candidate, stable in blocks]
    weights = [1 / (mine + theirs + 1 / ENOUGH_REQUESTS) for mine, theirs in few]
    total = sum(weights)
    if not total:
        return None
    mean = sum(weight * value for value, weight in zip(values, weights, strict=True)) / total
    variance = sum((value - mean) ** 2 for value in values) / sum(mine + theirs for mine, theirs in few)
    values = [value + variance * (mine - theirs) / 2 for value, (mine, theirs) in zip(values, few, strict=True)]
    return confidence_sequence(values, weights, ALPHA)


def _blocks(pairs: Sequence[tuple[Traffic, Traffic]]) -> Iterable[tuple[Traffic, Traffic]]:
    """Neighbouring seconds, put together until both sides have enough requests for a mean."""
    mine, theirs = Traffic(), Traffic()
    for candidate, stable in pairs:
        mine, theirs = mine + candidate, theirs + stable
        if min(mine.requests, theirs.requests) >= PAIR_REQUESTS and min(mine.busy, theirs.busy) > 0:
            yield mine, theirs
            mine, theirs = Traffic(), Traffic()


def _log_ratio(candidate: Traffic, stable: Traffic) -> float:
    """Replicas that get more requests have longer queues, which is no fault of theirs: under unlike load the queue is
    left out on both sides."""
    load = (candidate.requests / max(1, candidate.replicas)) / (stable.requests / max(1, stable.replicas))
    mine, theirs = candidate.busy, stable.busy
    if not 1 / FAIR_LOAD <= load <= FAIR_LOAD:
        mine, theirs = mine - candidate.queued, theirs - stable.queued
    if min(mine, theirs) <= 0:
        mine, theirs = candidate.busy, stable.busy
    found = math.log((mine / candidate.requests) / (theirs / stable.requests))
    return max(-MOST_LOG_RATIO, min(MOST_LOG_RATIO, found))


def _worse(window: SignalWindow, sums: _Sums, question: Question) -> tuple[Reason, str] | None:
    limits = question.limits
    if sums.doubt >= -math.log(ALPHA):
        return Reason.FAILED_INFERENCES, _failures(sums)
    if flaw := _disagreement(window.probes, limits):
        return Reason.OUTPUTS_DIFFER, flaw
    if sums.cure:
        # What answers and does not fail is better than what fails, however fast that is.
        return None
    if sums.ratio and sums.ratio.low > math.log1p(limits.slowdown):
        return Reason.SLOWER, f"It is slower than the stable revision: {_figures(sums, limits)}."
    return _slow_tail(window.rounds, question)


def _slow_tail(rounds: Sequence[Round], question: Question) -> tuple[Reason, str] | None:
    """p99 against the objective, where the stable revision keeps it, and against the stable revision."""
    pairs = [
        (one.traffic[question.candidate].p99, one.traffic[question.stable].p99)
        for one in rounds
        if question.candidate in one.traffic and question.stable in one.traffic
    ]
    known = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
    if not known:
        return None
    even = [1.0] * len(known)
    mine, theirs = known[-1]
    told = f"p99 {mine:.3g} ms, of the stable revision {theirs:.3g} ms"
    ratio = confidence_sequence([math.log(mine / theirs) for mine, theirs in known], even, ALPHA)
    if ratio and ratio.low > math.log1p(question.limits.slowdown):
        return Reason.SLOWER, f"Its tail is slower than the stable revision's: {told}."
    if question.limits.milliseconds is None:
        return None
    most = question.limits.milliseconds
    mine_off = confidence_sequence([math.log(mine / most) for mine, _ in known], even, ALPHA)
    theirs_off = confidence_sequence([math.log(theirs / most) for _, theirs in known], even, ALPHA)
    if mine_off and theirs_off and mine_off.low > 0 > theirs_off.mean:
        return Reason.OBJECTIVE_MISSED, f"It misses the objective of {most:g} ms, which the stable one keeps: {told}."
    return None


def _disagreement(probes: ProbeResults, limits: Limits) -> str:
    """Empty when there is none."""
    if probes.flawed >= FLAWED_PAIRS and 2 * probes.flawed > probes.pairs:
        return f"{probes.flawed} of {probes.pairs} probes that the stable revision answers went wrong: {probes.flaw}."
    median = probes.median
    if limits.similarity is None or len(probes.similarities) < COMPARED_PAIRS or median is None:
        return ""
    if median >= limits.similarity:
        return ""
    return (
        f"Its outputs are not those of the stable revision on the same inputs: cosine {median:.3f} (median of "
        f"{len(probes.similarities)}, limit {limits.similarity:.3f})."
    )


def _missing(window: SignalWindow, sums: _Sums, limits: Limits) -> str:
    """Which samples, or how much time is missing; empty when nothing is."""
    if _fewest(sums) < limits.requests:
        tried = f"; {window.probes.problem}" if window.probes.problem else ""
        return f"{limits.requests} requests of each are needed{tried}"
    awaited = limits.similarity is not None and not _uncompared(window.probes, limits)
    if awaited and len(window.probes.similarities) < COMPARED_PAIRS:
        return "its outputs are being compared"
    return f"it is watched for {limits.watched:.0f} s at least" if sums.seconds < limits.watched else ""


def _fewest(sums: _Sums) -> float:
    """Of the stable revision failures count as well: else one that fails always would stand in its own cure's way."""
    return min(sums.candidate.requests, sums.stable.requests + sums.stable.failed)


def fruitless(probes: ProbeResults) -> bool:
    """Whether the outputs are not such as can be compared."""
    return not probes.similarities and probes.pairs - probes.flawed >= FRUITLESS_PAIRS


def _uncompared(probes: ProbeResults, limits: Limits) -> str:
    if limits.similarity is None or len(probes.similarities) >= COMPARED_PAIRS:
        return ""
    if fruitless(probes):
        return f"{probes.pairs} answers of both hold no numbers to compare, or too many"
    return probes.problem


def _figures(sums: _Sums, limits: Limits) -> str:
    count = f"over {sums.seconds:.0f} s, {sums.candidate.requests:.0f} requests"
    if sums.candidate.failed:
        count += f", {sums.candidate.failed:.0f} failed"
    cure = f"; the stable revision fails more ({sums.stable.failed:.0f})" if sums.cure else ""
    if sums.ratio is None:
        return f"latency ratio unknown {count}{cure}"
    ratio = _exp(sums.ratio)
    limit = 1 + limits.slowdown
    return f"latency ratio {ratio.mean:.2f} ({ratio.low:.2f} to {ratio.high:.2f}, limit {limit:.2f}) {count}{cure}"


def _failures(sums: _Sums) -> str:
    mine, theirs = sums.candidate, sums.stable
    return (
        f"{mine.failed:.0f} of {mine.failed + mine.requests:.0f} inferences failed, of the stable revision's "
        f"{theirs.failed:.0f} of {theirs.failed + theirs.requests:.0f}."
    )


def _exp(logs: Interval) -> Interval:
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))

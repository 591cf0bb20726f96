"""Candidates of the ladder: what was built and measured, what was decided, and why, in words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from enginewright_builder.accuracy import Accuracy
from enginewright_builder.contract import CandidateSummary, ObjectiveRequest, Verdict
from enginewright_builder.engines.base import Artifact, Rung, Runner
from enginewright_builder.measure import Timing, speedup, speedup_high

# Closer than this, two candidates are equally fast, and the more precise one is taken.
SAME_SPEED = 0.03
# Names of full precision, best first; what is offered when nothing passes.
FULL_PRECISION = ("fp32", "tf32", "bf16", "fp16")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """``wanted`` is False for the full-precision rung that is measured only to be offered. ``failure`` says why there
    are no figures, empty if there are."""

    rung: Rung
    wanted: bool = True
    failure: str = ""
    artifact: Artifact | None = None
    runner: Runner | None = field(default=None, repr=False)
    accuracy: Accuracy | None = None
    timing: Timing | None = None
    verdict: Verdict = "Skipped"
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.rung.backend} {self.rung.precision}"

    def summary(self, batch: int) -> CandidateSummary:
        timing, accuracy = self.timing, self.accuracy
        return CandidateSummary(
            backend=self.rung.backend, precision=self.rung.precision, batch=batch, verdict=self.verdict,
            reason=self.reason, size_bytes=self.artifact.size_bytes if self.artifact else None,
            p50_ms=round(timing.percentile(50), 4) if timing else None,
            p95_ms=round(timing.percentile(95), 4) if timing else None,
            p99_ms=round(timing.percentile(99), 4) if timing else None,
            throughput=round(timing.throughput, 3) if timing else None,
            accuracy=accuracy.value if accuracy else None, accuracy_low=accuracy.low if accuracy else None)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """All candidates with their verdicts. ``winner`` is None when nothing may be served; ``problem`` then says why, as
    a condition's reason."""

    candidates: tuple[Candidate, ...]
    winner: Candidate | None = None
    problem: str = ""


def judge(candidates: list[Candidate], reference: Timing, tolerance: float, objective: ObjectiveRequest,
          source: str = "") -> Judgement:
    """Gate first, then speed: the fastest that passes, the more precise of equals, and none slower than the source.

    ``source`` names the candidate that is the source itself, as FP32 is of an ONNX: it cannot be slower than itself,
    whatever a noisy machine says.
    """
    gated = [_gate(candidate, tolerance) for candidate in candidates]
    passed = [candidate for candidate in gated if candidate.verdict == "Passed" and candidate.wanted]
    if not passed:
        return _offer(gated, "AccuracyNotReached")
    best = _best(passed, objective)
    itself = next((one for one in passed if one.name == source), None)
    if best is not itself and _slower_than_source(reference, best):
        if itself is not None:
            return _shipped(gated, itself, reference)
        slower = [_lost_to_source(candidate, reference) if candidate in passed else candidate for candidate in gated]
        return _offer(slower, "NotFasterThanSource")
    return _shipped(gated, best, reference)


def _shipped(gated: list[Candidate], best: Candidate, reference: Timing) -> Judgement:
    shipped = replace(best, verdict="Shipped", reason=_why(best, reference))
    judged = tuple(shipped if candidate is best else _compare(candidate, best) for candidate in gated)
    return Judgement(candidates=judged, winner=shipped)


def _gate(candidate: Candidate, tolerance: float) -> Candidate:
    accuracy = candidate.accuracy
    if candidate.rung.unavailable:
        return replace(candidate, verdict="Skipped", reason=candidate.rung.unavailable)
    if candidate.failure or accuracy is None or candidate.timing is None:
        return replace(candidate, verdict="Failed", reason=candidate.failure or "it was not measured")
    if not accuracy.finite:
        return replace(candidate, verdict="AccuracyRefused", reason="answers NaN or infinity where the source does not")
    if not accuracy.passes(tolerance):
        return replace(candidate, verdict="AccuracyRefused", reason=(
            f"mean {accuracy.metric} {accuracy.value:.4f}, lower bound {accuracy.low:.4f} < {1 - tolerance:.4g}"))
    return replace(candidate, verdict="Passed", reason=f"{accuracy.metric} lower bound {accuracy.low:.4f}")


def _best(passed: list[Candidate], objective: ObjectiveRequest) -> Candidate:
    """Order of ``passed`` is most precise first, so that a tie goes to the more precise."""
    limit, percentile = objective.latency_ms, objective.latency_percentile
    meeting = [one for one in passed if limit > 0 and _timing(one).percentile(percentile) <= limit]
    best, *others = meeting or passed
    for other in others:
        if speedup(_timing(best), _timing(other)) > 1 + SAME_SPEED:
            best = other
    return best


def _timing(candidate: Candidate) -> Timing:
    if candidate.timing is None:
        raise ValueError(f"{candidate.name} was not measured")
    return candidate.timing


def _slower_than_source(reference: Timing, candidate: Candidate) -> bool:
    """Only if even the upper bound of the speedup says so: the same graph measured twice is not slower than itself."""
    return speedup_high(reference, _timing(candidate)) < 1 - SAME_SPEED


def _why(best: Candidate, reference: Timing) -> str:
    factor = speedup(reference, _timing(best))
    return f"{factor:.2f}× the source model's throughput; {best.reason}"


def _compare(candidate: Candidate, best: Candidate) -> Candidate:
    if candidate.verdict != "Passed":
        return candidate
    if not candidate.wanted:
        return replace(candidate, verdict="Skipped", reason="not asked for: measured to have something to offer")
    factor = speedup(_timing(candidate), _timing(best))
    if factor > 1 + SAME_SPEED:
        return replace(candidate, verdict="Slower", reason=f"passes, but {factor:.2f}× slower than {best.name}")
    return replace(candidate, reason=f"passes and is as fast as {best.name}, which is the more precise")


def _lost_to_source(candidate: Candidate, reference: Timing) -> Candidate:
    factor = 1 / speedup(reference, _timing(candidate))
    return replace(candidate, verdict="Slower", reason=f"passes, but {factor:.2f}× slower than the source model as it "
                   f"is")


def _offer(gated: list[Candidate], problem: str) -> Judgement:
    """The most precise candidate that works at all, closest to the reference."""
    working = [one for one in gated if one.accuracy and one.accuracy.finite and one.timing]
    if not working:
        return Judgement(candidates=tuple(gated), problem=problem)
    full = [one for one in working if one.rung.precision in FULL_PRECISION]
    offered = max(full or working, key=lambda one: one.accuracy.low if one.accuracy else 0.0)
    told = replace(offered, verdict="Offered", reason=f"not served, but the best there is: {offered.reason}")
    return Judgement(problem=problem, candidates=tuple(told if one is offered else one for one in gated))

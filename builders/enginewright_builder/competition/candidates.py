"""Candidates of the ladder: what was built and measured, what was decided, and why, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from enginewright_builder.accuracy.gate import Accuracy
from enginewright_builder.competition.agenda import SAFE
from enginewright_builder.competition.assembly import Contender, assemble
from enginewright_builder.competition.measure import Timing
from enginewright_builder.competition.race import Heat
from enginewright_builder.contract import BucketFigure, CandidateSummary, Verdict
from enginewright_builder.engines.base import Artifact, Rung, Runner
from enginewright_builder.engines.composite import runtime

# The source model among the arms.
REFERENCE = "reference"
# Names of full precision, best first; what is offered when nothing passes.
FULL_PRECISION = (SAFE, "tf32", "bf16", "fp16")
_UNUSED = "passes, but no batch that it takes is in use"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """``wanted`` is False for the full-precision rung that is measured only to be offered. ``failure`` says why there
    is nothing to measure, ``skipped`` why it was not even tried, ``lost`` by what it fell out of the race before the
    last one; empty if none is so. ``late``: it was skipped, or stopped, for lack of time. ``kept`` are the ONNX nodes
    left in higher precision after a first refusal.
    ``timings`` are by batch. ``build_seconds`` count to the end of the build, or of the attempt that failed;
    ``gate_seconds`` from there until it was held against the source model. ``serves`` are the buckets that it ships
    for. ``starved``: it failed as the GPU had no memory left for it."""

    rung: Rung
    wanted: bool = True
    failure: str = ""
    starved: bool = False
    skipped: str = ""
    late: bool = False
    lost: str = ""
    kept: tuple[str, ...] = ()
    artifact: Artifact | None = None
    runner: Runner | None = field(default=None, repr=False)
    accuracy: Accuracy | None = None
    timings: Mapping[int, Timing] = field(default_factory=dict)
    build_seconds: float | None = None
    gate_seconds: float | None = None
    verdict: Verdict = "Skipped"
    reason: str = ""
    serves: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        layers = f"{len(self.kept)} layer{'s' if len(self.kept) > 1 else ''}"
        return self.rung.name + (f" (kept {layers} in higher precision)" if self.kept else "")

    def passes(self, tolerance: float) -> bool:
        return self.artifact is not None and self.accuracy is not None and self.accuracy.passes(tolerance)

    def summary(self, batch: int) -> CandidateSummary:
        """With the figures of ``batch`` in front, or of the largest batch below it that was measured."""
        accuracy = self.accuracy
        at = max((size for size in self.timings if size <= batch), default=min(self.timings, default=batch))
        timing = self.timings.get(at)
        return CandidateSummary(
            backend=self.rung.backend, precision=self.rung.precision, name=self.name, batch=at, verdict=self.verdict,
            reason=self.reason, serves=self.serves, size_bytes=self.artifact.size_bytes if self.artifact else None,
            p50_ms=round(timing.percentile(50), 4) if timing else None,
            p95_ms=round(timing.percentile(95), 4) if timing else None,
            p99_ms=round(timing.percentile(99), 4) if timing else None,
            throughput=round(timing.throughput, 3) if timing else None,
            accuracy=accuracy.value if accuracy else None, accuracy_low=accuracy.low if accuracy else None,
            task=accuracy.task if accuracy else None,
            buckets=tuple(bucket_figure(self.timings[size]) for size in sorted(self.timings)),
            build_seconds=_rounded(self.build_seconds), gate_seconds=_rounded(self.gate_seconds))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def bucket_figure(timing: Timing) -> BucketFigure:
    low, high = timing.interval
    return BucketFigure(batch=timing.batch, p50_ms=round(timing.percentile(50), 4), low_ms=round(low, 4),
                        high_ms=round(high, 4), throughput=round(timing.throughput, 3))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """All candidates with their verdicts. ``shipped`` names who serves each bucket, the same for all where one is
    enough; empty when nothing may be served: ``problem`` then says why, as a condition's reason. With both, the source
    model itself is served. ``used`` are the buckets that the objective uses."""

    candidates: tuple[Candidate, ...]
    used: tuple[int, ...]
    shipped: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def winners(self) -> dict[int, Candidate]:
        by_name = {one.name: one for one in self.candidates}
        return {batch: by_name[name] for batch, name in self.shipped.items()}


def judge(candidates: Sequence[Candidate], heats: Mapping[int, Heat], tolerance: float, source: str = "",
          python_runtimes: Collection[str] = ("onnxruntime",)) -> Judgement:
    """Gate first, then speed: the fastest in each bucket, the more accurate and then the smaller of equals, and
    none that seems slower than the source: where time ran out before that was sure, the source is what ran before.

    ``heats`` has every bucket, with the source model as the arm ``REFERENCE``. A bucket is used when its fastest
    candidate meets the latency objective at the median; tails are the server's to show, in the sweep. ``source`` names
    the candidate that is the source itself, as FP32 is of an ONNX: it cannot be slower than itself, whatever a noisy
    machine says. ``python_runtimes`` are what the server's Python can run: what several engines need to be one model.
    """
    gated = [gated_one(candidate, tolerance) for candidate in candidates]
    used = tuple(batch for batch, heat in sorted(heats.items()) if heat.used)
    passed = [one for one in gated if one.verdict == "Passed" and one.wanted and not one.lost]
    if not passed:
        late = any(one.wanted and one.late for one in gated)
        return _offer(gated, used, "BudgetTooSmall" if late else "AccuracyNotReached")
    contenders = _contenders(passed, heats, used, source, python_runtimes)
    shipped = assemble(contenders, used, tuple(sorted(heats)))
    if shipped is None:
        slower = [_lost_to_source(one, heats, used) if one in passed else one for one in gated]
        return _offer(slower, used, "NotFasterThanSource")
    judged = [_judged(one, gated, shipped, heats, used) for one in gated]
    return Judgement(candidates=tuple(judged), used=used, shipped=shipped)


def gated_one(candidate: Candidate, tolerance: float) -> Candidate:
    """With the verdict of the accuracy gate alone."""
    accuracy = candidate.accuracy
    if candidate.rung.unavailable or candidate.skipped:
        return replace(candidate, verdict="Skipped", reason=candidate.rung.unavailable or candidate.skipped)
    if candidate.failure or accuracy is None:
        return replace(candidate, verdict="Failed", reason=candidate.failure or "it was not compared with the source")
    if refusal := accuracy.refusal(tolerance):
        return replace(candidate, verdict="AccuracyRefused", reason=refusal)
    task = accuracy.task
    on_labels = f"{task.metric} on the labels {task.value:.4f}, the source's {task.source:.4f}" if task else ""
    figures = "; ".join(filter(None, (f"{accuracy.metric} lower bound {accuracy.low:.4f}", on_labels, accuracy.untold)))
    return replace(candidate, verdict="Passed", reason=figures)


def _contenders(passed: Sequence[Candidate], heats: Mapping[int, Heat], used: Collection[int],
                source: str, python_runtimes: Collection[str]) -> list[Contender]:
    able = {batch: [one.name for one in passed if heats[batch].times.get(one.name)
                    and (one.name == source or not heats[batch].ratio(one.name, REFERENCE).seems_slower)]
            for batch in used}
    return [Contender(name=one.name, accuracy=_low(one), native=_native(one),
                      size_bytes=one.artifact.size_bytes if one.artifact else 0,
                      joinable=one.artifact is not None and runtime(one.artifact) in python_runtimes,
                      covers=frozenset(batch for batch in heats if one.rung.covers(batch)),
                      held={batch: heats[batch].behind(one.name, names) for batch, names in able.items()
                            if one.name in names})
            for one in passed]


def _judged(candidate: Candidate, gated: Sequence[Candidate], shipped: Mapping[int, str],
            heats: Mapping[int, Heat], used: Sequence[int]) -> Candidate:
    """The verdict on one candidate once it is known what ships."""
    if candidate.verdict != "Passed":
        return candidate
    if candidate.name in shipped.values():
        return _shipped(candidate, shipped, heats, used)
    if not candidate.wanted:
        return replace(candidate, verdict="Skipped", reason="not asked for: measured to have something to offer")
    if candidate.lost:
        return replace(candidate, verdict="Slower", reason=candidate.lost)
    held = {batch: heats[batch].ratio(candidate.name, shipped[batch]) for batch in used
            if heats[batch].times.get(candidate.name)}
    if not held:
        return replace(candidate, verdict="Slower", reason=_UNUSED)
    worst = max(held, key=lambda batch: (held[batch].value, -batch))
    rival = shipped[worst]
    if not held[worst].near:
        return replace(candidate, verdict="Slower", reason=f"passes, but {held[worst].value:.2f}× slower than {rival}, "
                                                           f"at batch {worst}")
    why = _why_preferred(candidate, next(one for one in gated if one.name == rival))
    return replace(candidate, reason=f"passes and is as fast as {rival}, which is {why}")


def _why_preferred(candidate: Candidate, rival: Candidate) -> str:
    if _native(rival) and not _native(candidate):
        return "run by the server without Python in between"
    if _low(rival) > _low(candidate):
        return "the more accurate"
    return "no larger and as accurate" if _low(rival) == _low(candidate) else "the best elsewhere"


def _native(candidate: Candidate) -> bool:
    return candidate.artifact is not None and candidate.artifact.triton_backend != "python"


def _low(candidate: Candidate) -> float:
    return candidate.accuracy.low if candidate.accuracy else 0.0


def _shipped(candidate: Candidate, shipped: Mapping[int, str], heats: Mapping[int, Heat],
             used: Sequence[int]) -> Candidate:
    mine = sorted(batch for batch, name in shipped.items() if name == candidate.name)
    shown = max((batch for batch in mine if batch in used), default=None)
    served = "" if len(mine) == len(shipped) else f"for {_batches(mine, sorted(shipped))}: "
    speed = ""
    if shown is not None:
        factor = heats[shown].ratio(REFERENCE, candidate.name).value
        speed = f"{factor:.2f}× the source model's throughput at batch {shown}; "
    return replace(candidate, verdict="Shipped", reason=f"{served}{speed}{candidate.reason}", serves=tuple(mine))


def _batches(mine: Sequence[int], buckets: Sequence[int]) -> str:
    """``batches 1–8``: a bucket holds what is above the one before it."""
    spans: list[list[int]] = []
    for low, high in zip((1, *(size + 1 for size in buckets[:-1])), buckets, strict=True):
        if high not in mine:
            continue
        if spans and spans[-1][1] == low - 1:
            spans[-1][1] = high
        else:
            spans.append([low, high])
    named = ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in spans)
    return f"batch{'' if spans == [[1, 1]] else 'es'} {named}"


def _lost_to_source(candidate: Candidate, heats: Mapping[int, Heat], used: Sequence[int]) -> Candidate:
    factors = {batch: heats[batch].ratio(candidate.name, REFERENCE).value for batch in used
               if heats[batch].times.get(candidate.name)}
    if not factors:
        return replace(candidate, verdict="Slower", reason=_UNUSED)
    worst = max(factors, key=lambda batch: (factors[batch], -batch))
    return replace(candidate, verdict="Slower", reason=f"passes, but {factors[worst]:.2f}× slower than the source "
                                                       f"model as it is, at batch {worst}")


def _offer(gated: Sequence[Candidate], used: tuple[int, ...], problem: str) -> Judgement:
    """The most precise candidate that works at all, closest to the reference."""
    working = [one for one in gated if one.accuracy and one.accuracy.finite and one.artifact]
    if not working:
        return Judgement(candidates=tuple(gated), used=used, problem=problem)
    full = [one for one in working if one.rung.precision in FULL_PRECISION]
    offered = max(full or working, key=_low)
    offer = replace(offered, verdict="Offered", reason=f"not served, but the best there is: {offered.reason}")
    return Judgement(problem=problem, used=used, candidates=tuple(offer if one is offered else one for one in gated))

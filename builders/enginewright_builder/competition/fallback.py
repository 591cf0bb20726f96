"""The source model itself, served because no candidate may be and the user allows it (``spec.engine.fallback``).

What serves it is an engine of full precision, and the accuracy gate holds for it as for any other: an export that
answers otherwise than the source is not the source. It cannot be held to be faster than itself; how it compares with
the source as it was given is measured and said. The time budget does not bind it, as it has been spent on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from enginewright_builder.competition.agenda import BUILD_COST, SAFE
from enginewright_builder.competition.ascent import Ascent
from enginewright_builder.competition.candidates import REFERENCE, Candidate, Judgement, gated_one
from enginewright_builder.competition.race import Heat
from enginewright_builder.engines.base import Engine, Rung

_WHY = {"NotFasterThanSource": "none that passes is faster", "BudgetTooSmall": "the time budget was spent on others",
        "AccuracyNotReached": "none that was asked for passes"}


def serve_source(ascent: Ascent, engines: Sequence[Engine], judgement: Judgement, heats: dict[int, Heat],
                 source: str) -> tuple[Judgement, dict[int, Heat]]:
    """``source`` names the candidate that computes exactly what the source does, if any; it comes before others. What
    was judged, unchanged, where nothing of full precision passes the gate and runs in every bucket in use."""
    for one in _able(ascent, engines, source):
        alone = ascent.alone(one)
        used = tuple(batch for batch, heat in sorted(alone.items()) if heat.used)
        if all(alone[batch].times.get(one.name) for batch in used):
            return _judged(ascent, judgement, one.name, alone, used), alone
    return judgement, heats


def _able(ascent: Ascent, engines: Sequence[Engine], source: str) -> Iterator[Candidate]:
    """Of full precision, for every batch, and past the gate: those that are built first, the fastest first."""
    tolerance = ascent.workshop.accuracy.tolerance
    built = [one for one in ascent.measured() if one.artifact and not one.failure and not one.rung.ranges
             and (one.name == source or one.rung.precision == SAFE) and one.passes(tolerance)]
    yield from sorted(built, key=lambda one: (one.name != source, _slowness(one), one.name))
    tried = {one.name for one in ascent.candidates if one.artifact or one.failure}
    for rung in _rungs(ascent, engines):
        if rung.name not in tried:
            one = ascent.insist(rung)
            if one.passes(tolerance) and not one.failure:
                yield one


def _rungs(ascent: Ascent, engines: Sequence[Engine]) -> list[Rung]:
    """The quickest to build first."""
    found = [rung for engine in engines for rung in engine.rungs(SAFE, ascent.workshop.context)]
    last = max(BUILD_COST.values())
    return sorted((rung for rung in found if rung.precision == SAFE and not rung.unavailable),
                  key=lambda rung: BUILD_COST.get(rung.backend, last))


def _slowness(one: Candidate) -> float:
    largest = max(one.timings, default=None)
    return float("inf") if largest is None else one.timings[largest].percentile(50) / largest


def _judged(ascent: Ascent, before: Judgement, name: str, heats: Mapping[int, Heat],
            used: tuple[int, ...]) -> Judgement:
    verdicts = {one.name: one for one in before.candidates}
    judged = []
    for one in ascent.measured():
        known = verdicts.get(one.name)
        if one.name == name:
            judged.append(_served(one, before.problem, heats, used, ascent))
        elif known is None or known.verdict == "Offered":
            judged.append(gated_one(one, ascent.workshop.accuracy.tolerance))
        else:
            judged.append(replace(one, verdict=known.verdict, reason=known.reason))
    return Judgement(candidates=tuple(judged), used=used, shipped=dict.fromkeys(sorted(heats), name),
                     problem=before.problem)


def _served(one: Candidate, problem: str, heats: Mapping[int, Heat], used: tuple[int, ...],
            ascent: Ascent) -> Candidate:
    factor = heats[max(used)].ratio(REFERENCE, one.name).value
    gated = gated_one(one, ascent.workshop.accuracy.tolerance)
    return replace(gated, verdict="Fallback", serves=tuple(sorted(heats)), reason=(
        f"the source model itself, since {_WHY[problem]}: {factor:.2f}× the throughput of the source as it is at batch "
        f"{max(used)}; {gated.reason}"))

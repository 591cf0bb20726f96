"""Which of the tried configurations ships, and by which figures.

What leads was chosen for its figures, of which some were lucky. So its load is put on once more, and so is the
default's, in the same way. The report has these figures, and what ships is better by them as well. Under an objective
it keeps that by requests that did not choose it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginewright_builder.generate.sweep import LEAST_GAIN, Aim, Point, gains, shown
from enginewright_builder.generate.trial import Bench, Known, Trial
from enginewright_builder.sweep.confirm import confirm

Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """``trials`` with the reference first, as vLLM serves it by default; ``shipped`` is one of them. ``default`` is the
    better of the reference's loads at both ends of the build; ``confirmed`` says whether the second was there.
    ``gain`` is what ships against the default, by the load that was put on once more after it had been chosen."""

    trials: tuple[Trial, ...]
    shipped: Trial
    known: Known
    default: Point
    confirmed: bool
    gain: float


@dataclass(frozen=True, kw_only=True)
class Load:
    """``point`` is one of the trial at the place ``number``."""

    number: int
    point: Point


class Loads:
    """Those of ``trials``, which begin with the default: what :func:`enginewright_builder.sweep.confirm.confirm` has
    measured once more before it ships."""

    limited = True

    def __init__(self, trials: Sequence[Trial], aim: Aim) -> None:
        self.trials, self.aim, self.default = list(trials), aim, trials[0].best

    def best(self) -> Load:
        trial = chosen(self.trials)
        return Load(number=self.trials.index(trial), point=trial.best)

    def met(self, load: Load) -> bool:
        return load.point.meets and not self._slower(load)

    def score(self, load: Load) -> tuple[bool, float]:
        return load.point.rank

    def tell_again(self, load: Load) -> None:
        """Where it serves no better than the default now, none of its other loads is tried."""
        trial = with_again(self.trials[load.number], load.point)
        if self._slower(load):
            trial = dataclasses.replace(trial, verdict="Slower", reason="")
        self.trials[load.number] = trial

    def _slower(self, load: Load) -> bool:
        """Than the default, by a load that did not choose it. Whether it keeps the objective is another question."""
        if not load.number or not load.point.again:
            return False
        return not gains(load.point, dataclasses.replace(self.default, meets=load.point.meets and self.default.meets))


def with_again(trial: Trial, point: Point) -> Trial:
    """``point`` counts in place of all loads of that trial with as many requests in flight. A server that failed now
    keeps the objective with no other number either."""
    failed = not point.meets and not point.again
    others = [dataclasses.replace(one, meets=one.meets and not failed) for one in trial.points
              if one.concurrency != point.concurrency]
    return dataclasses.replace(trial, points=(*others, point))


def keeps(trial: Trial, aim: Aim) -> bool:
    """Whether one of its loads keeps the objective, by requests that did not choose it."""
    return trial.verdict == "Passed" and any(shown(one, aim) for one in trial.points)


def tries(trials: Sequence[Trial]) -> int:
    """How many loads were put on once more."""
    return sum(bool(point.again) for one in trials for point in one.points)


async def ship(bench: Bench, trials: Sequence[Trial], leader: Trial, known: Known, progress: Progress) -> Result:
    """The default is measured again, unless it leads: machines change while they are measured, and what ships is to be
    better than both. Where that could not be, or what leads could not be measured once more, the default ships."""
    first, found, again = trials[0], list(trials), tuple[Point, ...]()
    if leader is not first and bench.left > known.again:
        again = await bench.loads(first.candidate, first.best)
        found[0] = dataclasses.replace(first, points=(*first.points, *again))
    rivals = Loads(found if again else found[:1], bench.aim)
    end = time.monotonic() + bench.confirm_seconds

    async def once_more(load: Load, seconds: float) -> Load:
        if shown(load.point, bench.aim) and load.point.again:
            return load  # as the build was to stop where one keeps the objective
        trial = rivals.trials[load.number]
        progress(1.0, f"{trial.name}, with {load.point.concurrency} in flight: once more")
        return dataclasses.replace(load, point=await bench.again(trial.candidate, load.point, seconds))

    load = await confirm(rivals, once_more, lambda: end - time.monotonic(), tries(trials))
    if rivals.trials[load.number].verdict == "Slower" or (load.number and not load.point.again and load.point.meets):
        load = Load(number=0, point=rivals.trials[0].best)
    found[:len(rivals.trials)] = rivals.trials
    found[load.number] = shipped = dataclasses.replace(found[load.number], ships=load.point)
    default = rivals.default if load.number else load.point
    return Result(trials=tuple(judged(found, shipped, bench.aim)), shipped=_marked(shipped, bench.aim), known=known,
                  default=default, confirmed=bool(again),
                  gain=round(load.point.value / default.value, 3) if load.number and default.value else 1.0)


def chosen(trials: Sequence[Trial]) -> Trial:
    """The best of those that passed; the first, unless another is better by more than measurements differ by."""
    first = trials[0]
    rivals = [one for one in trials[1:] if one.verdict == "Passed" and gains(one.best, first.best)]
    return max(rivals, key=lambda one: one.best.rank, default=first)


def judged(trials: Sequence[Trial], shipped: Trial, aim: Aim) -> list[Trial]:
    """With what ships named, and what passed and serves no better than the reference called slower."""
    first = trials[0]
    return [_marked(one, aim) if one is shipped else
            dataclasses.replace(one, verdict="Slower", reason=f"{described(one.best, aim)}: less than "
                                f"{LEAST_GAIN - 1:.0%} better than {first.name} by default")
            if one is not first and ((one.verdict == "Passed" and not gains(one.best, first.best))
                                     or (one.verdict == "Slower" and tries([one]))) else
            dataclasses.replace(one, reason=described(one.best, aim)) if one.verdict in ("Passed", "Slower") else one
            for one in trials]


def _marked(trial: Trial, aim: Aim) -> Trial:
    return dataclasses.replace(trial, verdict="Shipped", reason=described(trial.best, aim))


def described(point: Point, aim: Aim) -> str:
    """In words."""
    found = point.figures
    failed = f", {found.failed} failed" if found.failed else ""
    guessed = point.speculated
    taken = f", {guessed.accepted} of {guessed.proposed} proposed tokens taken" if guessed else ""
    missed = f"{found.late:,} of {point.again:,} requests missed the objective" if aim.asked else (
        f"these are figures of {point.again:,} requests")
    once_more = f"; {missed} when the load was put on once more" if point.again else ""
    return (f"{found.output_rate:.1f} tokens/s with {point.concurrency} in flight, first token after "
            f"{found.ttft_ms.p50:.0f} ms and each further one after {found.tpot_ms.p50:.1f} (medians){taken}{failed}"
            f"{once_more}")

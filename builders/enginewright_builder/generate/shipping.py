"""Which of the tried configurations ships. It is better than the default at both ends of the build, and under an
objective it keeps that by requests that did not choose it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginewright_builder.generate.sweep import LEAST_GAIN, Aim, Point, gains
from enginewright_builder.generate.trial import Bench, Known, Trial
from enginewright_builder.sweep.confirm import confirm

Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """``trials`` with the reference first, as vLLM serves it by default; ``shipped`` is one of them. ``default`` is the
    better of the reference's loads at both ends of the build; ``confirmed`` says whether the second was there.
    ``gain`` is what ships against the default, by the loads that were compared, before one was put on once more."""

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

    def __init__(self, trials: Sequence[Trial], aim: Aim) -> None:
        self.trials, self.limited = list(trials), aim.asked

    def best(self) -> Load:
        trial = chosen(self.trials)
        return Load(number=self.trials.index(trial), point=trial.best)

    def met(self, load: Load) -> bool:
        return load.point.meets

    def score(self, load: Load) -> tuple[bool, float]:
        return load.point.rank

    def tell_again(self, load: Load) -> None:
        """It counts in place of all loads of that trial with as many requests in flight. A server that failed now keeps
        the objective with no other number either."""
        trial, failed = self.trials[load.number], not load.point.meets and not load.point.again
        others = [dataclasses.replace(one, meets=one.meets and not failed) for one in trial.points
                  if one.concurrency != load.point.concurrency]
        self.trials[load.number] = dataclasses.replace(trial, points=(*others, load.point))


async def ship(bench: Bench, trials: Sequence[Trial], leader: Trial, known: Known, progress: Progress) -> Result:
    """The default is measured again, unless it leads: machines change while they are measured, and what ships is to be
    better than both. Where that could not be, the default ships."""
    first, found, again = trials[0], list(trials), tuple[Point, ...]()
    if leader is not first and bench.left > known.again:
        again = await bench.loads(first.candidate)
        found[0] = dataclasses.replace(first, points=(*first.points, *again))
    rivals = Loads(found if again else found[:1], bench.aim)
    end, compared = time.monotonic() + bench.confirm_seconds, dict[tuple[int, int], float]()

    async def once_more(load: Load, seconds: float) -> Load:
        trial = rivals.trials[load.number]
        compared[load.number, load.point.concurrency] = load.point.value
        progress(1.0, f"{trial.name}, with {load.point.concurrency} in flight: once more")
        return dataclasses.replace(load, point=await bench.again(trial.candidate, load.point, seconds))

    load = await confirm(rivals, once_more, lambda: end - time.monotonic())
    found[:len(rivals.trials)] = rivals.trials
    found[load.number] = shipped = dataclasses.replace(found[load.number], ships=load.point)
    value, default = compared.get((load.number, load.point.concurrency), load.point.value), found[0].best
    return Result(trials=tuple(judged(found, shipped)), shipped=_marked(shipped), known=known,
                  default=default, confirmed=bool(again),
                  gain=round(value / default.value, 3) if load.number and default.value else 1.0)


def chosen(trials: Sequence[Trial]) -> Trial:
    """The best of those that passed; the first, unless another is better by more than measurements differ by."""
    first = trials[0]
    rivals = [one for one in trials[1:] if one.verdict == "Passed" and gains(one.best, first.best)]
    return max(rivals, key=lambda one: one.best.rank, default=first)


def judged(trials: Sequence[Trial], shipped: Trial) -> list[Trial]:
    """With what ships named, and what passed and serves no better than the reference called slower."""
    first = trials[0]
    return [_marked(one) if one is shipped else
            dataclasses.replace(one, verdict="Slower", reason=f"{described(one.best)}: less than "
                                f"{LEAST_GAIN - 1:.0%} better than {first.name} by default")
            if one.verdict == "Passed" and one is not first and not gains(one.best, first.best) else
            dataclasses.replace(one, reason=described(one.best)) if one.verdict in ("Passed", "Slower") else one
            for one in trials]


def _marked(trial: Trial) -> Trial:
    return dataclasses.replace(trial, verdict="Shipped", reason=described(trial.best))


def described(point: Point) -> str:
    """In words."""
    found = point.figures
    failed = f", {found.failed} failed" if found.failed else ""
    guessed = point.speculated
    taken = f", {guessed.accepted} of {guessed.proposed} proposed tokens taken" if guessed else ""
    once_more = (f"; {found.late:,} of {point.again:,} requests missed the objective when the load was put on once more"
                 if point.again else "")
    return (f"{found.output_rate:.1f} tokens/s with {point.concurrency} in flight, first token after "
            f"{found.ttft_ms.p50:.0f} ms and each further one after {found.tpot_ms.p50:.1f} (medians){taken}{failed}"
            f"{once_more}")

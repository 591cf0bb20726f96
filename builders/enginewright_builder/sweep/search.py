"""The search: asks for one measurement at a time, gets what it showed, and knows nothing of servers.

1. One request alone, then every instance under a middling load (:meth:`Space.first`); where energy is to be least,
fewer instances, too.
2. A queueing model of the server is fitted to what was measured, and predicts every trial of the space with its
uncertainty (:mod:`queueing`, :mod:`predict`), which grows with what the model turned out to be wrong by. The trial
whose expected gain over the best so far is largest is next ("expected improvement", Jones, Schonlau and Welch,
"Efficient global optimization of expensive black-box functions", Journal of Global Optimization 13, 1998), times the
chance that it keeps the latency objective.
3. It ends when no trial is expected to gain anything worth a measurement, or when measurements or time are used up.
4. Where one slow request may be in what was chosen (:mod:`doubt`), the last measurements that there is count or time
for go to the chosen point and to the one that beats it, again: what both measurements of a point show together counts.
5. Under a latency limit the chosen point is measured once more, and that measurement alone counts (:mod:`confirm`).

The best *measured* point is chosen: predictions decide what is measured, never what is shipped.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from enginewright_builder.contract import ENERGY, ObjectiveRequest
from enginewright_builder.sweep.doubt import in_doubt
from enginewright_builder.sweep.objective import met, score
from enginewright_builder.sweep.power import PowerLine, log_rate
from enginewright_builder.sweep.predict import Prediction, Predictor
from enginewright_builder.sweep.queueing import Vector
from enginewright_builder.sweep.result import Point
from enginewright_builder.sweep.space import Space, Trial

# An expected gain below this share is not worth a measurement, once there are so many that its uncertainty is known. It
# is an average: 0.0003 is a chance of one in thirty to gain 1 %.
WORTH_MEASURING, LEAST_MEASUREMENTS = 0.0003, 8
# So often is a point measured at most.
MOST_TIMES = 2
# Points this close in score are equal: then the simpler configuration is shipped.
EQUAL = 0.995

Measure = Callable[[Trial, Point | None], Awaitable[Point]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """Why a trial was measured: throughput and latency expected then (0: it was one of the first, or in doubt), and
    what it gave, together with what it gave before."""

    trial: Trial
    throughput: float
    latency_ms: float
    point: Point


@dataclass
class Search:
    """``ask`` and ``tell`` in turn. ``left`` counts measurements still allowed. A trial may be asked for once more: the
    point to tell is then what both measurements show together. ``ways`` is how many ways to serve the engine are
    searched, each by a search of its own."""

    space: Space
    objective: ObjectiveRequest
    left: int = 12
    ways: int = 1
    steps: list[Step] = field(default_factory=list)
    again: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._trials = self.space.trials()
        self._predictor = Predictor(self._trials)
        self._found: dict[Trial, Point] = {}
        self._times: Counter[Trial] = Counter()
        self._expected = (0.0, 0.0)

    @property
    def points(self) -> list[Point]:
        """One for each trial that was measured, in the order of their first measurements."""
        return list(self._found.values())

    def ask(self, time_for: float = math.inf) -> Trial | None:
        """What to measure next; None when the search is over. ``time_for`` is how many more measurements there is time
        for, as far as is known."""
        left = min(self.left, time_for)
        if left <= 0:
            return None
        self._expected = (0.0, 0.0)
        again = self.doubted()
        if again and left <= len(again):
            return again[0]
        begins = self.space.first(each_count=self.objective.minimise == ENERGY)
        first = next((trial for trial in begins if trial not in self._found), None)
        if first is not None:
            return first
        prediction = self._predictor.predict(self.points)
        choice, gain = self._most_promising(prediction)
        if gain < 0 or (len(self.steps) >= LEAST_MEASUREMENTS and gain < WORTH_MEASURING):
            return again[0] if again else None
        self._expected = (math.exp(prediction.throughput[choice]), math.exp(prediction.latency[choice]))
        return self._trials[choice]

    def tell(self, trial: Trial, point: Point) -> None:
        self.left -= 1
        self._found[trial] = point
        self._times[trial] += 1
        self.steps.append(Step(trial=trial, throughput=self._expected[0], latency_ms=self._expected[1], point=point))

    def tell_again(self, point: Point) -> None:
        """What a chosen trial showed when it was measured once more: it counts in place of what it was chosen by."""
        trial = Trial.of(point)
        self._found[trial] = point
        self.again.append(trial)

    @property
    def limited(self) -> bool:
        return self.objective.latency_ms > 0

    def met(self, point: Point) -> bool:
        return met(point, self.objective)

    def score(self, point: Point) -> tuple[int, float]:
        return score(point, self.objective)

    def best(self) -> Point:
        """The simplest of the points that nothing measured beats by more than ``EQUAL``. At least one has a result."""
        points = self.points
        top = max(points, key=self.score)
        close = [point for point in points if _equal(point, top, self.objective)]
        return min(close, key=_complexity)

    def rival(self, trial: Trial) -> Point | None:
        """The best point so far where the trial only has to differ from it; None where its own figures count."""
        best = self.best() if self._found else None
        return best if best and best.concurrency == trial.concurrency and trial not in self._found else None

    def doubted(self) -> list[Trial]:
        """What to measure again before the best point ships, the first thing first."""
        if not self._found:
            return []
        doubted = map(Trial.of, in_doubt(self.points, self.best(), self.objective))
        return [trial for trial in doubted if self._times[trial] < MOST_TIMES]

    def doubts(self, point: Point) -> bool:
        """Whether this point itself would be measured again, were there a measurement left."""
        return Trial.of(point) in self.doubted()

    def remaining_gain(self) -> float:
        """Share by which the most promising trial that was not measured is expected to beat the best point."""
        return max(0.0, self._most_promising(self._predictor.predict(self.points))[1])

    def _most_promising(self, prediction: Prediction) -> tuple[int, float]:
        """Its index and expected gain; the gain is negative when everything is measured."""
        gains = np.where([trial in self._found for trial in self._trials], -1.0, self._gains(prediction))
        choice = int(np.argmax(gains))
        return choice, float(gains[choice])

    def _gains(self, prediction: Prediction) -> Vector:
        """Expected share by which each trial beats the best so far, times the chance that it may be chosen at all."""
        best = max(self.points, key=self.score)
        limit, saves = self.objective.latency_ms, self.objective.minimise == ENERGY
        if limit <= 0 and saves:
            return self._savings(prediction, best)
        if limit <= 0:
            # Power is throughput over mean latency, and mean latency is load over throughput.
            load = np.log([trial.concurrency for trial in self._trials])
            now = math.log(best.throughput / (best.mean_ms / 1e3))
            return _improvement(2 * prediction.throughput - load, 2 * prediction.throughput_spread, now)
        chance: Vector = ndtr((math.log(limit) - prediction.latency) / prediction.latency_spread)
        if met(best, self.objective) and saves:
            return chance * self._savings(prediction, best)
        if met(best, self.objective):
            return chance * _improvement(prediction.throughput, prediction.throughput_spread,
                                         math.log(best.throughput))
        faster = _improvement(-prediction.latency, prediction.latency_spread, -math.log(best.objective_ms))
        hope: Vector = faster + chance * np.exp(prediction.throughput - prediction.throughput.max())
        return hope


    def _savings(self, prediction: Prediction, best: Point) -> Vector:
        """Expected share by which each trial gives more inferences a joule; 0 where nothing was metered."""
        _, now = score(best, self.objective)
        if now <= 0:
            return np.zeros(len(self._trials))
        # What idle instances draw is theirs: of each number of them another line.
        seen = [point for point in self.points if point.use and point.use.watts]
        lines = {count: PowerLine.of([one for one in seen if one.serving.instance_count == count] or seen)
                 for count in self.space.instances}
        drawn = [lines[trial.serving.instance_count] for trial in self._trials]
        idle, each = (np.array([getattr(line, name) for line in drawn]) for name in ("idle", "each"))
        rate, share = log_rate(idle, each, prediction.throughput)
        return _improvement(rate, prediction.throughput_spread * share, math.log(now))


def _improvement(mean: Vector, spread: Vector, best: float) -> Vector:
    """Expectation of ``max(0, value − best)`` for a normal value: on logarithms, an expected share."""
    ahead = (mean - best) / spread
    gain: Vector = spread * (ahead * ndtr(ahead) + np.exp(-ahead**2 / 2) / math.sqrt(2 * math.pi))
    return gain


async def run(search: Search, measure: Measure, seconds_left: Callable[[], float] = lambda: math.inf) -> Point:
    """Measures what the search asks for until it is over, or until time is after a measurement; at least one is made.
    ``measure`` also gets the best point so far at the same load, if that is what the trial competes with."""
    begin, trial = seconds_left(), search.ask()
    while trial is not None:
        search.tell(trial, await measure(trial, search.rival(trial)))
        trial = search.ask(_time_for(begin, seconds_left(), len(search.steps)))
    return search.best()


def _time_for(begin: float, left: float, made: int) -> float:
    """Measurements that begin before time is up, if each takes as long as those ``made`` did on average."""
    if left <= 0:
        return 0
    spent = begin - left  # not a number where time is without end
    return math.ceil(left * made / spent) if spent > 0 else math.inf


def _equal(point: Point, top: Point, objective: ObjectiveRequest) -> bool:
    kind, value = score(point, objective)
    top_kind, top_value = score(top, objective)
    if kind != top_kind:
        return False
    return value >= top_value * EQUAL if top_value >= 0 else value * EQUAL >= top_value


def _complexity(point: Point) -> tuple[int, int, int, int]:
    """Fewer instances hold less memory, a shorter delay surprises no client, a larger maximum refuses no client."""
    serving = point.serving
    return serving.instance_count, serving.max_queue_delay_us, -serving.max_batch_size, point.concurrency

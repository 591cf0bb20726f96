"""Which arm is the fastest in each batch bucket, found with as few timed rounds as the answer takes. Pure: timings come
through a callable, so recorded and made-up ones replay as well as real ones.

In a round every arm that is still in runs once, in random order, so that what slows the machine down hits all alike.
Two arms are compared by the ratio of their times within a round, whose logarithm is free of what both shared: the
Hodges–Lehmann estimate (median of the pairwise means) with the distribution-free interval that belongs to Wilcoxon's
signed-rank test (Hodges and Lehmann, Annals of Mathematical Statistics 34, 1963; Hollander, Wolfe and Chicken,
Nonparametric Statistical Methods, 2014, section 3.4). An outlier moves it little, and seven rounds are enough for one.
Rounds in which the machine was slow are left out, as they slow one arm more than the other.

The rounds double from look to look, and after each the losers leave, as in sequential halving (Karnin, Koren and
Somekh, ICML 2013), except that an interval decides who loses, not a quota: two arms of equal speed both stay, ten
hopeless ones all leave after three rounds. ``docs/adr/0006`` has the regret that this measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy import special

from enginewright_builder.tensors import Array

# Closer than this, two arms are equally fast; by their estimates they must be closer, as estimates err.
ZONE, NEAR = 0.03, 0.015
# Slower than the leader by this factor in every one of the first rounds, an arm is out before there is an interval.
HOPELESS = 1.5
# Rounds after which it is looked who is out. The first look is for the hopeless alone.
LOOKS = (3, 7, 14, 28, 56, 112, 200)
# Two-sided, of each interval: the most that seven rounds can give (1 − 2 / 2⁷).
CONFIDENCE = 1 - 2 / 2**7
MIN_ROUNDS = 7
# A round in which two arms took this much longer than in their usual one is not held against either.
DISTURBED = 1.15
# What a timed call takes besides itself, for estimates of what a round costs: seconds of settling before it.
CALL_OVERHEAD = 0.002
_EXACT_ROUNDS = 60
# Decimals that count. The last bits of a logarithm differ from processor to processor: they must not decide a tie.
_DECIMALS = 9

# Times in milliseconds of ``arms`` at ``batch``, for so many further rounds; equal index is the same round. An arm that
# the answer leaves out is out.
Ask = Callable[[Sequence[str], int, int], Mapping[str, Sequence[float]]]


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One arm's time over another's. Below seven rounds ``low`` and ``high`` are the extremes that were seen."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def slower(self) -> bool:
        """By more than the indifference zone, as surely as the interval is."""
        return self.low > 1 + ZONE

    @property
    def seems_slower(self) -> bool:
        """By more than the zone, as far as the estimate tells."""
        return self.value > 1 + ZONE

    @property
    def equal(self) -> bool:
        return self.low >= 1 / (1 + ZONE) and self.high <= 1 + ZONE

    @property
    def near(self) -> bool:
        """Not slower by more than the zone, with half of it left to the error of the estimate."""
        return self.value <= 1 + NEAR


def ratio(one: Sequence[float], other: Sequence[float]) -> Ratio:
    """Of the rounds that both have, which are the first ones of the longer, without the disturbed ones."""
    first = min(len(one), len(other))
    logs = _undisturbed(np.log(one[:first]), np.log(other[:first]))
    rounds = len(logs)
    walsh = _walsh_averages(logs)
    cut = _cut(rounds)
    low, high = (walsh[cut], walsh[len(walsh) - 1 - cut]) if cut >= 0 else (logs.min(), logs.max())
    value, low, high = (round(math.exp(log), _DECIMALS) for log in (np.median(walsh), low, high))
    return Ratio(value=value, low=low, high=high, rounds=rounds)


def _undisturbed(one: Array, other: Array) -> Array:
    """Differences in the rounds that took both together no longer than usual: two arms do not suffer alike from what
    slows a machine down, so a disturbed round has a ratio of its own. A round is chosen by the sum of the logarithms,
    which says nothing about their difference. All rounds where too few would be left for an interval."""
    together = one + other
    quiet = together <= np.median(together) + 2 * math.log(DISTURBED)
    differences: Array = one - other
    return differences[quiet] if quiet.sum() >= MIN_ROUNDS else differences


def _walsh_averages(values: Array) -> Array:
    """Means of all pairs, each value with itself included, ascending."""
    one, other = _pairs(len(values))
    return np.sort((values[one] + values[other]) / 2)


@lru_cache(maxsize=8)
def _pairs(count: int) -> tuple[Array, Array]:
    return np.triu_indices(count)


@lru_cache(maxsize=256)
def _cut(rounds: int) -> int:
    """How many Walsh averages lie outside the interval at each end; −1 where the rounds are too few for one.

    The largest k with ``P(W ≤ k) ≤ (1 − confidence) / 2`` of the signed-rank statistic: exact for few rounds, else by
    its normal approximation.
    """
    tail = (1 - CONFIDENCE) / 2
    if rounds <= _EXACT_ROUNDS:
        ways = np.zeros(rounds * (rounds + 1) // 2 + 1)
        ways[0] = 1.0
        for rank in range(1, rounds + 1):
            ways[rank:] = ways[rank:] + ways[:-rank].copy()
        return int(np.searchsorted(np.cumsum(ways) / 2.0**rounds, tail * (1 + 1e-9), side="right")) - 1
    mean, spread = rounds * (rounds + 1) / 4, math.sqrt(rounds * (rounds + 1) * (2 * rounds + 1) / 24)
    return int(mean + float(special.ndtri(tail)) * spread - 0.5)


@dataclass
class Heat:
    """One bucket's race: ``times`` in milliseconds by arm, all beginning with the same round; ``live`` are the arms not
    yet out, ``patient`` those that only an interval drops. ``used`` is False where even the fastest is above the
    latency limit, ``exhausted`` is True where the time was spent before it was decided."""

    batch: int
    times: dict[str, list[float]]
    live: list[str] = field(default_factory=list)
    patient: Collection[str] = ()
    used: bool = True
    exhausted: bool = False

    def leader(self, among: Collection[str] | None = None) -> str:
        """The fastest of ``among`` (default: of the live ones), of those with the most rounds. Raises ``ValueError``
        when none of them was measured."""
        logs = {name: np.log(self.times[name]) for name in self._furthest(self.live if among is None else among)}
        # Free of what a round's arms shared, and of the rounds that were disturbed; then the middle.
        shared = np.median(list(logs.values()), axis=0)
        quiet = shared <= np.median(shared) + math.log(DISTURBED)
        return min(logs, key=lambda name: (round(float(np.median((logs[name] - shared)[quiet])), _DECIMALS), name))

    def behind(self, name: str, among: Collection[str]) -> Ratio:
        """Its time over that of whichever of ``among`` it is furthest behind: of two that are each as fast as the
        leader, one may still be slower than the other by more than the zone."""
        return max((self.ratio(name, other) for other in self._furthest(among)), key=lambda held: held.value)

    def _furthest(self, among: Collection[str]) -> list[str]:
        """Those with the most rounds: the others are out, and were slower."""
        names = [name for name in sorted(among) if self.times.get(name)]
        if not names:
            raise ValueError(f"no arm was measured at batch {self.batch}")
        most = max(len(self.times[name]) for name in names)
        return [name for name in names if len(self.times[name]) == most]

    def ratio(self, one: str, other: str) -> Ratio:
        return ratio(self.times[one], self.times[other])

    def median(self, name: str) -> float:
        return float(np.median(self.times[name]))

    @property
    def rounds(self) -> int:
        return max((len(self.times[name]) for name in self.live), default=0)

    @property
    def decided(self) -> bool:
        leader = self.leader()
        return all(self._is_settled(name, leader) for name in self.live if name != leader)

    def round_seconds(self) -> float:
        return sum(self.median(name) / 1e3 + CALL_OVERHEAD for name in self.live)

    def drop_losers(self) -> None:
        leader = self.leader()
        self.live = [name for name in self.live if name == leader or not self._out(name, leader)]

    def _is_settled(self, name: str, leader: str) -> bool:
        """Nothing is left to learn: of a patient one only whether the leader is slower than it."""
        held = self.ratio(name, leader)
        if name in self.patient:
            return held.low >= 1 / (1 + ZONE)
        return held.equal and held.rounds >= MIN_ROUNDS

    def _out(self, name: str, leader: str) -> bool:
        held = self.ratio(name, leader)
        if held.rounds < MIN_ROUNDS:
            return held.low > HOPELESS and name not in self.patient
        return held.slower


def compete(entrants: Mapping[int, Sequence[str]], ask: Ask, remaining: Callable[[], float], *,
            spare: Callable[[], float] = lambda: 0.0, guests: Collection[str] = (), patient: Collection[str] = (),
            limit_ms: float = 0.0, looks: Sequence[int] = LOOKS) -> dict[int, Heat]:
    """Races the arms of each bucket until each heat is decided, ``remaining`` seconds are spent or the looks are over.
    ``spare`` seconds are there for heats that have too few rounds for an interval: a slow model or a busy machine
    would be judged by three rounds else.

    ``guests`` are timed in the first look alone, for the record, and beat none; ``patient`` ones are not dropped
    before there is an interval, as their figures are shown. Every heat has its first look,
    whatever it costs; but where the fastest needs more than ``limit_ms`` (0: no limit) at a batch above the smallest,
    this and all larger batches are out of use, and the larger ones are not timed at all.
    """
    heats = {batch: Heat(batch=batch, patient=patient, times={name: [] for name in entrants[batch]})
             for batch in sorted(entrants)}
    for place, heat in enumerate(heats.values()):
        heat.live = [name for name in entrants[heat.batch] if name not in guests]
        _run(heat, entrants[heat.batch], ask, looks[0])
        if heat.live and 0 < limit_ms < heat.median(heat.leader()) and place > 0:
            for late in list(heats.values())[place:]:
                late.used = False
            break
    running = [heat for heat in heats.values() if heat.used and heat.live]
    while running := [heat for heat in running if not heat.decided and heat.rounds < looks[-1]]:
        for place, heat in enumerate(list(running)):
            wanted = next(look for look in looks if look > heat.rounds) - heat.rounds
            # Each has its share of what is left, the cheapest first: what one does not need goes to the others.
            seconds = remaining() if heat.rounds >= MIN_ROUNDS else max(remaining(), spare())
            affordable = seconds / (len(running) - place) / heat.round_seconds()
            _run(heat, heat.live, ask, int(min(wanted, affordable)))
            if affordable < wanted:
                heat.exhausted = True
        running = [heat for heat in running if not heat.exhausted]
    return heats


def _run(heat: Heat, arms: Sequence[str], ask: Ask, rounds: int) -> None:
    if rounds < 1:
        return
    answer = ask(list(arms), heat.batch, rounds)
    for name in arms:
        heat.times[name].extend(answer.get(name, ()))
    heat.live = [name for name in heat.live if name in answer]
    if heat.live:
        heat.drop_losers()

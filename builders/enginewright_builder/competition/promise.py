"""Which trial next: what each could still gain, and what that costs. Pure.

A trial's times are a guess until it is built (:mod:`experience`), and what was measured in this build corrects the
guesses for all that are related to it: an engine's other precisions, and the engines that are tuned from it. Gain is
what a trial is expected to take off the logarithm of the best time, as a mean over the batches in use, in the worlds
(draws of all guesses) where it passes the gate and is faster: the expected improvement of Bayesian optimisation
(Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998), over several trials at once.

The gain of one trial by itself is no guide: whatever is built first gains most. So the set of trials is sought that
gains most within the time that is left (greedily by gain for a second, begun once with each trial, as with a submodular
function under a knapsack: Khuller, Moss and Naor, Information Processing Letters 70, 1999), what the others of the set
make superfluous is left out, and that trial of the set is next which is worth the most for its seconds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from enginewright_builder.competition.experience import Experience, Guess
from enginewright_builder.engines.base import quickly
from enginewright_builder.measure.look import Look

Floats = npt.NDArray[np.float64]

WORLDS = 256
# A trial of a set that the others of it leave less than this to gain is superfluous: 0.2 %.
SUPERFLUOUS = 0.002
# Spread of a tuned engine's gain at a batch once that of a sibling there is known: of another precision, or of the same
# one, tuned for other batches as well (product-single.json: 0 to 3 % apart).
_SIBLING_SPREAD, _TWIN_SPREAD = 0.05, 0.01
# What tuning gained at a batch beyond what was expected, it likely gains in part at others: with its batch known,
# MobileViT is 13, 15 and 17 % faster at 1, 8 and 32 than the package for every batch, where 0, 1 and 3 % were expected
# (product-untuned.json). Of one model, so half of it.
_ELSEWHERE = 0.5
# What a quick engine loses: 0, 1, 1, 2, 3 and 4 % (BERT, ConvNeXt and DeepLabV3 at batch 1 and 8), and ResNet-50 at
# batch 1 2 to 10 %, as five builds of the usual level differ by 8 % (H200, TensorRT 10.6).
QUICK_LOG, _QUICK_SPREAD = 0.025, 0.02
# A mended candidate is slower than it was, and the gate admits few: neither four nor twelve layers mended ViT's INT8.
_MENDED_LOG, _MENDED_SPREAD, _MENDED_PASSES = 0.08, 0.06, 0.3
# Where FP16's range is too small for a model, it is so in each engine, and in 8-bit graphs, whose other layers are
# FP16: MobileNetV4's four such candidates of three engines answered NaN, the gate refused BF16, which has fewer digits,
# and FP16 with four layers in FP32 passed (product-untuned.json). Of one model, so by Laplace's rule of succession:
# one in three and two in three.
_RANGE_OF_FP16, _OVERFLOWN_PASSES = ("fp16", "fp8", "int8"), 0.03
_BF16_OVERFLOW_PASSES, _MENDED_OVERFLOW_PASSES = 1 / 3, 2 / 3
# What the gate refused in one engine it seldom admits in another, as most of the error is the precision's: of DeepLabV3
# it refused ONNX Runtime's FP16 alone (h200.json).
_REFUSED_ELSEWHERE_PASSES = 0.3


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate that could be built, by its ``name``. ``whole`` names the one of its engine and precision that takes
    every batch: itself, unless it is tuned for ``tuned`` batches. ``mends`` names the refused one that it is made from,
    or that the one is made from which it is tuned from.
    ``needs`` names the trial that has to pass before this one may be begun; empty for one that may be now. ``covers``
    are the batches that it takes; ``seconds`` what it takes to build and gate; ``quick`` is as in its rung."""

    name: str
    whole: str
    covers: frozenset[int]
    seconds: float
    tuned: tuple[int, ...] = ()
    quick: bool = False
    mends: str = ""
    needs: str = ""

    @property
    def backend(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a build knows so far. ``batches`` are those in use. ``times`` are milliseconds by candidate and batch, also
    of refused ones; ``passing`` names those that may be served, ``overflown`` those that answer NaN or infinity where
    the source does not."""

    batches: tuple[int, ...]
    look: Look | None = None
    times: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    passing: Collection[str] = ()
    overflown: Collection[str] = ()

    @property
    def too_wide_for_fp16(self) -> bool:
        return any(_precision(name) in _RANGE_OF_FP16 for name in self.overflown)


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a trial could bring: ``factor`` of speed at ``batch``, where it is most, if it passes and turns out as good
    as one in ten such do. ``gain`` is expected, of the logarithm of time, as a mean over the batches in use."""

    trial: Trial
    gain: float
    factor: float
    batch: int

    def __str__(self) -> str:
        if self.factor < 1.005:
            return f"could bring next to nothing, would take about {self.trial.seconds:.0f} s"
        return (f"could bring up to {self.factor:.2f}× at batch {self.batch}, would take about "
                f"{self.trial.seconds:.0f} s")


class Outlook:
    """All guesses about ``trials`` at one moment of a build, drawn as :data:`WORLDS` worlds."""

    def __init__(self, trials: Sequence[Trial], known: Known, experience: Experience) -> None:
        self.trials, self._known, self._experience = trials, known, experience
        self._wide: dict[str, Floats] = {}
        self._admitted: dict[str, npt.NDArray[np.bool_]] = {}
        self._root = self._level()
        self._best = self._start()
        self._times = {one.name: self._drawn(one) for one in trials}

    def promises(self) -> list[Promise]:
        """Of each trial by itself, in the order of ``trials``."""
        return [self._promise(one) for one in self.trials]

    def choose(self, seconds: float) -> list[Trial]:
        """The trials worth ``seconds``, the next one first; none where none fits or gains anything."""
        best: tuple[float, list[Trial]] = (0.0, [])
        for first in self.trials:
            if first.seconds <= seconds and not first.needs:
                found = self._filled([first], seconds)
                best = max(best, (self._value(found), found), key=lambda one: one[0])
        kept = self._needed(best[1])
        worth = {one.name: self._worth(one, kept) / max(one.seconds, 1.0) for one in kept}
        return sorted((one for one in kept if not one.needs), key=lambda one: (-worth[one.name], one.name))

    def order(self, given: Collection[str]) -> list[Trial]:
        """Those that still gain something once the ``given`` ones are built, and those before them; what gains most
        for a second comes first."""
        chosen = [one for one in self.trials if one.name in given]
        return self._filled(chosen, math.inf)[len(chosen):]

    # Sets of trials

    def _filled(self, chosen: list[Trial], seconds: float) -> list[Trial]:
        """With the others that gain most for a second, as long as there is time."""
        left = seconds - sum(one.seconds for one in chosen)
        worlds = self._after(chosen)
        while True:
            named = {one.name for one in chosen}
            able = [one for one in self.trials if one.name not in named and one.seconds <= left
                    and (not one.needs or one.needs in named)]
            gains = {one.name: self._gain(worlds, one) for one in able}
            able = [one for one in able if gains[one.name] > SUPERFLUOUS / 4]
            if not able:
                return chosen
            pick = max(able, key=lambda one: (gains[one.name] / max(one.seconds, 1.0), one.name))
            chosen, left = [*chosen, pick], left - pick.seconds
            worlds = np.minimum(worlds, self._times[pick.name])

    def _needed(self, chosen: list[Trial]) -> list[Trial]:
        """Without those that the others make superfluous, the dearest looked at first."""
        for one in sorted(chosen, key=lambda trial: -trial.seconds):
            if self._absence(one, chosen) < SUPERFLUOUS:
                chosen = _without(one, chosen)
        return chosen

    def _worth(self, one: Trial, chosen: list[Trial]) -> float:
        """Half way between what it gains as the first of the set and as the last: of two that can stand in for each
        other, one is worth it. While nothing passes, as the last: whatever is first then gains most."""
        last = self._absence(one, chosen)
        return (last + self._gain(self._best, one)) / 2 if self._known.passing else last

    def _absence(self, one: Trial, chosen: list[Trial]) -> float:
        """What the set would gain less without it, and without what needs it."""
        return self._value(chosen) - self._value(_without(one, chosen))

    def _value(self, chosen: Iterable[Trial]) -> float:
        return float((self._best - self._after(chosen)).mean())

    def _after(self, chosen: Iterable[Trial]) -> Floats:
        worlds = self._best
        for one in chosen:
            worlds = np.minimum(worlds, self._times[one.name])
        return worlds

    def _gain(self, worlds: Floats, one: Trial) -> float:
        return float(np.maximum(0.0, worlds - self._times[one.name]).mean())

    def _promise(self, one: Trial) -> Promise:
        ahead = np.maximum(0.0, self._best - self._times[one.name])
        # Where it passes: a likely refusal is no limit of what it could bring.
        admitted = np.isfinite(self._times[one.name]).any(axis=1)
        most = np.quantile(ahead[admitted], 0.9, axis=0) if admitted.any() else np.zeros(len(self._known.batches))
        place = int(np.argmax(most))
        return Promise(trial=one, gain=float(ahead.mean()), factor=math.exp(most[place]),
                       batch=self._known.batches[place])

    # Worlds: [world, batch], logarithms of milliseconds

    def _start(self) -> Floats:
        """The best time so far, or the source model's."""
        over = np.array(self._experience.gain_over_source(self._known.batches, self._known.look))
        worlds: Floats = self._root + over
        for name in self._known.passing:
            worlds = np.minimum(worlds, self._measured(name, np.full(worlds.shape, np.inf)))
        return worlds

    def _level(self) -> Floats:
        """The anchor's times: measured, or told from the one that is measured and tells most of it; or 1 ms, as only
        ratios count."""
        anchor, shape = self._experience.anchor, (WORLDS, len(self._known.batches))
        if anchor in self._known.times:
            return self._measured(anchor, np.zeros(shape))
        guesses = []
        for name in self._known.times:
            if "@" not in name and "(" not in name:
                guess = self._from_anchor(name)
                guesses.append((guess.spread, name, guess))
        if not guesses:
            return np.zeros(shape)
        spread, name, guess = min(guesses, key=lambda one: (one[0], one[1]))
        measured = self._measured(name, np.zeros(shape))
        level: Floats = measured - np.array(guess.log) - spread * _normal(f"anchor by {name}")
        return level

    def _from_anchor(self, name: str) -> Guess:
        """The guess about a rung: its own, plus those of the rungs that it is derived from."""
        log, spread, seen = np.zeros(len(self._known.batches)), 0.0, set[str]()
        while name and name != self._experience.anchor and name not in seen:
            seen.add(name)
            guess = self._experience.wide(name, self._known.batches, self._known.look)
            log, spread, name = log + np.array(guess.log), math.hypot(spread, guess.spread), guess.like
        return Guess(like="", log=tuple(log), spread=spread)

    def _measured(self, name: str, otherwise: Floats) -> Floats:
        """What was measured of it; elsewhere as in ``otherwise``."""
        worlds = otherwise.copy()
        for place, batch in enumerate(self._known.batches):
            if milliseconds := self._known.times.get(name, {}).get(batch):
                worlds[:, place] = math.log(milliseconds)
        return worlds

    def _whole(self, name: str) -> Floats:
        """Of a rung for every batch."""
        if name not in self._wide:
            if name == self._experience.anchor:
                guessed = self._root
            else:
                guess = self._experience.wide(name, self._known.batches, self._known.look)
                below = self._whole(guess.like) if guess.like else self._root
                guessed = below + np.array(guess.log) + guess.spread * _normal(name)
            quick = self._measured(quickly(name), guessed + QUICK_LOG) - QUICK_LOG
            self._wide[name] = self._measured(name, quick)
        return self._wide[name]

    def _drawn(self, one: Trial) -> Floats:
        """Infinite where it is refused, and at batches that it does not take."""
        worlds = self._mended(one) if one.mends else self._whole(one.whole)
        if one.tuned:
            log, spread = self._tuning(one)
            worlds = worlds + log + spread * _normal(f"{one.backend} tuned {len(one.tuned) > 1}")
        if one.quick:
            worlds = worlds + QUICK_LOG + _QUICK_SPREAD * _normal(quickly(one.backend))
        covered = np.array([batch in one.covers for batch in self._known.batches])
        result: Floats = np.where(self._passes(one)[:, None] & covered[None, :], worlds, np.inf)
        return result

    def _mended(self, one: Trial) -> Floats:
        refused = self._measured(one.mends, self._whole(f"{one.backend} {_precision(one.name)}"))
        worlds: Floats = refused + _MENDED_LOG + _MENDED_SPREAD * _normal(f"{one.mends} mended")
        return worlds

    def _tuning(self, one: Trial) -> tuple[Floats, Floats]:
        """What tuning takes off at each batch, and how sure that is: as a sibling in this build tells, or guessed."""
        guess = self._experience.tuned(one.backend, self._known.batches, self._known.look, several=len(one.tuned) > 1)
        log, spread = np.array(guess.log), np.array(guess.spread)
        more: dict[int, float] = {}
        twins_last = sorted(self._known.times, key=lambda name: (name.startswith(f"{one.whole} @"), name))
        for name in twins_last:
            times = self._known.times[name]
            whole, _, at = name.partition(" @")
            if not at or not name.startswith(f"{one.backend} ") or "(" in name:
                continue
            for place, batch in enumerate(self._known.batches):
                if times.get(batch) and (wide := self._known.times.get(whole, {}).get(batch)):
                    log[place] = math.log(times[batch] / wide)
                    spread[place] = _TWIN_SPREAD if whole == one.whole else _SIBLING_SPREAD
                    more[place] = log[place] - guess.log[place]
        if more:
            unknown = [place for place in range(len(log)) if place not in more]
            log[unknown] += _ELSEWHERE * min(0.0, float(np.mean(list(more.values()))))
        return log, spread

    def _passes(self, one: Trial) -> npt.NDArray[np.bool_]:
        """In which worlds the gate admits it: a tuned engine as the one it is tuned from."""
        if one.mends:
            overflow = one.mends in self._known.overflown
            return _uniform(f"admitted {one.mends} mended") < (_MENDED_OVERFLOW_PASSES if overflow else _MENDED_PASSES)
        if {one.whole, quickly(one.whole)} & {*self._known.passing}:
            return np.full(WORLDS, True)
        if one.whole not in self._admitted:
            likely = min(self._experience.passes(one.whole, self._known.look), self._at_most(_precision(one.whole)))
            self._admitted[one.whole] = _uniform(f"admitted {one.whole}") < likely
        return self._admitted[one.whole]

    def _at_most(self, precision: str) -> float:
        """How likely the gate admits it at most, after what it refused."""
        refused = {_precision(name) for name in self._known.times if name not in self._known.passing}
        limits = [_REFUSED_ELSEWHERE_PASSES] if precision in refused else []
        if self._known.too_wide_for_fp16:
            limits += [_OVERFLOWN_PASSES] if precision in _RANGE_OF_FP16 else []
            limits += [_BF16_OVERFLOW_PASSES] if precision == "bf16" else []
        return min(limits, default=1.0)


def _precision(name: str) -> str:
    return name.split()[1]


def _without(one: Trial, chosen: Iterable[Trial]) -> list[Trial]:
    return [other for other in chosen if other.name != one.name and other.needs != one.name]


@lru_cache(maxsize=512)
def _uniform(name: str) -> Floats:
    """Evenly spread over 0 to 1, in an order of the name's own: the same in every build."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    spread: Floats = rng.permutation((np.arange(WORLDS) + 0.5) / WORLDS)
    return spread


@lru_cache(maxsize=512)
def _normal(name: str) -> Floats:
    """``[world, 1]``: one number for all batches, as what makes a candidate fast makes it so at each."""
    column: Floats = special.ndtri(_uniform(name))[:, None]
    return column

"""What the benchmarks tell about a candidate that was not built yet: how fast, whether it passes, how long it takes.

``experience.json`` holds what was measured of each benchmarked model, and what is assumed of what was not;
``studies/trial_order`` makes it from ``docs/benchmarks``. A model that is made of the same kinds of operators
(:class:`~enginewright_builder.measure.look.Look`) counts most, every other a little. Pure, but for reading that file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from enginewright_builder.measure.look import Look

# How far apart two models' shares may lie to be alike, and what part of one vote each model has whatever it is made of.
_WIDTH, _EVERY = 0.15, 0.1
# Spread of a log time ratio that few models cannot show: between models of one kind in h200.json.
_LEAST_SPREAD = 0.06
# Of what tuning gains, which differs by the batch more than by the model: 0 to 3 % at batch 32 in product-single.json.
_LEAST_TUNING_SPREAD = 0.02
# Of what no benchmark and no assumption names: as fast as the anchor's engine in that precision, give or take; passes
# often.
_UNKNOWN_SPREAD, _UNKNOWN_PASSES, UNKNOWN_SECONDS = 0.3, 0.8, 10.0
# What a benchmarked verdict is mixed with, so that few models say neither never nor always: votes for and in all.
_FOR, _OF = 0.9, 1.0
# Seconds of the gate, of loading and of the glance after a build on a GPU, at least: the gate alone took 0.2 to 10 in
# product-single.json.
GATE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Guess:
    """The logarithm of a time over that of ``like`` (a rung for every batch; empty: the anchor of all), at each of the
    batches asked for, and its standard deviation."""

    like: str
    log: tuple[float, ...]
    spread: float


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The logarithm of a tuned engine's time over that of the one for every batch, at each of the batches asked for,
    and its standard deviation there."""

    log: tuple[float, ...]
    spread: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Experience:
    """``anchor`` is the candidate that all others' times are predicted from."""

    anchor: str
    batches: tuple[int, ...]
    models: Mapping[str, Mapping[str, Any]]
    assumed: Mapping[str, Mapping[str, Any]]
    assumed_seconds: Mapping[str, Sequence[Any]]
    accelerator: str
    source: str

    def without(self, model: str) -> Experience:
        """As if that model had never been benchmarked."""
        return _of({**_table(), "models": {name: one for name, one in self.models.items() if name != model}},
                   self.accelerator)

    # How fast

    def wide(self, rung: str, batches: Sequence[int], look: Look | None) -> Guess:
        """Of an engine for every batch."""
        if rung == self.anchor:
            return Guess(like="", log=(0.0,) * len(batches), spread=0.0)
        measured = self._measurements(rung, look)
        if measured:
            means, spreads = self._moments(measured)
            spread = math.sqrt(sum(one * one for one in spreads) / len(spreads) + _LEAST_SPREAD ** 2)
            return Guess(like="", log=self._at(means, batches), spread=spread)
        if one := self.assumed.get(rung):
            return Guess(like=one["like"], log=self._at(one["log"], batches), spread=one["sd"])
        like = f"{self.anchor.partition(' ')[0]} {rung.partition(' ')[2]}"
        known = like != rung and (like == self.anchor or like in self.assumed or self._measurements(like, look))
        return Guess(like=like if known else self.anchor, log=(0.0,) * len(batches), spread=_UNKNOWN_SPREAD)

    def tuned(self, backend: str, batches: Sequence[int], look: Look | None, *, several: bool) -> Tuning:
        """Of an engine that is tuned for its batches, beside the one of its precision for every batch; ``several``: for
        more than one, each with a profile of its own."""
        measured = []
        for weight, model in self._weighed(look):
            pairs: list[list[float]] = [[] for _ in self.batches]
            for name, log in model["log"].items():
                whole, _, at = name.partition(" @")
                if at and name.startswith(f"{backend} ") and ("+" in at) == several:
                    base = model["log"].get(whole, [0.0] * len(log))  # the anchor itself
                    for place, value in enumerate(log):
                        if value is not None:
                            pairs[place].append(value - base[place])
            if any(pairs):
                measured.append((weight, [sum(found) / len(found) if found else None for found in pairs]))
        if measured:
            means, spreads = self._moments(measured)
            return Tuning(log=self._at(means, batches),
                          spread=self._at([math.hypot(one, _LEAST_TUNING_SPREAD) for one in spreads], batches))
        return Tuning(log=(-0.1,) * len(batches), spread=(0.15,) * len(batches))

    def gain_over_source(self, batches: Sequence[int], look: Look | None) -> tuple[float, ...]:
        """The logarithm of the source model's time over the anchor's."""
        if not self.source:
            return (0.1,) * len(batches)
        return self._at(self._moments(self._measurements(self.source, look))[0], batches)

    # Whether it passes

    def passes(self, rung: str, look: Look | None) -> float:
        """How likely the accuracy gate admits it, 0 to 1."""
        votes = [(weight, bool(model["passes"][rung])) for weight, model in self._weighed(look)
                 if rung in model["passes"]]
        if votes:
            admitted = sum(weight for weight, passed in votes if passed)
            return (admitted + _FOR * _EVERY) / (sum(weight for weight, _ in votes) + _OF * _EVERY)
        return float(self.assumed.get(rung, {}).get("passes", _UNKNOWN_PASSES))

    # How long it takes

    def graph_seconds(self, backend: str, precision: str, look: Look | None) -> float:
        """To write ``precision`` into the graph, once for all engines of it."""
        return self._seconds(f"graph {precision}", look) or 0.0 if backend == "tensorrt" else 0.0

    def build_seconds(self, backend: str, precision: str, look: Look | None, *, tuned: Sequence[int] = ()) -> float:
        """With the graph at hand, and with the gate; ``tuned`` are the batches that it is tuned for. One for several is
        timed at each of them."""
        if self.accelerator == "cpu":
            found = self._seconds(f"cpu {backend} {precision}", look) or self._seconds(f"cpu {backend}", look)
            return found or UNKNOWN_SECONDS
        each = [self._one_seconds(backend, batch, look) for batch in tuned] or [self._seconds(f"{backend} wide", look)]
        known = [one for one in each if one]
        return sum(known) + self.gate_seconds(look) if known else UNKNOWN_SECONDS

    def gate_seconds(self, look: Look | None) -> float:
        """Of the gate, of loading and of the glance, on a GPU."""
        return max(GATE_SECONDS, self._seconds("gate", look) or 0.0)

    def _one_seconds(self, backend: str, batch: int, look: Look | None) -> float | None:
        """Of an engine that is tuned for ``batch`` alone: a larger one takes longer to time."""
        found = [(weight, [math.log(one) if one else None for one in model["seconds"][f"{backend} one"]])
                 for weight, model in self._weighed(look) if f"{backend} one" in model["seconds"]]
        return math.exp(self._at(self._moments(found)[0], [batch])[0]) if found else None

    def _seconds(self, what: str, look: Look | None) -> float | None:
        """Geometric mean over the models; None where no model has one."""
        found = [(weight, math.log(model["seconds"][what])) for weight, model in self._weighed(look)
                 if what in model["seconds"]]
        if found:
            return math.exp(sum(weight * value for weight, value in found) / sum(weight for weight, _ in found))
        return float(self.assumed_seconds[what][0]) if what in self.assumed_seconds else None

    # Weighing models

    def _measurements(self, rung: str, look: Look | None) -> list[tuple[float, list[float | None]]]:
        return [(weight, model["log"][rung]) for weight, model in self._weighed(look) if rung in model["log"]]

    def _weighed(self, look: Look | None) -> Iterator[tuple[float, Mapping[str, Any]]]:
        for model in self.models.values():
            alike = math.exp(-0.5 * (_apart(look, model["look"]) / _WIDTH) ** 2) if look else 0.0
            yield alike + _EVERY, model

    def _moments(self, measured: Sequence[tuple[float, Sequence[float | None]]]) -> tuple[list[float], list[float]]:
        """Mean and standard deviation over the models at each of the table's batches."""
        means: list[float | None] = []
        spreads: list[float | None] = []
        for place in range(len(self.batches)):
            found = [(weight, value) for weight, log in measured if (value := log[place]) is not None]
            total = sum(weight for weight, _ in found)
            mean = sum(weight * value for weight, value in found) / total if found else None
            means.append(mean)
            spreads.append(None if mean is None else math.sqrt(
                sum(weight * (value - mean) ** 2 for weight, value in found) / total))
        return _filled(means), _filled(spreads)

    def _at(self, log: Sequence[float], batches: Sequence[int]) -> tuple[float, ...]:
        """At other batches than the table's: between them by the logarithm of the batch."""
        return tuple(_between(self.batches, log, batch) for batch in batches)


def _apart(one: Look, other: Mapping[str, Any]) -> float:
    return math.dist(one.shares, Look(**other).shares)


def _filled(means: Sequence[float | None]) -> list[float]:
    """What was measured at no model is as at the next batch that was."""
    known = [place for place, mean in enumerate(means) if mean is not None]
    return [float(means[min(known, key=lambda one: abs(one - place))] or 0.0) for place in range(len(means))]


def _between(batches: Sequence[int], log: Sequence[float], batch: int) -> float:
    if batch <= batches[0]:
        return log[0]
    for place in range(1, len(batches)):
        if batch <= batches[place]:
            part = math.log(batch / batches[place - 1]) / math.log(batches[place] / batches[place - 1])
            return log[place - 1] + part * (log[place] - log[place - 1])
    return log[-1]


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    file = resources.files("enginewright_builder.competition").joinpath("experience.json")
    table: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return table


def _of(table: Mapping[str, Any], accelerator: str) -> Experience:
    on_gpu = accelerator == "gpu"
    return Experience(anchor=table["anchor"] if on_gpu else "onnxruntime fp32", batches=tuple(table["batches"]),
                      models=table["models"] if on_gpu else {}, assumed=table["assumed"][accelerator],
                      assumed_seconds=table["assumed_seconds"], accelerator=accelerator,
                      source=table["source"] if on_gpu else "")


def experience(accelerator: str) -> Experience:
    """For ``gpu`` or ``cpu``."""
    return _of(_table(), accelerator)

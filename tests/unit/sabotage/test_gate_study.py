"""Sabotaged engines are refused and sound ones admitted: a seeded part of ``make gate-study``, and its committed
result."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.accuracy.gate import Accuracy
from enginewright_builder.accuracy.rules import METRICS
from gate_study.networks import KINDS, random_network
from gate_study.sabotage import SABOTAGES
from gate_study.sound import SOUND
from gate_study.study import POPULATION, TOLERANCES, Trial, is_wrong, sabotaged, sound

RESULT = json.loads((Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "gate.json").read_text())
# Trials in a row take each kind of change for each kind of network.
CHUNK = 20
SABOTAGED, FIT = 3 * len(SABOTAGES), 3 * len(SOUND)


@pytest.mark.study
@pytest.mark.parametrize("start", range(0, SABOTAGED, CHUNK))
def test_no_sabotaged_engine_is_admitted(start: int) -> None:
    trials = [sabotaged(index) for index in range(start, start + CHUNK)]
    assert [one for one in trials if one.counts and one.passed] == []
    assert sum(one.counts for one in trials) >= CHUNK / 2


@pytest.mark.study
@pytest.mark.parametrize("start", range(0, FIT, CHUNK))
def test_no_sound_engine_is_refused(start: int) -> None:
    trials = [sound(index) for index in range(start, min(start + CHUNK, FIT))]
    assert [one for one in trials if one.counts and not one.passed] == []
    assert any(one.counts for one in trials)


def test_the_study_takes_each_change_for_each_network() -> None:
    for count, changes in ((SABOTAGED, SABOTAGES), (FIT, SOUND)):
        seen = {(index % len(KINDS), (index // 3) % len(changes)) for index in range(count)}
        assert len(seen) == len(KINDS) * len(changes)


@pytest.mark.parametrize(("value", "counts"), [(0.98, False), (0.976, False), (0.974, True), (0.9, True)])
def test_a_sabotage_counts_where_the_truth_is_surely_below_the_bar(value: float, counts: bool) -> None:
    """Two standard errors of 3,000 scores of 0 and 1 are 0.005 here."""
    right = round(POPULATION * value)
    truth = Accuracy(metric="top1", value=value, low=0.0, samples=POPULATION,
                     scores=(1.0,) * right + (0.0,) * (POPULATION - right))
    assert is_wrong(truth, 0.02) is counts


@pytest.mark.parametrize("run", [sabotaged, sound])
def test_a_trial_is_the_same_every_time(run: Callable[[int], Trial]) -> None:
    assert run(4) == run(4)


@pytest.mark.parametrize("seed", range(3))
def test_a_network_answers_differently_to_different_samples(seed: int) -> None:
    """Otherwise a wrong engine would be hard to tell from a right one."""
    network = random_network(seed)
    one, other = network.samples(50, 1), network.samples(50, 2)
    assert one.shape == (50, *network.shape)
    assert np.abs(one - other).mean() > 0.5


def test_networks_answer_with_classes_or_with_one_number_each_raw_or_linked() -> None:
    seen = {(network.single, network.probabilities, len(network.heads)) for network in map(random_network, range(300))}
    assert seen == set(itertools.product((False, True), (False, True), (1, 2)))


@pytest.mark.parametrize(("value", "counts"), [(0.99, False), (0.9788, False), (0.97, True)])
def test_a_coefficient_over_all_samples_is_uncertain_too(value: float, counts: bool) -> None:
    """A score a sample is what one number has not: 0.9788 is 0.0012 below the bar, and two errors are 0.0015."""
    assert is_wrong(Accuracy(metric="spearman", value=value, low=0.0, samples=POPULATION), 0.02) is counts


class TestCommittedResult:
    """``docs/benchmarks/gate.json``, by ``make gate-study``."""

    @pytest.mark.parametrize(("side", "changes"), [("sabotaged", SABOTAGES), ("sound", SOUND)])
    def test_it_is_of_a_thousand_and_of_all_kinds(self, side: str, changes: tuple[Callable[..., Any], ...]) -> None:
        found = RESULT[side]
        assert found["counted"] >= 1000
        assert found["tried"] == found["counted"] + sum(found["left_out"].values())
        assert set(found["kinds"]) == {change.__name__ for change in changes}
        assert set(found["metrics"]) == set(METRICS)
        assert set(found["tolerances"]) == {f"{tolerance:g}" for tolerance in TOLERANCES}
        assert set(found["networks"]) == set(KINDS)
        assert found["heads"]["one number"] >= 200

    def test_it_says_what_is_claimed(self) -> None:
        """As docs/reference/accuracy.md has it."""
        assert RESULT["sabotaged"]["passed"] == 0
        assert RESULT["sound"]["counted"] - RESULT["sound"]["passed"] <= RESULT["sound"]["counted"] / 500
        assert RESULT["command"].startswith("make gate-study")
        assert {"numpy", "onnxruntime", "python"} <= set(RESULT["versions"])
        assert RESULT["hardware"]["cpu"]

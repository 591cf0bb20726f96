"""Named shifts of the mix, held against the best fixed setting in hindsight."""

from __future__ import annotations

from typing import Any

import pytest

from batching_study.shifts import SHIFTS, jobs, run, settings, summary
from batching_study.simulate import Replica, play
from batching_study.study import ALONE, CURVES, DEFAULTS, STALLS, Follower, percentile, safe
from batching_study.traffic import kinds

CROWDS = "crowds of 4, 8 and 12, lone requests"


def test_every_shift_is_of_kinds_that_there_are() -> None:
    known = kinds(0.045)
    assert {kind for phases in SHIFTS.values() for kind in phases} <= set(known)
    assert len(jobs(2, 60.0)) == 2 * len(SHIFTS) * len(CURVES)


def test_the_defaults_are_among_the_fixed_settings() -> None:
    assert set(DEFAULTS.values()) <= set(settings())


def test_a_row_has_the_rule_beside_the_best_of_the_fixed_settings() -> None:
    row = run(("idle device", CROWDS, 3, 30.0))
    ours = row["from 0 µs"]
    assert ours["over_best_fixed"] == pytest.approx(ours["p99_ms"] / row["best_fixed_ms"])
    assert ours["over_default"] <= ours["over_best_fixed"], "the default is one of them"


def test_seeds_are_means_and_the_worst_is_told() -> None:
    def row(seed: int, ratio: float) -> dict[str, Any]:
        ours = {"p99_ms": 1.0, "over_best_fixed": ratio, "over_default": ratio / 2, "worst_phase_over_default": ratio}
        return {"curve": "cpu", "shift": CROWDS, "seed": seed, "best_fixed": "0 µs", "best_fixed_ms": 1.0,
                **{f"from {default}": ours for default in DEFAULTS.values()}}

    found = summary([row(1, 0.5), row(2, 2.0)])
    assert [one["default"] for one in found] == [str(default) for default in DEFAULTS.values()]
    assert found[0]["p99_over_best_fixed"] == pytest.approx(1.0)
    assert (found[0]["worst_over_best_fixed"], found[0]["worst_over_default"]) == (2.0, 1.0)


@pytest.mark.study
def test_where_crowds_change_size_no_fixed_setting_is_as_good() -> None:
    row = run(("idle device", CROWDS, 3, 1800.0))  # whose clients never stall
    assert row["from 0 µs"]["over_best_fixed"] < 0.85
    assert row["from 0 µs"]["over_default"] < 0.85


@pytest.mark.study
def test_clients_that_stall_do_not_make_the_tail_longer() -> None:
    """All of a crowd wait for one that is late: what the mean gains, the p99 may lose."""
    within = safe("cpu", DEFAULTS["0"])
    phase = [kinds(ALONE, max(STALLS))["crowd 12"](1800.0)]
    still, ours = (percentile(play(phase, Replica(within, within.default, seed=2), rule, seed=2).latencies[0])
                   for rule in (None, Follower(within)))
    assert ours < 1.05 * still

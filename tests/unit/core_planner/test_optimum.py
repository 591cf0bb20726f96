"""A short run of the planner's study: beside the optimum, and beside first-fit, best-fit and FGD."""

from __future__ import annotations

import pytest

from enginewright.core.planner.fleet import Demand, Option
from enginewright.core.planner.planner import plan
from planner_study.baselines import BASELINES, first_fit
from planner_study.churn import arrivals, churn, decisions, fleet_of
from planner_study.instances import Problem, problem
from planner_study.optimum import by_highs
from support.fleets import H100, gpu, overlaps, used, worth

SEEDS = range(40)


def of_planner(case: Problem) -> float:
    return worth(case.demands, plan(case.demands, case.gpus).seats)


@pytest.mark.parametrize("seed", SEEDS)
def test_within_two_percent_of_the_optimum(seed: int) -> None:
    case = problem(seed, gpus=3 + seed % 8)
    best = by_highs(case.gpus, case.demands).worth
    mine = of_planner(case)
    assert 0.98 * best <= mine + 1e-9
    assert mine <= best + 0.01 * len(case.demands)  # a sum of worths that were rounded to 1/1000


@pytest.mark.parametrize("seed", [5000829, 5002411])
def test_what_no_exchange_of_one_replica_reaches(seed: int) -> None:
    """12 and 16 GPUs on which mended greedy orders, shaken or not, are 4.5 and 2.6 % below the optimum."""
    case = problem(seed)
    assert of_planner(case) == pytest.approx(by_highs(case.gpus, case.demands).worth, abs=0.01)


@pytest.mark.parametrize("seed", [2000391, 3000680, 3000696])
def test_what_only_many_different_starts_reach(seed: int) -> None:
    """24, 24 and 8 GPUs that were 2.3, 2.2 and 2.9 % below while orders that fill alike used up the trials."""
    case = problem(seed)
    assert 0.98 * by_highs(case.gpus, case.demands).worth <= of_planner(case)


def test_better_than_all_baselines_together() -> None:
    cases = [problem(seed, gpus=8) for seed in SEEDS]
    mine = sum(of_planner(case) for case in cases)
    for name, baseline in BASELINES.items():
        assert mine > sum(worth(case.demands, baseline(case.demands, case.gpus)) for case in cases), name


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("seed", range(10))
def test_baselines_keep_the_rules(name: str, seed: int) -> None:
    case = problem(seed, gpus=6)
    assert overlaps(case.gpus, BASELINES[name](case.demands, case.gpus), cut=True) == []


def test_first_fit_takes_the_first() -> None:
    fleet = [gpu("a", 0, H100, used("1g.10gb", 0), layout="dynamic"), gpu("b", 0, layout="dynamic")]
    demand = Demand(name="m", replicas=2, options=(Option(profile="4g.40gb"), Option(profile="2g.20gb")))
    assert [(seat.node, seat.profile, seat.start) for seat in first_fit([demand], fleet)] == [
        ("b", "4g.40gb", 0), ("a", "2g.20gb", 2)]


def test_fgd_leaves_room_for_what_is_usual() -> None:
    # Half of what is usual needs a whole half: 1g goes where a half is broken, not on the empty board.
    fleet = [gpu("a", 0, layout="dynamic"), gpu("b", 0, H100, used("1g.10gb", 0), layout="dynamic")]
    demands = [Demand(name="m", replicas=1, options=(Option(profile="1g.10gb"),)),
               Demand(name="n", replicas=1, options=(Option(profile="4g.40gb"),))]
    assert [seat.node for seat in BASELINES["FGD"](demands, fleet)] == ["b", "a"]


def test_churn_counts_what_runs() -> None:
    told = [churn(seed, gpus=8, steps=60) for seed in range(4)]
    assert set(told[0]) == {"planner", "first-fit", "best-fit", "FGD"}
    assert all(0 < share <= 1 for shares in told for share in shares.values())
    assert sum(shares["planner"] for shares in told) > sum(shares["first-fit"] for shares in told)


def test_each_decision_under_churn_is_near_the_optimum() -> None:
    fleet = fleet_of(3, 8)
    found = decisions(fleet, arrivals(3, fleet, 60, 0.9), by_highs)
    assert len(found) > 10
    assert sum(one.placed for one in found) >= 0.98 * sum(one.optimum for one in found)

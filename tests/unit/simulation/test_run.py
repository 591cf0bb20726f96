"""All replicas under a policy: nothing is lost, the same seed gives the same, and the oracle is hard to beat."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright.core.scaling import ScaleLimits
from enginewright_simulation.contest import NAMES, PEERS, Contest
from enginewright_simulation.curve import Service
from enginewright_simulation.policies.base import Policy, Seen
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.results import figures, reversals
from enginewright_simulation.run import Run, Scenario, simulate

SINGLE = Service(seconds=(0.0, 0.02), pause=0.03)
BATCHED = Service(seconds=(0.0, 0.02, 0.03, 0.04, 0.05), instances=2)


class Script:
    """Wants what ``wanted`` says of the second; keeps what it has seen."""

    def __init__(self, wanted: Callable[[float], int], initial: int = 1) -> None:
        self.initial = initial
        self._wanted = wanted
        self.seen: list[Seen] = []

    def decide(self, seen: Seen) -> int:
        self.seen.append(seen)
        return self._wanted(seen.time)


def poisson(rate: Callable[[float], float], seconds: float, seed: int = 0, most: float = 100.0) -> list[float]:
    """Requests with a ``rate`` that changes over time, by thinning."""
    draw, now, found = random.Random(seed), 0.0, []
    while (now := now + draw.expovariate(most)) < seconds:
        if draw.random() * most < rate(now):
            found.append(now)
    return found


def steady(rate: float, seconds: float, seed: int = 0) -> list[float]:
    return poisson(lambda _: rate, seconds, seed)


def play(arrivals: Sequence[float], policy: Policy, **given: object) -> Run:
    return simulate(arrivals, policy, Scenario(**{"service": SINGLE, "min_replicas": 0, **given}))  # type: ignore[arg-type]


def test_a_replica_is_ready_after_its_cold_start_and_is_paid_for_from_the_start() -> None:
    policy = Script(lambda now: 3 if now >= 10 else 1)
    run = play([0.0, 100.0], policy, cold_start=20.0)
    by_time = {moment.time: (moment.replicas, moment.starting) for moment in run.moments}
    assert (by_time[9.0], by_time[10.0], by_time[29.0], by_time[30.0]) == ((1, 0), (1, 2), (1, 2), (3, 0))
    assert policy.seen[15].starting == (5.0, 5.0)
    assert run.replica_seconds == pytest.approx(100 + 2 * 90)
    assert run.changes == [(10.0, 1, 3)]


@pytest.mark.parametrize("measured", [False, True])
def test_our_scaler_goes_to_zero_and_back(measured: bool) -> None:
    """As in production: five minutes without a request, then one replica for the first that is held."""
    limits = ScaleLimits(min_replicas=0, max_replicas=3)
    capacity = Scenario(service=SINGLE).measured if measured else None
    run = play([0.5, 1.5, 1000.5, 1001.5], Enginewright(limits, capacity), cold_start=20.0)
    assert len(run.ledger.latencies) == 4
    assert [(before, after) for _, before, after in run.changes] == [(0, 1), (1, 0), (0, 1)]
    (up, *_), (down, *_), (again, *_) = run.changes
    assert (up, again) == (1.0, 1001.0)
    assert down == pytest.approx(up + 20 + 300, abs=3)


def test_what_is_taken_away_answers_its_queue_first_and_is_paid_for_until_then() -> None:
    # 40 requests of 50 ms each on two replicas: more than a second of work for each.
    run = play([0.5] * 40 + [100.0], Script(lambda now: 1 if now >= 1 else 2, initial=2))
    assert len(run.ledger.latencies) == 41
    drained = run.replica_seconds - 100.0
    assert 1.0 < drained < 0.5 + 40 * 0.05
    assert run.moments[2].replicas == 1


def test_an_idle_replica_is_paid_for_until_it_is_taken_away() -> None:
    run = play([0.0, 100.0], Script(lambda now: 1 if now >= 60 else 2, initial=2))
    assert run.replica_seconds == pytest.approx(100 + 60)


def test_replicas_that_start_go_first() -> None:
    run = play([0.0, 60.0], Script(lambda now: 3 if 5 <= now < 10 else 2, initial=2), cold_start=20.0)
    assert run.replica_seconds == pytest.approx(2 * 60 + 5)
    assert {moment.replicas for moment in run.moments} == {2}


def test_requests_wait_where_there_is_no_replica() -> None:
    policy = Script(lambda now: 1 if now >= 3 else 0, initial=0)
    run = play([1.0, 1.5, 30.0], policy, cold_start=5.0)
    assert policy.seen[2].held == 2
    # Ready at 8: answered after 20 ms, the second one 50 ms later.
    assert list(run.ledger.latencies) == pytest.approx([7.02, 6.57, 0.02])


def test_held_requests_are_answered_even_by_a_policy_that_gives_up() -> None:
    run = play([1.0, 2.0], Script(lambda _: 0, initial=0), cold_start=5.0)
    assert len(run.ledger.latencies) == 2


def test_a_policy_sees_queues_of_ready_replicas_and_what_came() -> None:
    policy = Script(lambda _: 2, initial=2)
    play([0.2] * 60 + [5.0], policy)
    first = policy.seen[1]
    assert (first.time, first.arrived, len(first.pending)) == (1.0, 60, 2)
    # 0.8 s are 16 slots of 50 ms on each; the last of them was answered at 0.97.
    assert first.queued == 60 - 2 * 16
    assert policy.seen[2].arrived == 0


@settings(max_examples=30)
@given(st.lists(st.floats(0.0, 60.0), min_size=1, max_size=300), st.lists(st.integers(0, 6), min_size=1, max_size=60),
       st.sampled_from([SINGLE, BATCHED, Service(seconds=(0.0, 0.05, 0.06, 0.07, 0.08), queue_delay=0.1)]),
       st.sampled_from([0.0, 0.5, 7.0, 20.0]))
def test_every_request_is_answered_once_whatever_the_policy_does(
    times: list[float], wanted: list[int], service: Service, cold_start: float
) -> None:
    arrivals = sorted(times)
    run = play(arrivals, Script(lambda now: wanted[int(now) % len(wanted)], initial=wanted[0]), service=service,
               cold_start=cold_start)
    assert len(run.ledger.latencies) == len(arrivals)
    assert min(run.ledger.latencies) >= service.seconds[1] - 1e-9
    assert len(run.ledger.late) == sum(latency > run.ledger.slo for latency in run.ledger.latencies)
    most = max(*wanted, 1) * (arrivals[-1] + 1)
    assert 0 <= run.replica_seconds <= 2 * most + 1


def test_random_dispatch_makes_each_replica_a_queue_of_its_own() -> None:
    """Four replicas at 60 % are four M/D/1 queues, not one M/D/4."""
    arrivals = steady(4 * 0.6 / 0.05, 600.0)
    run = play(arrivals, Script(lambda _: 4, initial=4))
    mean = sum(run.ledger.latencies) / len(arrivals)
    assert mean == pytest.approx(0.02 + 0.05 * 0.6 / (2 * 0.4), rel=0.08)


LOADS = {
    "steady": steady(40.0, 90.0),
    "ramp": poisson(lambda now: 5 + now / 3, 120.0),
    "burst on a base": poisson(lambda now: 60.0 if 60 <= now < 90 else 10.0, 150.0),
    "on and off": poisson(lambda now: 50.0 if now % 80 < 40 else 0.0, 160.0),
    "diurnal": poisson(lambda now: 20 - 17 * math.cos(now / 40), 251.0),
}


@pytest.mark.parametrize("load", LOADS)
def test_the_oracle_meets_the_objective_and_nobody_does_for_less(load: str) -> None:
    contest = Contest(LOADS[load], Scenario(service=SINGLE))
    runs = {name: contest.run(name) for name in NAMES}
    allowed = 0.01 * len(LOADS[load])
    oracle = runs.pop("oracle")
    assert len(oracle.ledger.late) <= allowed
    for name, run in runs.items():
        assert len(run.ledger.latencies) == len(LOADS[load])
        if len(run.ledger.late) <= allowed:
            assert run.replica_seconds >= oracle.replica_seconds, name


def test_the_oracle_of_a_load_that_the_maximum_cannot_serve_does_no_worse_than_the_maximum() -> None:
    arrivals = steady(90.0, 120.0)
    contest = Contest(arrivals, Scenario(service=SINGLE, max_replicas=4))
    most = contest.play(Script(lambda _: 4, initial=4))
    assert len(contest.run("oracle").ledger.late) <= len(most.ledger.late)


def test_the_same_seed_gives_the_same_and_another_one_another() -> None:
    arrivals = steady(30.0, 60.0)

    def outcome(seed: int) -> list[object]:
        contest = Contest(arrivals, Scenario(service=SINGLE, cold_start=5.0, seed=seed))
        return [figures(contest.run(name)) for name in NAMES]

    assert outcome(1) == outcome(1)
    assert outcome(1) != outcome(2)


def test_a_grid_has_every_peer_with_every_setting_once() -> None:
    rows = list(Contest(steady(5.0, 60.0), Scenario(service=SINGLE)).grid(NAMES))
    assert len(rows) == 3 * 4 * 4
    assert {name for name, _, _ in rows} == set(PEERS)
    assert len({(name, *settings.items()) for name, settings, _ in rows}) == len(rows)
    assert {setting["window"] for _, setting, _ in rows} == {30.0, 60.0, 120.0, 300.0}


def test_settings_reach_the_peers() -> None:
    arrivals = poisson(lambda now: 60.0 if now % 150 < 40 else 4.0, 300.0)
    contest = Contest(arrivals, Scenario(service=SINGLE))
    for name in PEERS:
        seconds = {contest.play(contest.peer(name, {"target": target, "window": window})).replica_seconds
                   for target, window in ((1.0, 30.0), (8.0, 30.0), (1.0, 300.0))}
        assert len(seconds) == 3, name


def test_the_scaler_is_told_of_a_replica_that_serves_and_is_late_as_the_simulated_one() -> None:
    scenario = Scenario(service=SINGLE, slo=0.1, percentile=95.0, cold_start=7.0)
    told = scenario.measured
    assert (told.curve, told.instances, told.throughput) == (((1, 0.05),), 1, 20.0)
    assert (told.percentile, told.cold_start_seconds) == (95.0, 7.0)
    # The same queue: answered 30 ms earlier, under an objective that is 30 ms shorter.
    as_told = Service(seconds=(0.0, told.curve[0][1]))
    arrivals = steady(15.0, 60.0)
    short = play(arrivals, Script(lambda _: 1), slo=0.1)
    long = play(arrivals, Script(lambda _: 1), service=as_told, slo=told.objective_seconds)
    assert len(short.ledger.late) > 10
    assert list(short.ledger.late) == list(long.ledger.late)


def test_a_reversal_is_a_change_of_direction() -> None:
    assert reversals([(0.0, 1, 3), (5.0, 3, 4), (8.0, 4, 5), (9.0, 5, 2), (12.0, 2, 1), (20.0, 1, 2)]) == 2
    assert reversals([]) == 0

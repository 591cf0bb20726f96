"""The batching study's replica, and what following the traffic is worth there."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from batching_study.asking import Calls
from batching_study.model import write_stand_in
from batching_study.real import table
from batching_study.simulate import Replica, play
from batching_study.study import ALONE, CURVES, Follower, by_kind, percentile, safe, summary
from batching_study.traffic import Phase, kinds, mixes
from enginewright.core.batching import Setting
from enginewright_builder.triton.model_config import parse_text
from enginewright_simulation.curve import Service
from enginewright_simulation.server import Ledger
from enginewright_simulation.server import Replica as Simulated

SETTINGS = [
    Setting(), Setting(delay_us=9000), Setting(delay_us=30_000), Setting(delay_us=20_000, preferred=(4, 16)),
    Setting(preferred=(4, 8)),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("kind", ["lone", "fans of 8", "stream"])
def test_it_batches_as_the_simulator_does(kind: str, instances: int, setting: Setting) -> None:
    within = safe("cpu", setting)
    phase = kinds(ALONE)[kind](60.0)
    arrivals = list(itertools.takewhile(lambda time: time < 60.0, phase.arrivals(7000)))
    service = Service(seconds=(0.0, *(within.seconds(batch) for batch in range(1, 17))), instances=instances,
                      preferred=setting.preferred, queue_delay=setting.delay_us / 1e6)
    ledger = Ledger(1e6)
    other = Simulated("replica", service, ledger, 0.0, 0.0)
    other.queue.extend(arrivals)
    other.advance(1e6)
    mine = play([phase], Replica(within, setting, instances, jitter=0.0), seed=7).latencies[0]
    assert len(mine) == len(arrivals)
    assert sorted(mine) == pytest.approx(sorted(ledger.latencies), abs=1e-6)


def test_phases_are_the_same_for_every_arm() -> None:
    assert mixes(3, ALONE, 60.0, 4) == mixes(3, ALONE, 60.0, 4)
    names = [phase.name for phase in mixes(3, ALONE, 60.0, 20)]
    assert all(one != other for one, other in itertools.pairwise(names))


def _p99(phase: Phase, curve: str, default: Setting, *, following: bool) -> tuple[float, int]:
    within = safe(curve, default)
    result = play([phase], Replica(within, default, seed=1), Follower(within) if following else None, seed=1)
    return percentile(result.latencies[0]), len(result.changes)


@pytest.mark.study
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("kind", kinds(ALONE))
def test_no_kind_of_traffic_is_worse_off(kind: str, curve: str) -> None:
    """Over half an hour of one kind, the search for something better included."""
    phase = kinds(ALONE)[kind](1800.0)
    base, _ = _p99(phase, curve, Setting(), following=False)
    followed, changes = _p99(phase, curve, Setting(), following=True)
    assert followed <= 1.02 * base
    assert changes <= 12


@pytest.mark.study
@pytest.mark.parametrize("clients", [4, 8, 12])
def test_a_crowd_is_better_off_where_batches_are_nearly_free(clients: int) -> None:
    phase = kinds(ALONE)[f"crowd {clients}"](1800.0)
    base, _ = _p99(phase, "idle device", Setting(), following=False)
    followed, _ = _p99(phase, "idle device", Setting(), following=True)
    assert followed < 0.85 * base


@pytest.mark.study
def test_one_kind_after_another_is_no_worse_off_than_with_what_shipped() -> None:
    """What suits one may look as if it suited the next."""
    made = kinds(ALONE, stalls=0.002)
    phases = [made[kind](900.0) for kind in ("crowd 4", "fans of 8", "crowd 12", "crowd 8", "lone", "stream")]
    within = safe("idle device", Setting())
    base, followed = (play(phases, Replica(within, Setting(), seed=1), rule, seed=1).latencies
                      for rule in (None, Follower(within)))
    ratios = [percentile(mine) / percentile(theirs) for mine, theirs in zip(followed, base, strict=True)]
    assert max(ratios) <= 1.05
    assert sum(ratios) / len(ratios) < 1.0


@pytest.mark.study
def test_lone_requests_do_not_wait_out_a_delay_that_shipped() -> None:
    long = Setting(delay_us=30_000)
    phase, within = kinds(ALONE)["lone"](1800.0), safe("cpu", long)
    base, followed = (play([phase], Replica(within, long, seed=1), rule, seed=1).latencies[0]
                      for rule in (None, Follower(within)))
    assert sum(followed) < 0.75 * sum(base)
    assert percentile(followed) <= 1.02 * percentile(base)


def test_ratios_below_one_are_in_favour() -> None:
    def row(arm: str, p99: float) -> dict[str, object]:
        return {"curve": "cpu", "seed": 1, "arm": arm, "phases": ["a"], "changes": 2, "mean_ms": p99 / 2, "p99_ms": p99,
                "phases_p99_ms": [p99]}

    found = summary([row("fixed 0 µs", 100.0), row("fixed 9000 µs", 80.0), row("follows from 0 µs", 60.0),
                     row("follows from 9000 µs", 72.0)])
    assert [one["default"] for one in found] == ["0 µs", "9000 µs"]
    assert [one["p99_over_default"] for one in found] == pytest.approx([0.6, 0.9])
    assert found[0]["best_fixed"] == "fixed 9000 µs"
    assert [one["p99_over_best_fixed"] for one in found] == pytest.approx([0.75, 0.9])


def test_kinds_are_means_over_all_phases_of_them() -> None:
    rows = [{"curve": "cpu", "arm": "fixed 0 µs", "phases": ["a", "b", "a"], "phases_p99_ms": [10.0, 7.0, 40.0]},
            {"curve": "cpu", "arm": "follows from 0 µs", "phases": ["a", "b", "a"], "phases_p99_ms": [10.0, 7.0, 10.0]}]
    assert by_kind(rows) == [
        {"curve": "cpu", "kind": "a", "fixed 0 µs": pytest.approx(20.0), "follows from 0 µs": pytest.approx(10.0)},
        {"curve": "cpu", "kind": "b", "fixed 0 µs": pytest.approx(7.0), "follows from 0 µs": pytest.approx(7.0)},
    ]


def test_pieces_are_held_against_the_default_of_their_own_round() -> None:
    """The machine was twice as slow in the second round."""
    default, other = Setting(), Setting(delay_us=100)
    pieces = {("a", setting, number): Calls([seconds * (number + 1)] * 10)
              for setting, seconds in ((default, 0.02), (other, 0.01)) for number in range(2)}
    found = table(pieces, default)
    assert found["a"]["100 µs"]["p99_over_default"] == pytest.approx(0.5)
    assert found["a"]["0 µs"]["p99_ms"] == pytest.approx(30.0)


@pytest.mark.parametrize("curve", CURVES)
def test_a_stand_in_is_a_model_that_triton_takes(curve: str, tmp_path: Path) -> None:
    write_stand_in(tmp_path, "model", 16, {batch: times * 0.02 for batch, times in CURVES[curve].items()})
    config = parse_text((tmp_path / "model" / "config.pbtxt").read_text())
    assert (config.backend, config.max_batch_size) == ("python", 16)
    assert config.HasField("dynamic_batching")
    compile((tmp_path / "model" / "1" / "model.py").read_text(), "model.py", "exec")

"""A given engine under shifting loads: what is written for the server, who asks, and what the figures come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from batching_study.asking import Calls
from batching_study.crowd import Asked, pooled, shares
from batching_study.engine import Phased, Row, fixed_settings, name_of, row, setting_of, settled, verdict, write
from batching_study.traffic import Phase
from enginewright.core.batching import SafeSet, Setting
from enginewright_builder.triton.model_config import parse_text
from enginewright_builder.triton.repository import CONFIG_FILE

NONE, LONG = Setting(), Setting(delay_us=2000, preferred=(4, 16))
CONFIG = 'max_batch_size: 16\ndynamic_batching { }\nparameters { key: "threads" value { string_value: "2" } }\n'


def test_the_model_is_written_with_other_batching_and_nothing_else_changed(tmp_path: Path) -> None:
    source = tmp_path / "model"
    (source / "1").mkdir(parents=True)
    (source / "1" / "model.onnx").write_text("weights")
    (source / CONFIG_FILE).write_text(CONFIG)
    write(source, tmp_path / name_of(LONG), parse_text(CONFIG), LONG)
    found = parse_text((tmp_path / "fixed-2000-4-16" / CONFIG_FILE).read_text())
    assert (setting_of(found), found.name) == (LONG, "fixed-2000-4-16")
    assert found.parameters["threads"].string_value == "2"
    assert (tmp_path / "fixed-2000-4-16" / "1" / "model.onnx").read_text() == "weights"
    assert (source / CONFIG_FILE).read_text() == CONFIG, "what the build published stays as it is"


def test_the_grid_has_the_shipped_setting_those_of_practice_and_one_for_each_crowd_that_fits() -> None:
    safe = SafeSet(default=Setting(delay_us=700), curve=((1, 0.001), (8, 0.002)), max_batch=8, load_seconds=1.0,
                   longest_delay_us=4000)
    assert [str(one) for one in fixed_settings(safe)] == [
        "700 µs", "0 µs", "200 µs", "5000 µs", "20000 µs", "1200 µs, preferred 4, 8"]


@pytest.mark.parametrize(("clients", "processes", "dealt"), [(5, 2, [3, 2]), (1, 3, [1, 0, 0]), (12, 4, [3] * 4)])
def test_clients_are_dealt_out(clients: int, processes: int, dealt: list[int]) -> None:
    assert [one.clients for one in shares(Phase(name="", seconds=1.0, clients=clients), processes)] == dealt


def test_arrivals_are_shared_out_evenly() -> None:
    found = shares(Phase(name="", seconds=1.0, rate=9.0, fan=8), 3)
    assert [(one.rate, one.fan) for one in found] == [(3.0, 8)] * 3


def test_pieces_are_pooled_and_the_busiest_client_counts() -> None:
    pieces = [Asked(calls=Calls([0.1], [0.0], failed=1), busiest=0.2), Asked(calls=Calls([0.2], [0.5]), busiest=0.9)]
    whole = pooled(pieces)
    assert (whole.calls, whole.busiest) == (Calls([0.1, 0.2], [0.0, 0.5], failed=1), 0.9)


def test_cost_is_what_the_device_computed_for_a_request() -> None:
    spent = [{"seconds": 2.0, "requests": 3.0, "executions": 1.0, "device_seconds": 0.01},
             {"seconds": 2.0, "requests": 1.0, "executions": 1.0, "device_seconds": 0.01}]
    found = row(Asked(calls=Calls([0.004] * 4, [0.0] * 4)), spent)
    assert (found["device_ms"], found["mean_batch"], found["throughput"]) == (pytest.approx(5.0), 2.0, 1.0)


def test_only_the_end_of_a_phase_is_settled() -> None:
    assert settled(_phased([0.3, 0.2, 0.1], [1.0, 5.9, 6.0], NONE)) == [0.1]


def test_the_rule_is_held_against_the_setting_that_is_best_over_all_loads() -> None:
    race = {"lone requests": {NONE: _row(10.0), LONG: _row(30.0)}, "crowd of 4": {NONE: _row(40.0), LONG: _row(20.0)}}
    followed = {"lone requests": _phased([0.010] * 90, [7.0] * 90, NONE),
                "crowd of 4": _phased([0.040] * 10 + [0.018] * 90, [1.0] * 10 + [7.0] * 90, LONG)}
    found = verdict(race, followed, [NONE, LONG])
    assert found["best_fixed"] == "0 µs", "10 · 40 is less than 30 · 20"
    assert found["loads"]["crowd of 4"]["over_best_fixed"] == pytest.approx(
        {"live": 1.0, "settled": 0.45, "chosen": 0.5})
    assert found["loads"]["crowd of 4"]["over_best_fixed_here"]["settled"] == pytest.approx(0.9)
    assert found["least_throughput"] == pytest.approx(1.0)
    assert found["wins"] == {"live": False, "settled": True, "chosen": True}


def test_a_shorter_tail_that_costs_throughput_is_no_win() -> None:
    race = {"crowd of 4": {NONE: _row(40.0), LONG: _row(50.0)}}
    found = verdict(race, {"crowd of 4": _phased([0.01] * 50, [7.0] * 50, NONE)}, [NONE, LONG])
    assert found["p99_over_best_fixed"]["settled"] == pytest.approx(0.25)
    assert found["least_throughput"] < 0.6
    assert not any(found["wins"].values())


def _row(p99_ms: float) -> Row:
    return {"p99_ms": p99_ms, "throughput": 45.0, "device_ms": 1.0}


def _phased(latencies: list[float], due: list[float], setting: Setting) -> Phased:
    return Phased(asked=Asked(calls=Calls(latencies, due)), seconds=8.0, setting=setting, changes=[])

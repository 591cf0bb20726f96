"""MLPerf's scenarios: what LoadGen is told, what is read out of its logs, and which run comes next."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.load.requests import encode
from enginewright_builder.loadgen.logs import Run, read_run
from enginewright_builder.loadgen.result import MlperfResult, ScenarioResult
from enginewright_builder.loadgen.samples import Samples
from enginewright_builder.loadgen.scenarios import (
    MULTI_STREAM,
    OFFICIAL_SECONDS,
    OFFLINE,
    SERVER,
    SINGLE_STREAM,
    Target,
    user_conf,
)
from enginewright_builder.mlperf import command
from enginewright_builder.mlperf.engine import samples as samples_of
from enginewright_builder.mlperf.pilot import Pilot
from enginewright_builder.mlperf.search import FULL_RUNS, SEARCH_RUNS, SEARCH_SECONDS, UP, counts, next_target
from enginewright_builder.report import render
from support.reports import build_report

PILOT = Pilot(single_ms=4.0, multi_ms=20.0, alone_rate=150.0, rate=400.0, most=8, in_flight=4)


@pytest.mark.parametrize(("target", "told"), [
    (Target(scenario=OFFLINE, value=440), ["*.Offline.target_qps = 440"]),
    (Target(scenario=SERVER, value=123.456, latency_ms=20),
     ["*.Server.target_qps = 123.456", "*.Server.target_latency = 20"]),
    (Target(scenario=SINGLE_STREAM, value=0.25), ["*.SingleStream.target_latency = 0.25"]),
    (Target(scenario=MULTI_STREAM, value=10, seconds=5),
     ["*.MultiStream.target_latency = 10", "*.MultiStream.min_duration = 5000"]),
    (Target(scenario=SERVER, value=50, seconds=2.5, latency_ms=20),
     ["*.Server.target_qps = 50", "*.Server.target_latency = 20", "*.Server.min_duration = 2500",
      "*.Server.min_query_count = 662"]),
])
def test_what_loadgen_is_told_beyond_the_official_rules(target: Target, told: list[str]) -> None:
    assert user_conf(target).splitlines() == told


def log(folder: Path, **entries: object) -> Path:
    said = {"result_validity": "VALID", "result_query_count": 100, "generated_samples_per_query": 1, "num_errors": 0,
            "result_min_duration_met": True, "result_min_queries_met": True, "early_stopping_met": True} | entries
    lines = (":::MLLOG " + json.dumps({"key": key, "value": value}) for key, value in said.items())
    (folder / "mlperf_log_detail.txt").write_text("\n".join(["noise", *lines, ""]))
    return folder


def test_a_valid_run_has_its_metric_and_no_reason(tmp_path: Path) -> None:
    told = {"early_stopping_latency_ms": 3_424_321, "generated_samples_per_query": 8, "loadgen_version": "6.0.17",
            "result_99.00_percentile_latency_ns": 1, "result_99.00_percentile_per_query_latency_ns": 2_851_460}
    found = read_run(log(tmp_path, **told), Target(scenario=MULTI_STREAM, value=1))
    assert (found.loadgen, found.valid, found.reasons, found.version) == ("VALID", True, (), "6.0.17")
    assert found.value == pytest.approx(3.424321)
    assert (found.queries, found.samples) == (100, 800)
    assert found.latencies_ms == {"99.00": pytest.approx(2.85146)}


def test_why_a_run_is_invalid_is_said_in_loadgens_words_too(tmp_path: Path) -> None:
    told = {"result_validity": "INVALID", "result_perf_constraints_met": False, "early_stopping_met": False,
            "result_invalid_reason": "Reduce target QPS to improve latency. ", "num_errors": 2,
            "early_stopping_result": " * Run unsuccessful.  * Processed 193 queries."}
    found = read_run(log(tmp_path, **told), Target(scenario=SERVER, value=1))
    assert (found.loadgen, found.valid, found.too_short) == ("INVALID", False, False)
    assert found.reasons == ("the latency was not kept",
                             "there were too few queries for the percentile to be known", "LoadGen met 2 errors",
                             "Reduce target QPS to improve latency.", "Run unsuccessful. Processed 193 queries.")


def test_a_request_that_failed_counts_though_loadgen_knows_nothing_of_it(tmp_path: Path) -> None:
    found = read_run(log(tmp_path), Target(scenario=OFFLINE, value=1), {"UNAVAILABLE: gone": 3})
    assert (found.loadgen, found.valid) == ("VALID", False)
    assert found.reasons == ("3 requests failed: UNAVAILABLE: gone",)


def test_a_run_that_did_not_finish_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mlperf_log_detail.txt").write_text("")
    with pytest.raises(ValueError, match="no verdict"):
        read_run(tmp_path, Target(scenario=OFFLINE, value=1))


def run(target: Target, *, valid: bool = True, too_short: bool = False, value: float = 0.0) -> Run:
    return Run(folder="run", target=target.value, seconds=target.seconds, loadgen="VALID" if valid else "INVALID",
               valid=valid, value=value, queries=1000, samples=1000, too_short=too_short,
               latencies_ms={"50.00": value, "99.00": 2 * value})


def found_by(capacity: float, first: Target) -> list[Run]:
    """Runs of a server that keeps its latency up to ``capacity`` queries a second."""
    runs: list[Run] = []
    while target := next_target(first, runs):
        runs.append(run(target, valid=target.value <= capacity))
    return runs


@pytest.mark.parametrize(("capacity", "share"), [(5.0, 0.9), (60.0, 0.95), (100.0, 1.0), (101.0, 0.95), (260.0, 0.95),
                                                 (1000.0, 1 / UP)])
def test_server_looks_for_the_largest_rate_in_short_runs_and_proves_it_in_a_long_one(capacity: float,
                                                                                     share: float) -> None:
    first = Target(scenario=SERVER, value=100, latency_ms=20)
    runs = found_by(capacity, first)
    short, full = [[one for one in runs if (one.seconds < first.seconds) is kind] for kind in (True, False)]
    assert {one.seconds for one in short} == {SEARCH_SECONDS}
    assert len(short) <= SEARCH_RUNS
    assert [one.valid for one in full] == [True]
    best = counts(first, runs)
    assert best in full
    assert share * capacity <= best.target <= capacity


def test_a_rate_that_does_not_hold_for_long_is_taken_back_a_little() -> None:
    first = Target(scenario=SERVER, value=100, latency_ms=20)
    runs = found_by(100, first)[:-1]
    for _ in range(FULL_RUNS):
        target = next_target(first, runs)
        assert target
        runs.append(run(target, valid=False))
    full = [one.target for one in runs if one.seconds == OFFICIAL_SECONDS]
    assert full == pytest.approx([100, 95, 90.25])
    assert next_target(first, runs) is None
    assert not counts(first, runs).valid


def test_runs_that_are_short_anyway_are_not_repeated() -> None:
    first = Target(scenario=SERVER, value=100, seconds=2, latency_ms=20)
    runs = found_by(100, first)
    assert {one.seconds for one in runs} == {2}
    assert counts(first, runs).target == 100


def test_a_stated_rate_is_tried_once() -> None:
    first = Target(scenario=SERVER, value=100, latency_ms=20)
    assert next_target(first, [], fixed=True) == first
    assert next_target(first, [run(first, valid=False)], fixed=True) is None


@pytest.mark.parametrize(("scenario", "value", "told"), [(OFFLINE, 900.0, 990.0), (SINGLE_STREAM, 6.0, 3.0),
                                                         (MULTI_STREAM, 30.0, 5.0)])
def test_a_run_that_ended_too_early_is_made_again_with_what_it_showed(scenario: str, value: float, told: float) -> None:
    first = Target(scenario=scenario, value=10.0)
    again = next_target(first, [run(first, valid=False, too_short=True, value=value)])
    assert again == dataclasses.replace(first, value=told)
    assert next_target(first, [run(first, value=value)]) is None
    assert next_target(first, [run(first, valid=False)]) is None, "another run would not mend that"
    assert next_target(first, [run(first, valid=False, too_short=True)] * FULL_RUNS) is None


@pytest.mark.parametrize(("scenario", "value"), [(OFFLINE, 440.0), (SERVER, 150.0), (SINGLE_STREAM, 2.0),
                                                 (MULTI_STREAM, 10.0)])
def test_what_is_expected_is_what_the_pilot_saw(scenario: str, value: float) -> None:
    assert command.first_target(scenario, PILOT, 600.0).value == value
    assert command.first_target(SERVER, PILOT, 600.0, 20, 55.0) == Target(scenario=SERVER, value=55.0, latency_ms=20)


def test_samples_of_one_shape_share_a_request() -> None:
    rows = [{"x": np.full((1, size), number, np.float32)} for number, size in enumerate([2, 3, 2, 2, 3])]
    samples = Samples("m", rows)
    assert list(samples.calls([4, 0, 2, 3, 0, 1], 2)) == [[0, 5], [1, 2], [3, 4]]
    assert list(samples.calls([4, 0, 2], 1)) == [[0], [1], [2]]
    assert samples.request([0, 3]) == encode("m", {"x": np.array([[0, 0], [3, 3]], np.float32)})
    assert samples.request([1]) == encode("m", rows[1])


def result(valid: bool = True) -> MlperfResult:
    of_server = dataclasses.replace(run(Target(scenario=SERVER, value=100), value=99.5, valid=valid),
                                    folder="Server/run-3", reasons=() if valid else ("the latency was not kept",))
    return MlperfResult(
        model_name="minilm", fingerprint="3f" * 32, created="2026-11-21T12:00:00+00:00", loadgen="6.0.17 @ d6147c7eb7",
        command="enginewright-build mlperf ENGINE --output DIR", server="2.70.0", url="", client="Xeon", cores=2,
        samples=256, origin="synthetic", seconds=600.0, official=True, latency_ms=20,
        scenarios=(ScenarioResult(scenario=SERVER, run=of_server, runs=(of_server,), samples_per_request=1),))


def test_the_report_shows_the_scenarios_and_where_their_logs_are() -> None:
    page = render(build_report(), result())
    assert "MLPerf scenarios" in page
    assert "✓ VALID" in page
    assert "Server/run-3" in page
    assert "99 % within 20 ms" in page
    assert "submission takes 600 s" not in page
    assert "MLPerf scenarios" not in render(build_report())


def test_the_report_says_why_one_is_invalid_and_that_runs_were_short() -> None:
    page = render(build_report(), dataclasses.replace(result(valid=False), official=False, seconds=20.0))
    assert "✕ INVALID" in page
    assert "the latency was not kept" in page
    assert "where a submission takes 600 s" in page


def test_people_get_a_line_for_each_scenario() -> None:
    assert command.text(result()) == ["Server       VALID    99.50 samples/s  (Server/run-3)"]
    assert command.text(result(valid=False))[1:] == ["             the latency was not kept"]


@pytest.mark.parametrize(("words", "said"), [
    (["--latency-ms", "0.5"], "expected whole milliseconds"),
    (["--target-qps", "0"], "expected a number above 0"),
    (["--scenario", "server"], "invalid choice"),
])
def test_bad_options_are_refused(words: list[str], said: str, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.mlperf([str(tmp_path), "--output", str(tmp_path / "out"), *words])
    assert said in capsys.readouterr().err


def test_what_is_no_engine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.mlperf([str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "is no engine of a store" in capsys.readouterr().err
    (tmp_path / "model").mkdir()
    assert command.mlperf([str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "measured in tokens" in capsys.readouterr().err


def test_without_loadgen_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert command.mlperf([str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "pip install 'enginewright[mlperf]'" in capsys.readouterr().err


TEXTS = Interface(inputs=(TensorSpec(name="text", dtype="string", shape=("batch", 1)),),
                  outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),))
TOKENS = Interface(inputs=(TensorSpec(name="input_ids", dtype="int64", shape=("batch", "1..512")),),
                   outputs=TEXTS.outputs)
WHOLE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=(2, 3)),),
                  outputs=(TensorSpec(name="y", dtype="float32", shape=(2, 4)),))


NUMBERS = Interface(inputs=(TensorSpec(name="user", dtype="int64", shape=("batch",)),), outputs=TEXTS.outputs)


@pytest.mark.parametrize(("interface", "shape"), [(TEXTS, (1, 1)), (TOKENS, (1, 64)), (WHOLE, (2, 3)),
                                                  (NUMBERS, (1, 1))])
def test_samples_are_made_up_as_one_request_has_them(interface: Interface, shape: tuple[int, ...]) -> None:
    rows, origin = samples_of(interface, None)
    assert origin == "synthetic"
    assert {row[interface.inputs[0].name].shape for row in rows} == {shape}
    assert Samples("m", rows).request([0]).batch == 1


def test_texts_are_given_as_they_are_to_an_engine_that_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"text": "one"}\n{"text": "and two"}\n')
    rows, origin = samples_of(TEXTS, file)
    assert (origin, [row["text"].tolist() for row in rows]) == ("given", [[["one"]], [["and two"]]])
    assert Samples("m", rows).request([0, 1]).batch == 2
    with pytest.raises(UserError, match="the engine takes token ids"):
        samples_of(TOKENS, file)


def test_one_number_a_sample_is_given_as_triton_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text('{"user": 5}\n{"user": [7]}\n')
    rows, _ = samples_of(NUMBERS, file)
    assert [row["user"].tolist() for row in rows] == [[[5]], [[7]]]

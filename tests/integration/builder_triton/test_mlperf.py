"""MLPerf's scenarios by the real LoadGen on a real tritonserver. How fast this machine is decides nothing here: what is
held is that our record says what LoadGen's own files say, whichever verdict that is."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder import contract
from enginewright_builder.cli import main
from enginewright_builder.contract import MODEL_FOLDER, MODEL_REPOSITORY, ObjectiveRequest, Outcome, ServingChoice
from enginewright_builder.engine_store import folder as store
from enginewright_builder.engines.base import Artifact
from enginewright_builder.loadgen.logs import DETAIL, SUMMARY, read_run
from enginewright_builder.loadgen.result import MlperfResult
from enginewright_builder.loadgen.scenarios import MULTI_STREAM, OFFLINE, SCENARIOS, SERVER, SINGLE_STREAM, Target
from enginewright_builder.loadgen.sut import Drive
from enginewright_builder.mlperf.command import in_a_process, mlperf
from enginewright_builder.report import write_report
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from support.reports import build_report

pytestmark = pytest.mark.triton
FINGERPRINT = "5c" * 32


@pytest.fixture(scope="module")
def engine(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published as a build publishes one."""
    shelf, staging = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("staging")
    serving = ServingChoice(max_batch_size=4)
    write_model(staging / MODEL_REPOSITORY, MODEL_FOLDER, artifact, serving, cores=1)
    write_report(dataclasses.replace(build_report(), model_name="multiply", fingerprint=FINGERPRINT, serving=serving,
                                     interface=artifact.interface, objective=ObjectiveRequest()), staging)
    store.publish(staging, shelf, FINGERPRINT, outcome=Outcome(kind="build", ok=True, fingerprint=FINGERPRINT))
    return shelf / FINGERPRINT


def read(output: Path) -> MlperfResult:
    return contract.load(MlperfResult, (output / "mlperf.json").read_text())


def summary(folder: Path) -> dict[str, str]:
    """LoadGen's own page for people, by what stands before the colon."""
    lines = (line.split(":", 1) for line in (folder / SUMMARY).read_text().splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in lines}


# What the summary calls each scenario's metric, and how much of ours one of its is.
SUMMARISED = {OFFLINE: ("Samples per second", 1.0), SERVER: ("Completed samples per second", 1.0),
              SINGLE_STREAM: ("Early stopping 90th", 1e-6), MULTI_STREAM: ("Early stopping 99.0th", 1e-6)}


def test_each_scenario_ends_and_the_record_says_what_loadgen_says(
        engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, data = tmp_path / "out", tmp_path / "samples.npz"
    np.savez(data, x=np.random.default_rng(1).standard_normal((6, 3, 8)).astype(np.float32))
    # A latency that nothing reaches and a rate that everything keeps: which verdict comes of it is LoadGen's matter.
    code = main(["mlperf", str(engine), "--output", str(output), "--seconds", "0.5", "--data", str(data),
                 "--latency-ms", "60000", "--target-qps", "200"])
    printed = capsys.readouterr().out
    result = read(output)
    assert [one.scenario for one in result.scenarios] == list(SCENARIOS)
    assert code == (0 if all(one.run.valid for one in result.scenarios) else 2)
    assert (result.samples, result.origin, result.official) == (6, "given", False)
    assert result.server
    for one in result.scenarios:
        assert not one.run.errors
        assert f"{one.scenario:<13}{one.run.loadgen}" in printed
        for run in one.runs:
            told = summary(output / run.folder)
            assert (told["Scenario"], told["Result is"]) == (one.scenario, run.loadgen)
            assert run.valid == (run.loadgen == "VALID")
            assert bool(run.reasons) != run.valid
            check_rules(output / run.folder)
            assert f"*.{one.scenario}." in (output / run.folder / "user.conf").read_text()
        of_query = 8 if one.scenario == MULTI_STREAM else 1
        assert one.run.samples == of_query * one.run.queries or one.scenario == OFFLINE
        check_value(one.scenario, one.run.value, summary(output / one.run.folder))
    assert "MLPerf scenarios" in (output / "report.html").read_text()


def check_value(scenario: str, value: float, told: dict[str, str]) -> None:
    name, unit = SUMMARISED[scenario]
    found = [text for key, text in told.items() if name in key]
    if found:  # the estimate of a percentile is missing where there were too few queries for it
        assert value == pytest.approx(float(found[0]) * unit, rel=1e-3)


# Of a run that went faster than LoadGen was told to expect. On a busy machine a pilot is slow; the run is made again.
FASTER = "Ran out of generated queries"


def check_rules(folder: Path) -> None:
    """Durations and counts apart, a short run is judged by the rules that LoadGen carries."""
    entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in (folder / DETAIL).read_text().splitlines()]
    said = {entry["key"]: entry["value"] for entry in entries}
    problems = [entry["value"] for entry in entries if entry["metadata"]["is_error"]]
    assert [one for one in problems if FASTER not in one] == []
    assert said["effective_min_duration_ms"] == 500
    if said["effective_scenario"] == MULTI_STREAM:
        assert (said["effective_min_query_count"], said["effective_target_latency_percentile"],
                said["effective_samples_per_query"]) == (662, 0.99, 8)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_server_that_runs_is_asked_by_its_address(engine: Path, server: TritonServer, tmp_path: Path) -> None:
    words = [str(engine), "--output", str(tmp_path / "out"), "--seconds", "0.2", "--scenario",
             "SingleStream", "--url", server.grpc_url]
    await asyncio.to_thread(mlperf, words)
    result = read(tmp_path / "out")
    assert (result.url, result.server) == (server.grpc_url, "")
    assert result.scenarios[0].run.queries >= 100


@pytest.mark.asyncio(loop_scope="session")
async def test_a_run_whose_requests_fail_ends_and_does_not_count(server: TritonServer, tmp_path: Path) -> None:
    target = Target(scenario=SINGLE_STREAM, value=1.0, seconds=0.1)
    errors = await in_a_process(Drive(url=server.grpc_url, model="multiply", target=target, folder=tmp_path,
                                      rows=[{"x": np.zeros((1, 3, 7), np.float32)}]))
    run = read_run(tmp_path, target, errors)
    assert not run.valid
    assert sum(errors.values()) == run.queries
    assert all(kind.startswith("INVALID_ARGUMENT") for kind in errors)


@pytest.mark.asyncio(loop_scope="session")
async def test_what_goes_wrong_in_loadgens_process_is_raised_here(server: TritonServer, tmp_path: Path) -> None:
    task = Drive(url=server.grpc_url, model="multiply", rows=[{"x": np.zeros((1, 3, 8), np.float32)}],
                 target=Target(scenario=OFFLINE, value=1.0), folder=tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        await in_a_process(task)


@pytest.mark.asyncio(loop_scope="session")
async def test_an_engine_that_the_server_does_not_have_is_named(
        engine: Path, server: TritonServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(engine), "--output", str(tmp_path / "out"), "--seconds", "0.2", "--scenario", OFFLINE, "--url",
             server.grpc_url, "--model", "absent"]
    assert await asyncio.to_thread(mlperf, words) == 2
    assert "'absent'" in capsys.readouterr().err


def test_what_the_server_refuses_is_said_before_loadgen_is_asked(
        engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "samples.npz"
    np.savez(data, y=np.zeros((4, 3, 8), np.float32))
    assert main(["mlperf", str(engine), "--output", str(tmp_path / "out"), "--data", str(data), "--scenario",
                 OFFLINE]) == 2
    assert "sample 0 has y; the model takes x" in capsys.readouterr().err


def test_without_an_objective_server_needs_a_latency(engine: Path, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mlperf", str(engine), "--output", str(tmp_path / "out")]) == 2
    assert re.search(r"Server needs a latency.*--latency-ms", capsys.readouterr().err)


def test_logs_of_other_runs_are_not_mixed_in(engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "left").write_text("")
    assert main(["mlperf", str(engine), "--output", str(tmp_path), "--scenario", OFFLINE]) == 2
    assert "is not empty" in capsys.readouterr().err

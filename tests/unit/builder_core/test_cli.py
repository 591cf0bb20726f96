"""The command: by request file as in a Job, and by hand."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from enginewright_builder.accuracy.rules import METRICS
from enginewright_builder.by_hand import hand_device, hand_request, hand_runtime, link_model, parse_by_hand
from enginewright_builder.by_hand_words import OPTIONS, in_options
from enginewright_builder.cli import main
from enginewright_builder.contract import (
    EXIT_OK,
    EXIT_USER,
    TERMINATION_MESSAGE_BYTES,
    BatchingRequest,
    BuildRequest,
    CandidateSummary,
    ContractError,
    DataRequest,
    EngineRequest,
    ErrorReport,
    InstancesRequest,
    Outcome,
    SourceRequest,
)
from enginewright_builder.evidence.content import command, unsaid
from support.cuda_driver import TOTAL_BYTES, FakeDriver, NoDriver, StoppedDriver

Make = Callable[..., BuildRequest]
BUILDERS = str(Path(sys.modules["enginewright_builder"].__path__[0]).parent)


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "enginewright_builder", *words], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": BUILDERS, **environment}, check=False)


def outcome_of(ran: subprocess.CompletedProcess[str]) -> Outcome:
    """The last line; every other one must be progress."""
    *lines, last = ran.stdout.splitlines()
    assert all(json.loads(line)["event"] == "progress" for line in lines), ran.stderr
    return Outcome.from_json(last)


def test_resolve_tells_what_the_source_is(perceptron: Path, request_for: Make, tmp_path: Path) -> None:
    request = request_for(perceptron)
    (tmp_path / "request.json").write_text(request.to_json())
    ran = run("resolve", "--request", str(tmp_path / "request.json"),
              ENGINEWRIGHT_TERMINATION_LOG=str(tmp_path / "termination"))
    outcome = outcome_of(ran)
    assert ran.returncode == EXIT_OK
    assert outcome.ok
    assert outcome.source is not None
    assert outcome.source.format == "onnx"
    assert Outcome.from_json((tmp_path / "termination").read_text()) == outcome
    found = dataclasses.replace(request.source, digest=outcome.source.digest, format=outcome.source.format)
    resolved = dataclasses.replace(request, source=found)
    assert outcome.fingerprint == resolved.fingerprint()


def test_bad_source_is_the_users_to_mend_and_leaves_the_store_empty(request_for: Make, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"\x80\x04}.")
    (tmp_path / "request.json").write_text(request_for(tmp_path / "weights.pt").to_json())
    ran = run("build", "--request", str(tmp_path / "request.json"),
              ENGINEWRIGHT_TERMINATION_LOG=str(tmp_path / "termination"))
    outcome = outcome_of(ran)
    assert ran.returncode == EXIT_USER
    assert outcome.error is not None
    assert (outcome.error.family, outcome.error.reason) == ("user", "PickleRefused")
    assert outcome.error.remedy
    assert len((tmp_path / "termination").read_bytes()) <= TERMINATION_MESSAGE_BYTES
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.parametrize(("content", "told"), [
    ("{", "not JSON"), ('{"version": 99}', "99"), ('{"model_name": "m", "surprise": 1}', "surprise")])
def test_a_request_that_is_none_is_told(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(content)
    ran = run("resolve", "--request", str(tmp_path / "request.json"))
    outcome = outcome_of(ran)
    assert ran.returncode == EXIT_USER
    assert outcome.error is not None
    assert outcome.error.reason == "RequestInvalid"
    assert told in outcome.error.message


def test_a_bad_option_is_told_without_an_operator(tmp_path: Path) -> None:
    ran = run("--model", "net.onnx", "--output", str(tmp_path), "--interface", "inputs: []")
    outcome = outcome_of(ran)
    assert ran.returncode == EXIT_USER
    assert outcome.error is not None
    assert outcome.error.message.startswith("--interface: not a JSON object")
    assert "operator" not in outcome.error.remedy


def test_by_hand_asks_what_the_operator_would(tmp_path: Path) -> None:
    options = parse_by_hand(["--model", "/models/My Net.v2", "--output", str(tmp_path), "--calibration", "c.npz",
                             "--max-batch-size", "4", "--latency-ms", "20", "--tolerance", "0.02"])
    request = hand_request(options, tmp_path)
    assert request.model_name == "my-net-v2"
    assert request.engine == EngineRequest(max_batch_size=4, calibration=DataRequest(uri="c.npz"))
    assert request.accuracy.tolerance == 0.02
    assert request.objective.latency_ms == 20
    assert request.store_path == str(tmp_path)


def test_the_report_says_what_its_command_leaves_out(tmp_path: Path) -> None:
    options = parse_by_hand(["--model", "net.onnx", "--output", str(tmp_path), "--latency-ms", "20"])
    request = hand_request(options, tmp_path)
    assert unsaid(request) == ""
    asked = dataclasses.replace(
        request, objective=dataclasses.replace(request.objective, latency_percentile=99.9, minimise="energy"),
        batching=BatchingRequest(preferred_batch_sizes=(4, 8)), instances=InstancesRequest(count=2))
    assert unsaid(asked) == (
        "The command builds without objective.latency_percentile 99.9, objective.minimise energy, "
        "batching.preferred_batch_sizes [4, 8], instances.count 2: it has no option for that.")


@pytest.mark.parametrize("name", ["onnxruntime", "tensorrt", "torch", "enginewright", "nvidia-pytriton"])
def test_an_upgrade_is_another_build(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store had "this engine already", of the packages before."""
    options = parse_by_hand(["--model", "net.onnx", "--output", "out"])

    def fingerprint() -> str:
        request = hand_request(options, tmp_path)
        return dataclasses.replace(request, source=SourceRequest(uri="net.onnx", digest="sha256:" + "0" * 64)
                                   ).fingerprint()

    before = fingerprint()
    assert fingerprint() == before
    about = tmp_path / f"{name.replace('-', '_')}-99.9.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert f"{name} 99.9" in hand_request(options, tmp_path).builder_image
    assert fingerprint() != before


@pytest.mark.parametrize(("source", "name"), [
    ("net.onnx", "net"), ("/models/net/", "net"), ("s3://models/bge-small-en-v1.5", "bge-small-en-v1-5"),
    ("hf://acme/Qwen2.5-0.5B@v1.0", "qwen2-5-0-5b"), ("oci://registry:5000/acme/net_1:v1.0", "net-1"),
    ("oci://quay.io/acme/net:v1/models/bge", "bge"), ("oci://quay.io/acme/net:v1@sha256:0", "net"),
    ("https://host/my%20net.pt2", "my-net"), ("/", "model"),
])
def test_a_model_is_named_after_its_source(source: str, name: str, tmp_path: Path) -> None:
    options = parse_by_hand(["--model", source, "--output", str(tmp_path)])
    assert hand_request(options, tmp_path).model_name == name


def test_the_reports_command_asks_for_the_same_build(tmp_path: Path) -> None:
    options = parse_by_hand(["--model", "s3://models/net", "--output", str(tmp_path), "--backend", "onnxruntime",
                             "--budget-seconds", "77", "--max-batch-size", "4", "--precision", "fp32", "--interface",
                             '{"inputs": [{"name": "text", "dtype": "string", "preprocess": {"from_source": true}}]}'])
    request = hand_request(options, tmp_path)
    assert request.interface is not None
    told = shlex.split(command(request))
    assert told[0] == "enginewright-build"
    assert '{"inputs":[{"dtype":"string","name":"text","preprocess":{"from_source":true}}]}' in told
    again = hand_request(parse_by_hand([*told[1:-1], str(tmp_path)]), tmp_path)
    assert again == request


def test_engines_by_hand_are_linked_under_friendly_names(tmp_path: Path) -> None:
    for fingerprint in ("a", "b"):
        model = tmp_path / fingerprint / "model_repository" / "model"
        model.mkdir(parents=True)
        (model / "config.pbtxt").write_text(fingerprint)
    for name, fingerprint in (("net", "a"), ("same", "a"), ("net", "b")):
        assert link_model(tmp_path, fingerprint, name) == tmp_path / "models"
    found = {path.name: (path / "config.pbtxt").read_text() for path in (tmp_path / "models").iterdir()}
    assert found == {"net": "b", "same": "a"}


def test_a_name_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="--name"):
        hand_request(parse_by_hand(["--model", "m", "--output", "o", "--name", "../x"]), tmp_path)


def test_the_help_names_every_metric() -> None:
    before, _, _ = " ".join(run("--help").stdout.split()).rpartition("--tolerance TOLERANCE")
    told = before.rpartition("--metric METRIC")[2]
    assert [metric for metric in (*METRICS, "onnx", "python:NAME") if metric not in told] == []


@pytest.mark.parametrize(("said", "told"), [
    ("raise spec.accuracy.maxLoss, or spec.engine.buildBudgetSeconds.", "raise --tolerance, or --budget-seconds."),
    ("give spec.engine.calibration.uri, apart from others", "give --calibration, apart from others"),
    ("or write spec.engine.fallback: source", "or write --fallback source"),
    ("spec.engine.drafts[0].uri", "--draft"),
    ("spec.interface.inputs[0].dtype of the model", "spec.interface.inputs[0].dtype of the model"),
])
def test_by_hand_fields_go_by_the_names_of_options(said: str, told: str) -> None:
    error = ErrorReport(family="user", reason="SourceInvalid", message=said, field=said, value=said, remedy=said)
    outcome = in_options(Outcome(kind="build", ok=False, error=error, candidates=(
        CandidateSummary(backend="torch", precision="fp32", batch=1, verdict="Skipped", reason=said),)))
    assert outcome.error == dataclasses.replace(error, message=told, field=told, remedy=told)
    assert outcome.candidates[0].reason == told


def test_each_option_that_fields_go_by_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_by_hand(["--help"])
    given = capsys.readouterr().out
    assert [option for option in OPTIONS.values() if f"\n  {option} " not in given] == []


def test_by_hand_says_what_is_wrong_as_json_where_nobody_watches(tmp_path: Path) -> None:
    ran = run("--model", str(tmp_path / "none"), "--output", str(tmp_path / "out"))
    outcome = outcome_of(ran)
    assert ran.returncode == EXIT_USER
    assert outcome.error is not None
    assert outcome.error.reason == "SourceNotFound"


def test_captures_of_a_name_that_is_none_are_told_in_words_of_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["captures", "--store", "store", "--of", "Team/Model"])
    said = capsys.readouterr().err
    assert "argument --of: captures: got 'Team/Model', expected NAMESPACE/MODEL, such as team-a/minilm" in said


@pytest.mark.parametrize("words", [["--output", "x"], ["--model", "x"], ["build"], ["--model", "x", "--what"]])
def test_usage_is_told(words: list[str]) -> None:
    ran = run(*words)
    assert ran.returncode == EXIT_USER
    assert "usage: enginewright-build" in ran.stderr


def test_a_gpu_is_named_as_its_node_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", FakeDriver)
    device = hand_device("gpu")
    assert (device.accelerator, device.products, device.gpu_count) == ("gpu", ("NVIDIA-H200",), 1)
    assert device.memory_bytes == TOTAL_BYTES
    assert parse_by_hand(["--model", "m", "--output", "o"]).accelerator == "gpu"
    assert "torch" in hand_runtime("gpu", "auto").python_runtimes


@pytest.mark.parametrize("driver", [NoDriver, StoppedDriver])
def test_a_gpu_that_is_not_there_is_told(driver: type[FakeDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", driver)
    with pytest.raises(ContractError, match="--accelerator: got 'gpu', but CUDA's driver finds no"):
        hand_device("gpu")
    assert parse_by_hand(["--model", "m", "--output", "o"]).accelerator == "cpu"
    assert hand_runtime("cpu", "auto").python_runtimes == ("onnxruntime",)
    assert hand_runtime("cpu", "torch").python_runtimes == ("onnxruntime", "torch")

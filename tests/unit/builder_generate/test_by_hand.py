"""``enginewright-build --task generate``: the request that it makes, and options that say nothing of the task."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from enginewright_builder.by_hand import hand_request, parse_by_hand
from enginewright_builder.contract import (
    BuildRequest,
    CheckpointRequest,
    ContractError,
    DataRequest,
    GenerateRequest,
    RuntimeRequest,
)
from enginewright_builder.errors import UserError
from enginewright_builder.generate.packages import PACKAGES_VARIABLE
from enginewright_builder.generating import command

WORDS = ["--task", "generate", "--model", "/models/Smol", "--output", "out"]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm-0.32.0+cpu.dist-info").mkdir()
    (tmp_path / "vllm-0.32.0+cpu.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    monkeypatch.setenv(PACKAGES_VARIABLE, str(tmp_path))
    return tmp_path


def asked(*words: str) -> BuildRequest:
    return hand_request(parse_by_hand([*WORDS, *words]), Path("out"))


def test_the_request_of_a_language_model(packages: Path) -> None:
    request = asked("--evaluation", "p.jsonl", "--tolerance", "0.05", "--ttft-ms", "500", "--tpot-ms", "80",
                    "--context", "2048", "--accelerator", "cpu")
    assert request.model_name == "smol"
    assert request.generate == GenerateRequest(ttft_ms=500, tpot_ms=80, context_tokens=2048)
    assert (request.accuracy.metric, request.accuracy.tolerance) == ("agreement", 0.05)
    assert request.accuracy.evaluation == DataRequest(uri="p.jsonl")
    assert request.engine.build_budget_seconds == 1800
    assert BuildRequest.from_json(request.to_json()) == request


def test_another_version_of_the_server_is_another_build(packages: Path) -> None:
    assert asked().runtime == RuntimeRequest(server_image="vllm 0.32.0+cpu", backends=(), python_runtimes=())


def test_the_reports_command_asks_for_the_same_build(packages: Path) -> None:
    request = asked("--evaluation", "p.jsonl", "--tpot-ms", "80", "--budget-seconds", "77")
    words = shlex.split(command(request))
    assert hand_request(parse_by_hand([*words[1:-1], "out"]), Path("out")) == request


def test_checkpoints_are_listed_by_name_and_place(packages: Path) -> None:
    request = asked("--evaluation", "p.jsonl", "--checkpoint", "awq=/models/awq", "--checkpoint", "fp8=hf://o/m@a=b",
                    "--budget-seconds", "77")
    assert request.generate == GenerateRequest(checkpoints=(
        CheckpointRequest(name="awq", uri="/models/awq"), CheckpointRequest(name="fp8", uri="hf://o/m@a=b")))
    assert BuildRequest.from_json(request.to_json()) == request
    words = shlex.split(command(request))
    assert hand_request(parse_by_hand([*words[1:-1], "out"]), Path("out")) == request
    assert "checkpoints" not in asked().to_json(), "as it was before there were any"


@pytest.mark.parametrize("word", ["awq", "=/models/awq", "awq="])
def test_a_checkpoint_needs_a_name_and_a_place(word: str, packages: Path) -> None:
    for option in ("--checkpoint", "--draft"):
        with pytest.raises(ContractError, match=f"{option}: got '{word}', expected NAME=URI"):
            asked(option, word)


def test_drafts_are_listed_by_name_and_place(packages: Path) -> None:
    request = asked("--evaluation", "p.jsonl", "--draft", "small=/models/small", "--budget-seconds", "77")
    assert request.generate == GenerateRequest(drafts=(CheckpointRequest(name="small", uri="/models/small"),))
    words = shlex.split(command(request))
    assert hand_request(parse_by_hand([*words[1:-1], "out"]), Path("out")) == request
    assert "drafts" not in asked().to_json(), "as it was before there were any"


@pytest.mark.parametrize("words", [
    ["--precision", "int8"], ["--max-batch-size", "4"], ["--latency-ms", "20"], ["--metric", "top1"],
    ["--calibration", "c.npz"], ["--task-metric", "accuracy"], ["--fallback", "source"]])
def test_options_of_engines_are_refused(words: list[str], packages: Path) -> None:
    with pytest.raises(ContractError, match=f"{words[0]}: got .*, and it does not apply to language models"):
        asked(*words)


@pytest.mark.parametrize("words", [["--ttft-ms", "5"], ["--tpot-ms", "5"], ["--context", "5"],
                                   ["--checkpoint", "a=b"], ["--draft", "a=b"]])
def test_options_of_language_models_are_refused_without_the_task(words: list[str]) -> None:
    with pytest.raises(ContractError, match=f"{words[0]}: got .*; leave it out, or add --task generate"):
        hand_request(parse_by_hand(["--model", "m", "--output", "out", *words]), Path("out"))


def test_without_vllm_there_is_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PACKAGES_VARIABLE, raising=False)
    with pytest.raises(UserError, match="there is no vLLM here"):
        asked()

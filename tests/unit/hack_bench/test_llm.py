"""The benchmark of language models: its prompts, the model that it makes up, what it says of a result."""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bench import llm, llm_build, llm_page, llm_speed
from bench.llm_prompts import prompts
from enginewright_builder.contract import to_plain
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.figures import Figures, Spread
from enginewright_builder.generate.prompts import read_prompts
from enginewright_builder.generate.sweep import Point
from support import carried

BENCH = carried.ROOT / "hack" / "bench"


def point(concurrency: int, value: float, *, meets: bool = True) -> dict[str, Any]:
    spread = Spread(p50=value, p90=value, p99=value)
    found: dict[str, Any] = to_plain(Point(concurrency=concurrency, value=value, meets=meets, figures=Figures(
        seconds=1.0, requests=8, failed=0, errors={}, finishes={}, ttft_ms=spread, tpot_ms=spread, gap_ms=spread,
        input_tokens=8, output_tokens=8, output_rate=value, request_rate=1.0, goodput=value, within=1.0)))
    return found


def measured(name: str, *points: dict[str, Any], **settings: Any) -> dict[str, Any]:
    arguments = ServerArguments(**settings)
    return {"name": name, "words": arguments.words(), "settings": to_plain(arguments), "start_s": 40.0,
            "loads": [list(points)] if points else []}


def test_prompts_are_those_of_a_build_and_no_two_alike(tmp_path: Path) -> None:
    lines = list(prompts(300, 64))
    assert lines == list(prompts(300, 64))
    assert len(set(lines)) == 300
    (tmp_path / "prompts").write_text("\n".join(lines))
    assert {ask.max_tokens for ask in read_prompts(tmp_path / "prompts") if ask.chat} == {64}


def test_the_larger_model_is_as_large_as_it_is_called() -> None:
    shape = llm_speed.config(argparse.Namespace(hidden=4096, layers=32))
    assert llm_speed.parameters(shape) == pytest.approx(7.38e9, rel=0.01)
    assert shape["num_attention_heads"] * shape["head_dim"] == shape["hidden_size"]


def test_the_leader_is_the_default_unless_another_gains() -> None:
    found = {"configurations": [measured(llm_speed.DEFAULT, point(64, 10.0), point(128, 30.0, meets=False)),
                                measured("fp8"), measured("b", point(64, 10.1))]}
    assert llm_speed.leader(found)["name"] == llm_speed.DEFAULT
    found["configurations"].append(measured("c", point(128, 14.0), quantization="fp8"))
    assert llm_speed.leader(found)["name"] == "c"
    with pytest.raises(RuntimeError, match="could not be measured"):
        llm_speed.leader({"configurations": [measured(llm_speed.DEFAULT)]})


def test_a_page_has_each_number_from_the_file() -> None:
    loss = {"value": 0.02, "floor": 0.01, "beyond": 0.01, "high": 0.03}
    trial = {"name": "fp8", "precision": "fp8", "verdict": "AccuracyRefused", "reason": "of its tokens 9 % differ",
             "start_s": 41.0, "gate_s": 2.0, "loss": loss, "divergence": loss, "points": [point(256, 9000.0)]}
    result = {
        "hardware": {"cpu": "some", "cores": 16}, "versions": {"vllm": "0.20.2"}, "command": ["make bench-llm"],
        "build": {"refused": [{"tolerance": 0.01, "why": "the floor"}], "command": "enginewright-build",
                  "seconds": 300.0, "budget_s": 480, "tolerance": 0.05, "shipped": "bf16, n-grams", "gain": 1.25,
                  "confirmed": True, "words": ["--dtype=bfloat16"],
                  "prompts": {"count": 300, "mean_tokens": 39.5}, "notes": ["a note"],
                  "floor": {"disagreement": 0.0123, "divergence": 0.004, "places": 9600}, "trials": [trial]},
        "speed": {"model": llm_speed.config(argparse.Namespace(hidden=4096, layers=32)), "parameters": 7382241280,
                  "objective": {"ttft_ms": 1000.0, "tpot_ms": 25.0, "percentile": 99.0}, "input_tokens": 256,
                  "output_tokens": 128, "configurations": [measured(llm_speed.DEFAULT, point(64, 10.0)),
                                                           measured("c") | {"error": "TimeoutError: \nlog"}],
                  "pairs": [{"order": ["best", "default"], "best_value": 15.0, "default_value": 10.0, "ratio": 1.5},
                            {"order": ["default", "best"]}]},
        "failed": [{"part": "pairs", "error": "RuntimeError: it"}]}
    text = llm_page.page(result)
    for expected in ("**bf16, n-grams**, at 1.25 times", "9600 next tokens of 300 prompts", "1.23%", "may lose 5%",
                     "| fp8 | AccuracyRefused | 2.00% | 3.00% | 9000.0 | 9000.00 | 9000 | 256 | 41 |",
                     "- fp8: of its tokens 9 % differ", "With a tolerance of 0.01 the build was refused: the floor",
                     "7.4 billion", "| best, then default | 15.00 | 10.00 | 1.50× |", "- c: failed: TimeoutError: ",
                     "- pairs: RuntimeError: it"):
        assert expected in text
    assert text.count("| order |") == 1


def test_a_typed_command_names_files_without_their_folders() -> None:
    assert llm_build._typed(["--model", "/tmp/a/smollm2", "--checkpoint=int8=/tmp/b/c", "--tolerance", "0.05"]) == (
        "enginewright-build --model smollm2 --checkpoint=int8=c --tolerance 0.05")


def test_the_command_repeats_the_run() -> None:
    given = llm._parser().parse_args(["--output", "x.json", "--parts", "build", "--hidden", "256"])
    assert llm.command(given) == "make bench-llm 'ARGS=--parts=build --hidden=256'"


def test_a_command_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Begun(subprocess.Popen[bytes]):
        """Its time begins once it has said something, which takes a busy machine longer than it has."""

        def wait(self, timeout: float | None = None) -> int:
            while not (tmp_path / "begun").exists():
                time.sleep(0.01)
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Begun)
    status, text = llm_build._ran(["sh", "-c", f"echo on; echo > {tmp_path / 'begun'}; exec sleep 600"], 0.1)
    assert (status, text) == (-9, "on\n")


def test_parts_travel_below_their_limit() -> None:
    assert "split -b 40m" in (BENCH / "carry-common.sh").read_text()
    for script in ("carry-common.sh", "carry-llm.sh", "unpack-llm.sh"):
        subprocess.run(["bash", "-n", str(BENCH / script)], check=True)


def test_what_a_part_found_stays_for_the_next(tmp_path: Path) -> None:
    file, facts = tmp_path / "one.json", {"hardware": {"cpu": "a"}, "versions": {}}
    assert llm._earlier(file, facts) == facts
    llm._save({**facts, "build": 1}, file)
    assert json.loads(file.read_text()) == llm._earlier(file, facts) == {**facts, "build": 1}
    with pytest.raises(ValueError, match="of other hardware"):
        llm._earlier(file, {"hardware": {"cpu": "b"}, "versions": {}})

"""A language model built on two GPUs of one host: a real vLLM divides it between them, and the gate holds that against
one GPU.

    make test-gpu GPUS=2      # with what hack/bench/carry-llm.sh packs beside the rest; INPUTS_LLM=DIR
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bench.llm_prompts import prompts
from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    GenerateRequest,
    Outcome,
    SourceRequest,
    dumps,
    load,
)
from enginewright_builder.pod.device import devices
from enginewright_builder.report.generation import GenerateReport

pytestmark = [pytest.mark.gpu, pytest.mark.two_gpus, pytest.mark.timeout(600)]
SMOLLM2 = Path(os.environ.get("INPUTS_LLM", "/tmp/bench-llm")) / "models" / "smollm2"
TOLERANCE, PROMPTS, BUDGET = 0.05, 120, 420
# Of SmolLM2, whose nine heads two GPUs cannot share.
HEAD, GROUP = 64, 3


def with_more_heads(source: Path, folder: Path) -> Path:
    """The same model with another group of heads, which add nothing to any answer."""
    folder.mkdir()
    for file in source.iterdir():
        if file.suffix != ".safetensors" and file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    config |= {"num_attention_heads": config["num_attention_heads"] + GROUP, "head_dim": HEAD,
               "num_key_value_heads": config["num_key_value_heads"] + 1}
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(source / "model.safetensors")
    for name, weight in weights.items():
        kind = name.rpartition(".self_attn.")[2]
        if kind in ("q_proj.weight", "k_proj.weight", "v_proj.weight"):
            more = HEAD * (GROUP if kind.startswith("q") else 1)
            weights[name] = torch.cat([weight, torch.zeros(more, weight.shape[1], dtype=weight.dtype)])
        elif kind == "o_proj.weight":
            weights[name] = torch.cat([weight, torch.zeros(weight.shape[0], HEAD * GROUP, dtype=weight.dtype)], 1)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    return folder


def run(*words: object) -> str:
    done = subprocess.run([sys.executable, "-m", "enginewright_builder", *map(str, words)], text=True, timeout=500,
                          capture_output=True, check=False)
    print(done.stderr[-3000:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_two_gpus_serve_a_model_together(tmp_path: Path) -> None:
    if len(devices()) < 2:
        pytest.fail("this machine has fewer than two GPUs: run `make test-gpu` without GPUS=2 here", pytrace=False)
    (tmp_path / "prompts.jsonl").write_text("\n".join(prompts(PROMPTS, 32)) + "\n")
    (tmp_path / "store").mkdir()
    request = BuildRequest(
        model_name="smollm2", source=SourceRequest(uri=str(with_more_heads(SMOLLM2, tmp_path / "smollm2"))),
        store_path=str(tmp_path / "store"), device=DeviceRequest(accelerator="gpu", gpu_count=2),
        engine=EngineRequest(build_budget_seconds=BUDGET), generate=GenerateRequest(),
        accuracy=AccuracyRequest(metric="agreement", tolerance=TOLERANCE,
                                 evaluation=DataRequest(uri=str(tmp_path / "prompts.jsonl"))))
    (tmp_path / "request.json").write_text(dumps(request))
    run("build", "--request", tmp_path / "request.json", "--hand-over", tmp_path / "left")
    outcome = Outcome.from_json(run("prove", "--hand-over", tmp_path / "left").splitlines()[-1])
    assert outcome.ok, outcome
    report = load(GenerateReport, (tmp_path / "store" / outcome.fingerprint / "build-report.json").read_text())
    trials = {one.name: one for one in report.trials}
    print(json.dumps([(one.name, one.verdict, one.reason, one.start_seconds) for one in report.trials], indent=1))
    divided = trials["bf16, 2 GPUs"]
    assert divided.arguments.tensor_parallel_size == 2
    assert divided.judgement is not None, divided.reason
    assert divided.judgement.passed
    assert divided.best.figures.failed == 0

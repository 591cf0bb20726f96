"""``make demo-llm``, whole, with a build whose search ends early: judged by the figures that it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.llm import BROKEN, MODEL, NAMESPACE, OUTPUT
from demo.shell import ROOT, Kube
from support.browser import chart, show


# Where no other test has built the image of vLLM before, its packages are downloaded within this.
@pytest.mark.timeout(3600)
def test_a_language_model_is_proven_served_and_scaled(kube: Kube, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "demo.llm", "--brief"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": "hack:builders"}, check=False, timeout=3540)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "Paris" in done.stdout, "OpenAI's client got another answer"
    summary = json.loads((OUTPUT / "summary.json").read_text())
    assert (summary["ready"], summary["server"]) == (True, "vllm")
    agreement = summary["agreement"]
    assert min(agreement["value"], agreement["noise_floor"]) >= 1 - agreement["tolerance"]
    assert summary["sabotaged_refused"] is True
    assert (summary["failed_requests"], summary["cut_streams"]) == (0, 0), summary["errors"]
    assert summary["requests"] > 100
    assert summary["ttft_p99_ms"] >= summary["ttft_p50_ms"] > 0
    assert summary["tokens_per_s"] > 0
    assert (summary["peak_replicas"], summary["final_replicas"]) == (2, 1)
    steps = {"cluster", "images", "operator", "build", "ready", "chat", "scale_up", "scale_down"}
    assert set(summary["seconds"]) == steps
    status = kube.json("get", "om", MODEL, "-n", NAMESPACE)["status"]
    found = {one["name"]: one for one in status["candidates"]}
    refused = found.pop(f"checkpoint {BROKEN}")
    assert refused["verdict"] == "AccuracyRefused"
    assert refused["reason"]
    (shipped,) = (name for name, one in found.items() if one["verdict"] == "Shipped")
    assert {one["verdict"] for name, one in found.items() if name != shipped} == {"Skipped"}
    assert status["engine"]["tokens"]["outputRate"] > 0
    page = show(OUTPUT / "report.html", tmp_path)
    assert page.console == ()
    assert chart(page, "pareto")

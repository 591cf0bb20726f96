"""The benchmark of the real command, on this CPU with a small model: what it would write for a GPU; and its page."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import page, product_page


@pytest.mark.torch
@pytest.mark.triton
@pytest.mark.timeout(1200)
def test_what_the_real_command_published_is_raced_and_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from bench import cells, product, run
    from bench.zoo import Entry
    from enginewright_builder.contract import DeviceRequest, Interface, TensorSpec
    from enginewright_builder.models import SourceModel
    from enginewright_builder.models.torch_base import TorchModel

    class Slower(torch.nn.Module):
        """By sums that nothing needs: ONNX graphs are without them, and so faster, however busy the machine."""

        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(500):
                x.sum(1, keepdim=True)
            output: torch.Tensor = self.inner(x)
            return output

    def load(_: Path, device: str) -> SourceModel:
        interface = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 64)),),
                              outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 8)),))
        layers = [layer for _ in range(20) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
        inner = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8))
        return TorchModel(Slower(inner).eval(), interface, name="small", device=device)

    # The real command, but for how long it measures: its budget is more than any machine needs.
    monkeypatch.setattr(product, "PROGRAM", "support.measuring")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(run, "CELL_SECONDS", 0.0)
    monkeypatch.setattr(run, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(cells, "BATCHES", (1, 8))
    monkeypatch.setattr(product, "SERVED_SECONDS", 0.5)
    monkeypatch.setattr(product, "WARMUP_SECONDS", 0.1)
    monkeypatch.setattr(product, "SERVED_BASELINES", {"eager": "eager-fp32"})
    small = Entry("small", "random", load, samples=400)
    built = product.build(small, tmp_path, tmp_path / "product", "cpu", 900)
    # One that is built in no time: test_run.py has PyTorch compiled for a benchmark, and the real command has it here.
    found = run.benchmark(small, tmp_path, tmp_path / "model", tmp_path / "caches", DeviceRequest(), 300.0,
                          run.chosen_engines("onnxruntime fp32"), built.published)
    row = product.row(built, found) | product.serve(built, found.subject, tmp_path / "served", ())
    assert row["model"] == "small"
    assert row["budget_s"] == 900
    assert row["build_s"] > 0
    assert set(row["shipped"]) == set(row["regret"]) == {1, 8}
    assert row["shipped"][1].startswith("onnxruntime")
    assert {"p50_ms", "p99_ms", "eager_p50_ms", "bare_ms"} <= row["served"].keys()
    assert row["knee"]["concurrency"] == built.published.report.sweep.best.concurrency  # type: ignore[union-attr]
    assert run.AS_SHIPPED == product_page.AS_SHIPPED
    assert run.AS_SHIPPED in found.record["cells"][0]["candidates"]
    assert json.loads(json.dumps(row))["regret"].keys() == {"1", "8"}


@pytest.mark.torch
def test_a_build_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import product
    from bench.zoo import Entry

    monkeypatch.setattr(product, "_given", lambda *_: (tmp_path / "absent.onnx", []))
    with pytest.raises(RuntimeError, match=r"status 2(?s:.*)absent\.onnx"):
        product.build(Entry("absent", "random", lambda *_: pytest.fail("not needed")), tmp_path, tmp_path, "cpu", 10)


def test_the_page_has_the_figures_of_the_goals() -> None:
    row: dict[str, Any] = {
        "model": "resnet50", "budget_s": 300, "build_s": 290.4, "shipped": {"1": "tensorrt int8 @1", "8": "torch fp16"},
        "regret": {"1": 1.0, "8": 1.05}, "over_eager_fp32": {"1": 4.0, "8": 16.0}, "over_compile_graphs": {"1": 1.5},
        "served": {"p50_ms": 1.0, "p99_ms": 2.0, "eager_p50_ms": 8.0, "compile_p50_ms": 4.0, "bare_ms": 0.5},
        "knee": {"concurrency": 16, "p50_ms": 2.0, "p99_ms": 3.0, "eager_p50_ms": 8.0, "compile_p50_ms": 4.0},
        "untried": ["torch bf16"]}
    part = {"hardware": {"gpu": "GPU", "memory": "1 MiB", "driver": "1", "cpu": "CPU"}, "versions": {"torch": "2"},
            "command": "make bench-gpu MODELS=resnet50", "product": [row], "failed": [], "cells": [
                {"model": "resnet50", "batch": 8, "candidates": {
                    "as shipped": {"passes": True}, "torch bf16": {"passes": True},
                    "tensorrt int8": {"passes": False}}}]}
    result = product_page.product([part])
    figures = product_page.summary(result)
    assert figures["within_3_percent"] == 0.5
    assert figures["over_eager_fp32"] == pytest.approx(8.0)
    assert figures["served_over_eager"] == pytest.approx(8.0)
    assert figures["knee_over_eager"] == pytest.approx(4.0)
    text = product_page.page(result)
    assert "| resnet50 | 300 | 290 | 8 | torch fp16 | 1 | 1.050× | 16.00× |  |" in text
    assert "- resnet50: not tried within the budget: torch bf16" in text


def test_parts_of_older_form_have_no_product_rows() -> None:
    part = {"hardware": {}, "versions": {}, "command": "", "cells": [], "builds": [], "serving": [], "models": [],
            "failed": []}
    assert page.merge([part])["product"] == []

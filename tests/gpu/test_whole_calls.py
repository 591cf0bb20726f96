"""Whole builds on a real GPU of models that are not what most are: one that takes no batches, and one that takes texts.

TensorRT has neither; ONNX Runtime's CUDA provider leaves what CUDA lacks to the CPU."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    Outcome,
    RuntimeRequest,
    SourceRequest,
)
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from support.inputs import graphs

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def built(folder: Path, evaluation: Path) -> Outcome:
    request = BuildRequest(
        model_name="model", source=SourceRequest(uri=str(folder / "model.onnx")), store_path=str(folder / "store"),
        device=DeviceRequest(accelerator="gpu", gpu_count=1),
        runtime=RuntimeRequest(backends=("python",), python_runtimes=("tensorrt", "onnxruntime")),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(evaluation))),
        engine=EngineRequest(max_batch_size=4, build_budget_seconds=60))
    outcome = run_build(request, folder / "scratch", Tracker(JsonLines(io.StringIO())))
    print(json.dumps([(one.name, one.verdict, one.reason) for one in outcome.candidates]))
    return outcome


def test_a_model_that_takes_no_batches_is_served_from_the_gpu(tmp_path: Path) -> None:
    onnx.save(graphs.voice(), tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    np.savez(tmp_path / "evaluation", sound=random.normal(size=(400, 32)).astype(np.float32),
             state=random.normal(size=(400, 2, 1, 8)).astype(np.float32), sr=np.full(400, 16000))
    outcome = built(tmp_path, tmp_path / "evaluation.npz")
    assert outcome.error is None
    assert outcome.serving is not None
    assert outcome.serving.max_batch_size == 0
    assert outcome.engine is not None
    assert outcome.engine.backend == "onnxruntime"


def test_texts_are_served_from_the_gpu(tmp_path: Path) -> None:
    onnx.save(graphs.words(), tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    known = ["engine", "wright", "makes", "models", "fast", "Zürich", "", *(f"word {number}" for number in range(20))]
    lines = [json.dumps({"word": list(random.choice(known, 4))}) for _ in range(300)]
    (tmp_path / "evaluation.jsonl").write_text("\n".join(lines))
    outcome = built(tmp_path, tmp_path / "evaluation.jsonl")
    assert outcome.error is None
    assert outcome.serving is not None
    assert outcome.serving.max_batch_size == 4

"""Rows with values that are missing, through a forest that a real build made and a real tritonserver serves."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Outcome,
    SourceRequest,
)
from enginewright_builder.mlperf.engine import open_engine, samples
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.tensors import Array
from enginewright_builder.triton.server import TritonServer
from support.inputs.graphs import trees

pytestmark = [pytest.mark.triton]


def gappy(count: int, seed: int) -> Array:
    """Some values of it are missing, and all of one row."""
    chance = np.random.default_rng(seed)
    x = chance.standard_normal((count, 4)).astype(np.float32)
    x[chance.random(x.shape) < 0.2] = np.nan
    x[1] = np.nan
    return x


def built(folder: Path) -> Path:
    """The model repository of a forest."""
    onnx.save(trees(), folder / "forest.onnx")
    np.savez(folder / "evaluation.npz", x=gappy(400, 1))
    request = BuildRequest(
        model_name="forest", source=SourceRequest(uri=str(folder / "forest.onnx")), store_path=str(folder / "store"),
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=8, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=DataRequest(uri=str(folder / "evaluation.npz"))))
    outcome = run_build(request, folder / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is None
    return folder / "store" / outcome.fingerprint / "model_repository"


async def answered(server: TritonServer, data: Path, output: Path) -> None:
    words = ["batch", "--input", data, "--output", output, "--model", "model", "--engine", "a" * 64, "--http",
             server.address.http, "--grpc", server.address.grpc, "--ready-seconds", 60]
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-m", "enginewright_builder", *map(str, words)],
                                   capture_output=True, text=True, check=False)
    outcome = Outcome.from_json(done.stdout.splitlines()[-1])
    assert outcome.ok, outcome.error


async def test_rows_with_missing_values_are_answered_as_the_source_answers(tmp_path: Path) -> None:
    repository = await asyncio.to_thread(built, tmp_path)
    x = gappy(100, 2)
    np.savez(tmp_path / "rows.npz", x=x)
    (tmp_path / "rows.jsonl").write_text("".join(
        json.dumps({"x": [None if np.isnan(one) else float(one) for one in row]}) + "\n" for row in x))
    async with TritonServer(repository, models=("model",)) as server:
        await answered(server, tmp_path / "rows.npz", tmp_path / "npz")
        await answered(server, tmp_path / "rows.jsonl", tmp_path / "jsonl")
    engine = open_engine(repository.parent)
    rows, _ = samples(engine.report.interface, tmp_path / "rows.npz", missing=engine.takes_missing)
    assert np.isnan(rows[1]["x"]).all()
    session = ort.InferenceSession(tmp_path / "forest.onnx", providers=["CPUExecutionProvider"])
    labels, shares = session.run(None, {"x": x})
    expected = np.array([[row[place] for place in range(3)] for row in shares])
    (file,) = (tmp_path / "npz").glob("answers-*.npz")
    found = np.load(file)
    np.testing.assert_array_equal(found["label"].ravel(), labels)
    np.testing.assert_allclose(found["probability"], expected, atol=1e-6)
    (file,) = (tmp_path / "jsonl").glob("answers-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    np.testing.assert_allclose([line["probability"] for line in lines], expected, atol=1e-6)

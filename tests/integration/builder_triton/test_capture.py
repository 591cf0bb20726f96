"""From live requests to a tritonserver, by its monitor and the store, to a build that calibrates and is judged on
them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    REPORT_FILE,
    AccuracyRequest,
    BuildRequest,
    CapturesRequest,
    DataRequest,
    EngineRequest,
    Outcome,
    SourceRequest,
    TaskRequest,
)
from enginewright_builder.engine_store.captures import Capture, captures_of, whole
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.pipeline import run_build
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.triton.ports import free_ports
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually

pytestmark = [pytest.mark.triton]
KEY = "k" * 64
OF = "prod/net"
ROWS = 8


def network(folder: Path) -> Path:
    """``y = relu(x · A) · B``."""
    dice = np.random.default_rng(0)
    weights = {name: dice.normal(0, 0.3, shape).astype(np.float32) for name, shape in (("a", (16, 32)), ("b", (32, 8)))}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
         helper.make_node("MatMul", ["r", "b"], ["y"])],
        "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "net.onnx")
    return folder / "net.onnx"


def built(request: BuildRequest, scratch: Path) -> Outcome:
    return run_build(request, scratch, Tracker(JsonLines(io.StringIO())))


def test_captured_requests_are_what_the_next_engine_is_calibrated_and_judged_on(tmp_path: Path) -> None:
    source, store, keys = SourceRequest(uri=str(network(tmp_path))), tmp_path / "store", tmp_path / "keys"
    keys.mkdir()
    (keys / "key").write_text(KEY)
    first = built(BuildRequest(
        model_name="net", source=source, store_path=str(store), keep_reference=True,
        engine=EngineRequest(precision="fp32", fallback="source", max_batch_size=ROWS, build_budget_seconds=900),
        accuracy=AccuracyRequest(tolerance=0.05)), tmp_path / "first")
    assert first.error is None
    (tmp_path / "traces").mkdir()
    captures_of(store, OF).mkdir(parents=True)
    capture = asyncio.run(captured(store / first.fingerprint, captures_of(store, OF), keys, tmp_path))

    data = DataRequest(uri="captured://net")
    second = BuildRequest(
        model_name="net", source=source, store_path=str(store),
        captures=CapturesRequest(namespace="prod", keys=str(keys)),
        engine=EngineRequest(precision="auto", fallback="source", max_batch_size=ROWS, build_budget_seconds=900,
                             backend="onnxruntime", calibration=data),
        accuracy=AccuracyRequest(tolerance=0.1, evaluation=data))
    outcome = built(second, tmp_path / "second")
    assert outcome.error is None
    assert outcome.source
    assert outcome.source.evaluation_digest == outcome.source.calibration_digest == capture.about.digest
    assert outcome.engine
    assert outcome.engine.evaluation == "held-out"
    static = [one for one in outcome.candidates if "int8-static" in one.name]
    assert static
    assert all(one.verdict != "Skipped" for one in static), "it was calibrated"
    report = json.loads((store / outcome.fingerprint / REPORT_FILE).read_text())
    samples = (capture.about.samples + 1) // 2
    assert report["accuracy"]["samples"] == samples
    assert any(capture.name in note for note in report["notes"])

    labelled = BuildRequest(model_name="net", source=source, store_path=str(store), captures=second.captures,
                            accuracy=AccuracyRequest(evaluation=data, task=TaskRequest(metric="accuracy")))
    refused = built(labelled, tmp_path / "third").error
    assert refused is not None
    assert (refused.reason, refused.field) == ("CaptureWithoutLabels", "spec.accuracy.task")


async def captured(engine: Path, folder: Path, keys: Path, tmp_path: Path) -> Capture:
    """The first capture with enough samples that the engine's monitor, run as its container runs it, has written."""
    traces = tmp_path / "traces"
    options = ("--trace-config=mode=triton", f"--trace-config=triton,file={traces}/trace.json")
    repository = engine / "model_repository"
    async with TritonServer(repository, models=("model",), options=options) as server:
        [port] = free_ports(1)  # not before the server has its own: nothing holds it until the monitor does
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "enginewright_builder.quality", str(engine / "reference"), "--model=model",
            f"--traces={traces}", "--share=1", "--per-minute=600", "--window=500", f"--port={port}",
            f"--triton-port={server.http_url.rpartition(':')[2]}", f"--captures={folder}", f"--capture-keys={keys}",
            f"--capture-of={OF}", "--revision=abc12345", "--capture-samples=200", "--capture-bytes=100000",
            "--capture-interval=8", "--capture-retention=3600",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)})
        try:
            async with httpx.AsyncClient(base_url=server.http_url, trust_env=False, timeout=60) as client:
                dice = np.random.default_rng(5)

                async def enough() -> Capture:
                    for _ in range(20):
                        x = dice.standard_normal((ROWS, 16)).round(3)
                        answer = await client.post("/v2/models/model/infer", json={"inputs": [
                            {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}]})
                        answer.raise_for_status()
                    found = whole(folder, OF, Keys(current=KEY.encode()), time.time())
                    large = [one for one in found if one.about.samples >= 100]
                    assert large, [one.about for one in found]
                    return large[0]

                capture = await eventually(enough, 300)
        finally:
            child.terminate()
            assert await asyncio.wait_for(child.wait(), 60) == 0
    _keep_alone(capture, folder)
    return capture


def _keep_alone(capture: Capture, folder: Path) -> None:
    """A build takes the newest, and the monitor may have written another one since this one was found."""
    for path in folder.iterdir():
        if path != capture.folder:
            shutil.rmtree(path)

"""A build in two programs on a real GPU, as in a pod: the one that builds has the GPU until it ends, then a server has
it, and the one that proves has none (docs/adr/0029)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    DeviceRequest,
    EngineRequest,
    Outcome,
    RuntimeRequest,
    SourceRequest,
    dumps,
)
from enginewright_builder.load import run_on_time
from enginewright_builder.report import read_report
from enginewright_builder.triton.gpu_metrics import reading
from enginewright_builder.triton.server import TritonServer

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
HEADER, KEY = "enginewright-model-control", "a-key-of-this-test"
WIDTH = 2048


def asked(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array((rng.standard_normal((WIDTH, WIDTH)) / WIDTH ** 0.5).astype(np.float32), name)
               for name in ("a", "b")]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["m"]), helper.make_node("Relu", ["m"], ["n"]),
             helper.make_node("MatMul", ["n", "b"], ["y"])]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", WIDTH])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", WIDTH])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
              folder / "model.onnx")
    np.savez(folder / "data.npz", x=rng.standard_normal((300, WIDTH)).astype(np.float32))
    (folder / "store").mkdir()
    request = BuildRequest(
        model_name="net", source=SourceRequest(uri=str(folder / "model.onnx")), store_path=str(folder / "store"),
        device=DeviceRequest(accelerator="gpu", gpu_count=1),
        runtime=RuntimeRequest(backends=("python",), python_runtimes=("tensorrt",)),
        accuracy=AccuracyRequest(evaluation=DataRequest(uri=str(folder / "data.npz"))),
        engine=EngineRequest(backend="tensorrt", precision="fp16", max_batch_size=8, build_budget_seconds=150))
    (folder / "request.json").write_text(dumps(request))
    return folder / "request.json"


def run(*words: object, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-m", "enginewright_builder", *map(str, words)], text=True, timeout=400,
                          capture_output=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the prover left, and bytes of GPU memory in use before its first model and after its last: None where the
    server has no GPU metrics."""

    outcome: Outcome
    store: Path
    before: int | None
    after: int | None


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("two")
    request, models = asked(folder), folder / "models"
    (folder / "key").write_text(f"{KEY}\n")
    run("build", "--request", request, "--hand-over", folder / "left")
    models.mkdir()
    return run_on_time(proven(folder, models))


async def proven(folder: Path, models: Path) -> Shown:
    options = (f"--http-restricted-api=model-repository:{HEADER}={KEY}", "--metrics-interval-ms=100")
    async with TritonServer(models, gpus=(0,), options=options) as server:
        before = reading(await server.metrics()).memory_bytes
        said = run("prove", "--hand-over", folder / "left", "--repository", models, "--http", server.address.http,
                   "--grpc", server.address.grpc, "--metrics", server.address.metrics, "--key-file", folder / "key",
                   CUDA_VISIBLE_DEVICES="-1")
        return Shown(outcome=Outcome.from_json(said.splitlines()[-1]), store=folder / "store", before=before,
                     after=reading(await server.metrics()).memory_bytes)


def test_the_prover_needs_no_gpu(shown: Shown) -> None:
    assert shown.outcome.ok, shown.outcome
    assert shown.outcome.engine is not None
    assert shown.outcome.engine.backend == "tensorrt"
    assert read_report(shown.store / shown.outcome.fingerprint).sweep


@pytest.mark.gpu_metrics
def test_the_prover_measures_what_the_server_draws(shown: Shown) -> None:
    engine = shown.outcome.engine
    assert shown.before is not None, "this tritonserver has no GPU metrics"
    assert shown.after is not None
    assert engine is not None
    assert engine.inferences_per_joule
    assert engine.power_watts
    assert engine.memory_bytes > 2 * WIDTH * WIDTH
    # An unloaded finalist leaves its process's context at most: less than two engines.
    print(json.dumps({"watts": engine.power_watts, "inferences_per_joule": engine.inferences_per_joule,
                      "memory_bytes": engine.memory_bytes, "used_before": shown.before, "used_after": shown.after}))
    assert shown.after - shown.before < engine.memory_bytes

"""A build in two programs, as in a pod: one builds, the other proves on a tritonserver that somebody else runs."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import pytest_asyncio
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Outcome,
    SourceRequest,
    dumps,
)
from enginewright_builder.engine_store import folder as store
from enginewright_builder.pipeline import OUTCOME_FILE, run_finalists, run_proof
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.proving import GivenServer
from enginewright_builder.report import read_report
from enginewright_builder.triton.client import Address
from enginewright_builder.triton.ports import HOST, free_ports
from enginewright_builder.triton.server import TritonServer
from support.measuring import short_program

pytestmark = pytest.mark.triton
HEADER, KEY = "enginewright-model-control", "a-key-of-this-test"


@pytest.fixture(scope="module")
def asked(request_file: Path) -> BuildRequest:
    return BuildRequest.from_json(request_file.read_text())


@pytest.fixture(scope="module")
def request_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked")
    rng = np.random.default_rng(3)
    weights = numpy_helper.from_array(rng.standard_normal((16, 8)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["y"])],
                              "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
              folder / "model.onnx")
    np.savez(folder / "data.npz", x=rng.standard_normal((300, 16)).astype(np.float32))
    asked = BuildRequest(
        model_name="small", source=SourceRequest(uri=str(folder / "model.onnx")), store_path=str(folder / "store"),
        accuracy=AccuracyRequest(evaluation=DataRequest(uri=str(folder / "data.npz"))),
        engine=EngineRequest(precision="fp32", max_batch_size=4, build_budget_seconds=900))
    (folder / "store").mkdir()
    (folder / "request.json").write_text(dumps(asked))
    return folder / "request.json"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TritonServer]:
    options = (f"--http-restricted-api=model-repository:{HEADER}={KEY}",)
    async with TritonServer(tmp_path_factory.mktemp("models"), options=options) as running:
        yield running


def run(*words: object, log: Path) -> subprocess.CompletedProcess[str]:
    return short_program(*words, environment={"ENGINEWRIGHT_TERMINATION_LOG": str(log)})


@pytest.mark.asyncio(loop_scope="module")
async def test_what_one_builds_another_proves_and_publishes(asked: BuildRequest, request_file: Path,
                                                            server: TritonServer, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    built = run("build", "--request", request_file, "--hand-over", tmp_path / "left", log=tmp_path / "said")
    assert built.returncode == 0, built.stdout
    lines = [json.loads(line) for line in built.stdout.splitlines()]
    assert {line["event"] for line in lines} == {"progress"}  # it has not ended yet
    assert not (tmp_path / "said").exists()
    proof = ["prove", "--hand-over", tmp_path / "left", "--repository", server.repository, "--http",
             server.address.http, "--grpc", server.address.grpc, "--metrics", server.address.metrics, "--key-file",
             tmp_path / "key"]
    proven = run(*proof, log=tmp_path / "said")
    assert proven.returncode == 0, proven.stdout
    *steps, last = proven.stdout.splitlines()
    outcome = Outcome.from_json(last)
    assert Outcome.from_json((tmp_path / "said").read_text()).fingerprint == outcome.fingerprint
    assert list(dict.fromkeys(json.loads(line)["step"] for line in steps)) == [
        "sweep", "appraise", "repository", "verify-load", "publish", "done"]
    folder = Path(asked.store_path)
    assert store.lookup(folder, outcome.fingerprint) is not None
    report = read_report(folder / outcome.fingerprint)
    assert {"ladder", "finalists", "sweep", "verify-load"} <= report.steps.keys()
    assert report.versions["tritonserver"] == server.version
    assert outcome.engine is not None
    assert outcome.engine.load_seconds > 0
    assert list(server.repository.iterdir()) == []
    assert not await server.model_ready("small")

    again = run("build", "--request", request_file, "--hand-over", tmp_path / "again", log=tmp_path / "hit")
    assert again.returncode == 0
    assert Outcome.from_json((tmp_path / "again" / OUTCOME_FILE).read_text()).cache_hit
    found = run(*["prove", "--hand-over", tmp_path / "again", *proof[3:]], log=tmp_path / "hit")
    assert found.returncode == 0
    assert Outcome.from_json(found.stdout.splitlines()[-1]).cache_hit


def tracker() -> Tracker:
    return Tracker(JsonLines(io.StringIO()))


def test_a_server_that_does_not_start_is_named(asked: BuildRequest, tmp_path: Path) -> None:
    request = dataclasses.replace(asked, rebuild="once more")
    assert run_finalists(request, tmp_path, tracker(), tmp_path / "left") is None
    http, grpc, metrics = (f"{HOST}:{port}" for port in free_ports(3))
    servers = GivenServer(repository=tmp_path / "models", ready_seconds=0.3,
                          address=Address(http=http, grpc=grpc, metrics=metrics))
    outcome = run_proof(tmp_path / "left", servers, tracker())
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.family) == ("ServerDidNotStart", "user")
    assert outcome.error.field == "spec.serving.image"
    assert len(outcome.fingerprint) == 64


def test_what_cannot_be_read_is_our_own_fault(tmp_path: Path) -> None:
    servers = GivenServer(repository=tmp_path, address=Address(http="a:1", grpc="a:2", metrics="a:3"))
    outcome = run_proof(tmp_path / "absent", servers, tracker())
    assert outcome.error is not None
    assert outcome.error.family == "bug"

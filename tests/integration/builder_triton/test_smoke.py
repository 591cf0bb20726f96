"""The smoke test against a real tritonserver: what passes, what does not, and that a server that fails it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from enginewright_builder.contract import SMOKE_FILE, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.pod import smoke
from enginewright_builder.triton.prove import Case
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from enginewright_builder.triton.smoke_record import choose, record
from support.apiserver import eventually
from support.own_server import prove

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
WEIGHTS = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)
SAMPLES = {"x": np.random.default_rng(3).standard_normal((16, 5, 8)).astype(np.float32)}

CRASHING = """
import os

class TritonPythonModel:
    def execute(self, requests):
        os._exit(1)
"""
SILENT = """
import time

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(3600)
"""


def multiply(inputs: Any) -> dict[str, Any]:
    return {"y": inputs["x"] @ WEIGHTS}


@pytest.fixture(scope="module")
def recorded(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a build records it: through the server that the engine is proven on."""
    samples = choose(SAMPLES, multiply, 8)
    assert samples is not None
    proof = prove(repository, "multiply", [Case(inputs=SAMPLES | {"x": SAMPLES["x"][:2]},
                                                expected=multiply({"x": SAMPLES["x"][:2]}))],
                  repeated=[samples.request(batch) for batch in samples.batches])
    folder = tmp_path_factory.mktemp("smoke-test")
    (folder / SMOKE_FILE).write_text(record(samples, proof.answers))
    shutil.copyfile(smoke.__file__, folder / "smoke.py")
    return folder


@asynccontextmanager
async def serving(artifact: Artifact, root: Path, *, weights: Any = None,
                  program: str = "") -> AsyncIterator[TritonServer]:
    folder = write_model(root / "repository", "multiply", artifact, ServingChoice(max_batch_size=8), cores=1)
    if weights is not None:
        path = folder / "1" / "model.onnx"
        model = onnx.load(path)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
        path.unlink()  # a link to what other tests serve
        onnx.save(model, path)
    if program:
        (folder / "1" / "model.py").write_text(program)
    async with TritonServer(root / "repository", models=("multiply",)) as server:
        yield server


async def probe(server: TritonServer, recorded: Path, log: Path, seconds: float = 60.0) -> tuple[int, str]:
    """As kubelet runs it, with a termination message of its own."""
    port = server.http_url.rpartition(":")[2]
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(recorded / "smoke.py"), "--model=multiply", f"--port={port}",
        f"--seconds={seconds}", f"--server-pid={server.pid}", stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TERMINATION_LOG": str(log)})
    said, _ = await asyncio.wait_for(child.communicate(), 120)
    return child.returncode or 0, said.decode()


async def ended(server: TritonServer) -> bool:
    child = server._child
    assert child is not None
    await asyncio.wait_for(child.wait(), 60)
    return True


async def test_a_sound_engine_passes(artifact: Artifact, recorded: Path, tmp_path: Path) -> None:
    async with serving(artifact, tmp_path) as server:
        status, said = await probe(server, recorded, tmp_path / "log")
        assert status == 0, said
        assert "output y is off by" in said
        assert not (tmp_path / "log").exists()

        async def counted() -> bool:  # by Triton, once the last answer is sent
            return int((await server.statistics("multiply"))["inference_count"]) == 1 + 8

        await eventually(counted)  # batch 1 and the largest


async def test_an_engine_without_recorded_answers_is_asked_whether_it_is_ready(
    artifact: Artifact, recorded: Path, tmp_path: Path
) -> None:
    (tmp_path / "bare").mkdir()
    shutil.copyfile(recorded / "smoke.py", tmp_path / "bare" / "smoke.py")
    async with serving(artifact, tmp_path) as server:
        assert await probe(server, tmp_path / "bare", tmp_path / "log") == (
            0, "ready; this engine has no recorded answers\n")


@pytest.mark.parametrize(("weights", "says"), [
    (np.random.default_rng(8).standard_normal((8, 4)).astype(np.float32), "is off the source model's by"),
    (WEIGHTS * np.float32(1.05), "is off the source model's by 0.05"),
    (np.full((8, 4), np.nan, np.float32), "has NaN or infinity at batch 1"),
], ids=["other weights", "nearly the same weights", "NaN"])
async def test_a_wrong_engine_fails_and_ends(weights: Any, says: str, artifact: Artifact, recorded: Path,
                                             tmp_path: Path) -> None:
    async with serving(artifact, tmp_path, weights=weights) as server:
        status, said = await probe(server, recorded, tmp_path / "log")
        assert status == 1
        assert says in said
        assert (tmp_path / "log").read_text() == said.strip()
        assert said.startswith(smoke.FAILED)
        assert await ended(server)


@pytest.mark.parametrize(("program", "seconds", "says"), [
    (CRASHING, 60.0, "a batch of 1 got status 5"), (SILENT, 2.0, "no answer to a batch of 1 within 2 s"),
], ids=["crashing", "silent"])
async def test_an_engine_that_does_not_answer_fails(program: str, seconds: float, says: str, artifact: Artifact,
                                                    recorded: Path, tmp_path: Path) -> None:
    async with serving(artifact, tmp_path, program=program) as server:
        status, said = await probe(server, recorded, tmp_path / "log", seconds=seconds)
        assert status == 1
        assert says in said, said
        assert (tmp_path / "log").read_text().startswith(smoke.FAILED)

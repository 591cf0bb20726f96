"""What a real tritonserver takes of memory, as a build measures it: by itself, and as the server's container tells."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, MemoryFigures, ServingChoice, TensorSpec
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.load import Request, encode
from enginewright_builder.triton import process, witness
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.memory import MemoryWatch
from enginewright_builder.triton.repository import write_model
from enginewright_builder.triton.server import TritonServer
from enginewright_builder.triton.witness import ASKED, Witness

pytestmark = [pytest.mark.triton, pytest.mark.asyncio]
# In between, a batch of 4 takes 4 × 64 × 65,536 floats, 64 MiB, where the warm-up of one row takes 256 KiB.
WIDE, ROWS, BATCH = 65_536, 64, 4
MOST_MIB = BATCH * ROWS * WIDE * 4 >> 20
MIB = 1 << 20


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = sum(x · W)``: small inputs, small outputs, and much in between."""
    folder = tmp_path_factory.mktemp("wide")
    weights = np.random.default_rng(3).standard_normal((8, WIDE)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["wide"]),
         helper.make_node("ReduceMax", ["wide"], ["y"], axes=[2], keepdims=1)], "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", 1])],
        [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
              folder / "model.onnx")
    artifact = Artifact(
        rung=Rung(backend="onnxruntime", precision="fp32"), files={"model.onnx": folder / "model.onnx"},
        triton_backend="python", runtime_version="onnxruntime", interface=Interface(
            inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", f"1..{ROWS}", 8)),),
            outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", f"1..{ROWS}", 1)),)))
    root = folder / "repository"
    write_model(root, "wide", artifact, ServingChoice(max_batch_size=BATCH), cores=1,
                warmup={"x": np.ones((1, 1, 8), np.float32)})
    return root


def requests() -> list[Request]:
    whole: dict[str, Any] = {"x": np.ones((BATCH, ROWS, 8), np.float32)}
    return [encode("wide", whole)]


async def measured(server: Server) -> MemoryFigures:
    async with MemoryWatch(server) as watch:
        await server.load("wide")
        await watch.loaded()
        await watch.under_load(requests(), concurrency=2, most_seconds=120)
    assert watch.figures is not None
    return watch.figures


def is_as_the_model_takes_it(found: MemoryFigures) -> None:
    assert 0 < found.empty_bytes < found.loaded_bytes < found.peak_bytes
    # Not the whole of it: what was there for smaller requests is used again.
    assert found.peak_bytes - found.loaded_bytes > 0.7 * MOST_MIB * MIB
    assert 0.7 * MOST_MIB * MIB < found.held_bytes <= found.peak_bytes
    assert found.concurrency == 2
    assert found.cores is not None
    assert found.cores > 0.01
    assert (found.device_peak_bytes, found.pinned_bytes) == (None, None)


async def test_of_a_server_of_its_own(repository: Path) -> None:
    async with TritonServer(repository) as server:
        found = await measured(server)
        assert found.seen == "processes"
        is_as_the_model_takes_it(found)


async def test_as_the_servers_container_tells_it(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                 ) -> None:
    """In the container all processes are the server's; here those of one server are written as its shell does."""
    monkeypatch.setattr(witness, "ANSWER_SECONDS", 120.0)
    async with TritonServer(repository) as server, telling(server.pid, tmp_path, repository / ASKED):
        async with Server(server.address, witness=Witness(tmp_path, repository)) as known:
            found = await measured(known)
        assert found.seen == "container"
        is_as_the_model_takes_it(found)


async def test_a_silent_container_has_no_figures(repository: Path) -> None:
    async with TritonServer(repository) as server, Server(server.address) as known:
        async with MemoryWatch(known) as watch:
            await known.load("wide")
        assert watch.figures is None


@contextlib.asynccontextmanager
async def telling(pid: int, folder: Path, asked: Path) -> AsyncIterator[None]:
    async def tell() -> None:
        while True:
            files = [f"/proc/{one}/{name}" for name in ("smaps_rollup", "status", "stat")
                     for one in process.descendants(pid)]
            shell = (f"(echo asked $(cat {asked}); cat {' '.join(files)}) > {folder}/next 2> /dev/null || :; "
                     f"mv -f {folder}/next {folder}/memory")
            await (await asyncio.create_subprocess_exec("/bin/sh", "-c", shell)).wait()
            await asyncio.sleep(0.05)

    teller = asyncio.create_task(tell())
    try:
        yield
    finally:
        teller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await teller

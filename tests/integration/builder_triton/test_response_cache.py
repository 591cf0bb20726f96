"""A response cache before an engine, on a real tritonserver: what it answers, what no check is answered by it, and what
the operator counts."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import pytest_asyncio
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException

from enginewright.clients.signals import ReplicaMetrics
from enginewright.clients.triton import parse_metrics
from enginewright.observe.arrivals import Arrivals
from enginewright_builder.contract import (
    COMPUTED,
    Interface,
    QueueLevel,
    QueuePolicy,
    QueueRequest,
    ServingChoice,
    TensorSpec,
)
from enginewright_builder.pod import smoke
from enginewright_builder.quality.mirror import Mirror
from enginewright_builder.quality.tap import Tap
from enginewright_builder.quality.trace import Traced
from enginewright_builder.quality.window import Window
from enginewright_builder.queue_policy import CONFIG_FILE, with_queue
from enginewright_builder.response_cache import front
from enginewright_builder.triton import install
from enginewright_builder.triton.model_config import ServedModel, model_config, to_text
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
SECONDS = 60.0
# Answers 2x; once it is broken, -2x, and an error to what begins with 99.
MODEL = """
import os
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x, broken = pb.get_input_tensor_by_name(request, "x").as_numpy(), os.path.exists({broken!r})
            if broken and x.flat[0] == 99:
                answers.append(pb.InferenceResponse([], pb.TritonError("broken")))
            else:
                answers.append(pb.InferenceResponse([pb.Tensor("y", -2 * x if broken else 2 * x)]))
        return answers
"""
TENSOR = TensorSpec(name="x", dtype="float32", shape=("batch", 2))
ENGINE = to_text(model_config(ServedModel(
    name="", triton_backend="python", serving=ServingChoice(max_batch_size=4, max_queue_delay_us=100),
    interface=Interface(inputs=(TENSOR,), outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),)))))
# Of the second level everything is rejected: no request is computed within a microsecond.
QUEUE = QueueRequest(priority_levels=2, default_priority_level=1, levels=(
    QueueLevel(level=2, policy=QueuePolicy(timeout_us=1)),))


def write(root: Path, name: str, config: str, program: str = "") -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / CONFIG_FILE).write_text(config)
    if program:
        (root / name / "1" / "model.py").write_text(program)


class Cached(TritonServer):
    """``m`` is what clients know; ``plain`` is an engine with Triton's cache and nothing before it."""

    @property
    def broken(self) -> Path:
        return self.repository / "broken"

    @property
    def port(self) -> int:
        return int(self.http_url.rpartition(":")[2])

    async def page(self) -> ReplicaMetrics:
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            return parse_metrics((await client.get(f"http://{self.metrics_address}/metrics")).content)

    async def ask(self, value: float, model: str = "m", *, priority: int = 0) -> float:
        async with triton.InferenceServerClient(self.grpc_url) as client:
            tensor = triton.InferInput("x", [1, 2], "FP32")
            tensor.set_data_from_numpy(np.array([[value, 1.0]], np.float32))
            answer = await client.infer(model, [tensor], priority=priority)
        found = answer.as_numpy("y")
        return float("nan") if found is None else float(found.flat[0])


@pytest_asyncio.fixture(loop_scope="session")
async def server(tmp_path: Path) -> AsyncIterator[Cached]:
    root = tmp_path / "models"
    program = MODEL.format(broken=str(root / "broken"))
    write(root, f"m{COMPUTED}", with_queue(ENGINE, QUEUE), program)
    write(root, "m", front(ENGINE, f"m{COMPUTED}"))
    write(root, "plain", f"{ENGINE}response_cache {{ enable: true }}\n", program)
    (tmp_path / "traces").mkdir()
    caches = install.find(tmp_path).binary.parents[1] / "caches"
    options = (f"--cache-config=local,size={1 << 20}", f"--cache-directory={caches}", "--trace-config=mode=triton",
               f"--trace-config=triton,file={tmp_path}/traces/trace.json")
    async with Cached(root, models=("m", f"m{COMPUTED}", "plain"), options=options) as running:
        yield running


async def probe(server: Cached, folder: Path, model: str) -> tuple[int, str]:
    """A replica's smoke test, with the answer to [[1, 1]] recorded; what it ends is not the server."""
    def text(*values: float) -> str:
        return base64.b64encode(np.array(values, np.float32).tobytes()).decode()

    (folder / "smoke.json").write_text(json.dumps({
        "samples": 1, "batches": [1], "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": text(1, 1)}],
        "outputs": [{"name": "y", "datatype": "FP32", "data": text(2, 2), "limit": 0.01, "measured": 0.0}]}))
    sleeps = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", smoke.__file__, f"--model={model}", f"--port={server.port}", "--seconds=60",
            f"--data={folder / 'smoke.json'}", f"--server-pid={sleeps.pid}", stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "TERMINATION_LOG": str(folder / "log")})
        said, _ = await asyncio.wait_for(child.communicate(), 120)
    finally:
        if sleeps.returncode is None:
            sleeps.kill()
        await sleeps.wait()
    return child.returncode or 0, said.decode()


async def test_an_engine_that_breaks_behind_a_warm_cache_is_found_by_its_probe(server: Cached, tmp_path: Path) -> None:
    assert [await server.ask(1.0) for _ in range(3)] == [2.0] * 3
    status, said = await probe(server, tmp_path, f"m{COMPUTED}")
    assert status == 0, said
    server.broken.touch()
    assert await server.ask(1.0) == 2.0, "a client gets what the engine once answered"
    assert (await probe(server, tmp_path, "m"))[0] == 0, "so would a probe that asked by the name of clients"
    status, said = await probe(server, tmp_path, f"m{COMPUTED}")
    assert status == 1
    assert "output y is off the source model's by 2" in said


async def test_errors_are_not_kept_as_triton_keeps_those_of_the_engine_itself(server: Cached) -> None:
    server.broken.touch()
    for model in ("m", "plain"):
        with pytest.raises(InferenceServerException, match="broken"):
            await server.ask(99.0, model)
    server.broken.unlink()
    assert await server.ask(99.0) == 198.0
    # Why no cache is before the engine itself. Once this fails, another Triton does better.
    assert np.isnan(await server.ask(99.0, "plain")), "an answer without outputs"


async def test_hits_are_no_work_to_the_operator(server: Cached) -> None:
    arrivals, before = Arrivals(), await server.page()
    arrivals.update(0.0, {"a": before}, ["a"])
    for value in (5.0, 5.0, 6.0, 5.0, 6.0):
        await server.ask(value)
    await server.ask(5.0, f"m{COMPUTED}")

    async def counted() -> bool:  # by Triton, once an answer is sent
        return (await server.page()).timed - before.timed == 3

    await eventually(counted, SECONDS)
    after = await server.page()
    assert (after.hits - before.hits, after.misses - before.misses, after.inferences - before.inferences) == (3, 2, 3)
    assert set(after.pending) == {f"m{COMPUTED}"}
    found = arrivals.update(1.0, {"a": after}, ["a"])
    assert (found.arrived, found.served, found.hits, found.misses) == (3.0, {"a": 3.0}, 3.0, 2.0)


async def test_a_queue_policy_holds_behind_the_cache(server: Cached) -> None:
    before = await server.page()
    with pytest.raises(InferenceServerException, match="Request timeout expired") as refused:
        await server.ask(7.0, priority=2)
    assert refused.value.status() == "StatusCode.UNAVAILABLE"

    async def counted() -> bool:  # by Triton, which may answer before
        return (await server.page()).rejected - before.rejected == 1.0

    await eventually(counted, SECONDS)
    assert (await server.page()).broken == 0.0, "rejected is no failure"
    assert await server.ask(7.0) == 14.0


async def test_the_monitor_and_the_mirror_look_past_the_cache(server: Cached, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    tap = Tap("m", folder, share=1.0, per_minute=600, port=server.port, computed=f"m{COMPUTED}")
    assert tap.open(5.0) == 50
    for _ in range(4):
        assert await server.ask(8.0) == 16.0

    async def written() -> bool:
        return sum(path.read_bytes().endswith(b"]") for path in folder.iterdir()) >= 4

    await eventually(written, SECONDS)
    [traced] = list(tap.drain())
    assert (traced.inputs["x"].tolist(), traced.outputs["y"].tolist()) == ([[8.0, 1.0]], [[16.0, 2.0]])
    server.broken.touch()
    mirror = Mirror("localhost", "m", Window("cosine", 1), interface=Interface(), port=server.port,
                    own="10.0.0.1", resolve=lambda host, port: frozenset({"127.0.0.1"}))
    mirror.turn()
    await asyncio.to_thread(mirror.send, Traced(inputs=traced.inputs, outputs=traced.outputs))
    assert (mirror.mirrored, mirror.agreed) == (1, 0.0), "the opposite, whatever the cache has"

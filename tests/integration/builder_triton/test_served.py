"""On a real tritonserver."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest, ServingChoice
from enginewright_builder.engines.base import Artifact
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, closed_loop, encode
from enginewright_builder.load.requests import decode
from enginewright_builder.pod import device
from enginewright_builder.sweep import Task
from enginewright_builder.triton import process
from enginewright_builder.triton.client import HungError
from enginewright_builder.triton.model_config import model_config
from enginewright_builder.triton.prove import Case, difference
from enginewright_builder.triton.repository import served_model, write_model
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually
from support.own_server import prove, sweep

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]
RANDOM = np.random.default_rng(1)


def rows(batch: int, count: int) -> NDArray[Any]:
    return RANDOM.standard_normal((batch, count, 8)).astype(np.float32)


def multiply(x: NDArray[Any]) -> NDArray[Any]:
    weights = np.random.default_rng(7).standard_normal((8, 4)).astype(np.float32)
    return np.asarray(x @ weights, np.float32)


def alive(pid: int) -> bool:
    """False for a zombie too: an orphan is reaped whenever its new parent gets to it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def ask(channels: Channels, x: NDArray[Any]) -> NDArray[Any]:
    return decode(await channels.call(encode("multiply", {"x": x}).payload, 30.0))["y"]


async def test_answers_of_one_request(server: TritonServer) -> None:
    x = rows(3, 5)
    async with triton.InferenceServerClient(server.grpc_url) as client:
        tensor = triton.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        answer = await client.infer("multiply", [tensor])
    np.testing.assert_allclose(answer.as_numpy("y"), multiply(x), rtol=1e-5)


async def test_an_engine_is_served_under_whatever_name_its_folder_has(artifact: Artifact, tmp_path: Path) -> None:
    """As in a pod, where it is mounted under the OptimisedModel's name: with warm-up data and a Python backend."""
    engine = write_model(tmp_path / "store", "model", artifact, ServingChoice(max_batch_size=8), cores=1,
                         warmup={"x": np.ones((2, 3, 8), np.float32)})
    assert "name: \"model\"" not in (engine / "config.pbtxt").read_text()
    (tmp_path / "models").mkdir()
    for name in ("first", "multiply"):
        (tmp_path / "models" / name).symlink_to(engine)
    async with (
        TritonServer(tmp_path / "models", models=("first", "multiply")) as server,
        Channels(server.grpc_url) as channels,
    ):
        x = rows(3, 5)
        np.testing.assert_allclose(await ask(channels, x), multiply(x), rtol=1e-5)
        answer = decode(await channels.call(encode("first", {"x": x}).payload, 30.0))
        np.testing.assert_allclose(answer["y"], multiply(x), rtol=1e-5)


async def test_requests_of_many_shapes_at_once_get_each_their_own_answer(server: TritonServer) -> None:
    """The batcher joins what fits and the model splits it again: nothing is padded, nobody gets another's rows."""
    questions = [rows(1 + number % 3, 1 + number % 4) for number in range(64)]
    executions, rounds = len(questions), 0
    async with Channels(server.grpc_url) as channels:
        # A client short of processor time sends one after another, which the server has answered before the next.
        while executions == len(questions) and rounds < 50:
            before = await server.statistics("multiply")
            answers = await asyncio.gather(*(ask(channels, x) for x in questions))
            after = await server.statistics("multiply")
            for x, y in zip(questions, answers, strict=True):
                np.testing.assert_allclose(y, multiply(x), rtol=1e-4, atol=1e-6)
            executions, rounds = after["execution_count"] - before["execution_count"], rounds + 1
    assert executions < len(questions), f"no two requests shared an execution in {rounds} rounds"


async def test_a_bad_request_gets_an_error_and_the_others_their_answers(server: TritonServer) -> None:
    good, bad = rows(1, 2), RANDOM.standard_normal((1, 2, 7)).astype(np.float32)
    async with Channels(server.grpc_url) as channels:
        answers = await asyncio.gather(
            ask(channels, good), ask(channels, bad), ask(channels, good), return_exceptions=True
        )
    assert isinstance(answers[1], grpc.aio.AioRpcError)
    for answer in (answers[0], answers[2]):
        assert isinstance(answer, np.ndarray)
        np.testing.assert_allclose(answer, multiply(good), rtol=1e-5)


async def test_only_the_outputs_asked_for_come_back(server: TritonServer) -> None:
    x = rows(1, 1)
    async with triton.InferenceServerClient(server.grpc_url) as client:
        tensor = triton.InferInput("x", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        with pytest.raises(InferenceServerException):
            await client.infer("multiply", [tensor], outputs=[triton.InferRequestedOutput("z")])
        answer = await client.infer("multiply", [tensor], outputs=[triton.InferRequestedOutput("y")])
    assert answer.as_numpy("y").shape == (1, 1, 4)


async def test_warmed_before_ready(server: TritonServer, repository: Path, artifact: Artifact) -> None:
    assert (repository / "multiply/warmup/sample-0").stat().st_size == 3 * 8 * 4
    assert await server.model_ready("multiply")


async def test_figures_of_the_server(server: TritonServer) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", server.version)
    assert server.start_seconds > 0
    assert await server.memory_bytes() > 30 << 20
    assert 'nv_inference_pending_request_count{model="multiply"' in await server.metrics()


async def test_reload_with_another_configuration(server: TritonServer, artifact: Artifact) -> None:
    """What a sweep does: the file stays, the configuration changes."""
    serving = ServingChoice(max_batch_size=4, instance_count=2)
    config = model_config(served_model("multiply", artifact, serving, cores=2))
    file_config = ServingChoice(max_batch_size=8, max_queue_delay_us=2000)
    try:
        assert await server.load("multiply", config) > 0
        async with triton.InferenceServerClient(server.grpc_url) as client:
            loaded = await client.get_model_config("multiply")
        assert (loaded.config.max_batch_size, loaded.config.instance_group[0].count) == (4, 2)
        assert loaded.config.parameters["threads"].string_value == "1"
    finally:
        await server.load("multiply", model_config(served_model("multiply", artifact, file_config, cores=1)))


async def test_load_generator_on_the_real_server(server: TritonServer) -> None:
    async with Channels(server.grpc_url) as channels:
        result = await closed_loop(
            channels, [encode("multiply", {"x": rows(2, 2)})], concurrency=4, seconds=30, max_requests=200
        )
    assert (result.requests, result.failed, result.measured) == (200, 0, 200)
    assert 0 < result.p50_ms <= result.p99_ms <= result.max_ms


async def test_nothing_is_left_behind(repository: Path) -> None:
    async with TritonServer(repository, models=("multiply",)) as running:
        children = process.descendants(running.pid)
        scratch = running.log_file.parent
        prefix = running._prefix
        assert len(children) > 1  # the stub
        assert list(process.SHARED_MEMORY.glob(f"{prefix}*"))
    assert not [pid for pid in children if alive(pid)]
    assert not list(process.SHARED_MEMORY.glob(f"{prefix}*"))
    assert not scratch.exists()


async def test_of_gpus_what_the_server_took_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else is on the device: the builder, or other slices."""
    free = [60 << 30]
    monkeypatch.setattr(device, "free_bytes", lambda gpus: free[0])
    async with TritonServer(repository, models=("multiply",), gpus=(0,)) as running:
        free[0] = 57 << 30
        assert await running.memory_bytes() == 3 << 30
        free[0] = 61 << 30
        assert await running.memory_bytes() == 0


async def test_killed_server_leaves_nothing_either(repository: Path) -> None:
    async with TritonServer(repository, models=("multiply",)) as running:
        family = process.descendants(running.pid)
        os.kill(running.pid, 9)
        prefix = running._prefix
    assert not list(process.SHARED_MEMORY.glob(f"{prefix}*"))
    assert not [pid for pid in family if alive(pid)]


Sabotage = Callable[[Path], None]


def _missing_import(model: Path) -> None:
    (model / "1/model.py").write_text("import library_that_is_not_there\n")


def _corrupt_model(model: Path) -> None:
    target = model / "1/model.onnx"
    target.unlink()  # it may be a hard link
    target.write_bytes(b"\x08\x07 this is no onnx")


def _dying_stub(model: Path) -> None:
    (model / "1/model.py").write_text("import os\nos._exit(1)\n")


@pytest.mark.parametrize(
    ("sabotage", "words"),
    [(_missing_import, "library_that_is_not_there"), (_corrupt_model, "model.onnx"), (_dying_stub, "Stub|stub")],
)
async def test_a_repository_that_does_not_load_says_why(
    sabotage: Sabotage, words: str, artifact: Artifact, tmp_path: Path
) -> None:
    sabotage(write_model(tmp_path, "multiply", artifact, ServingChoice(max_batch_size=8)))
    with pytest.raises(UserError, match=words) as caught:
        async with TritonServer(tmp_path, models=("multiply",)):
            pass
    assert caught.value.reason == "ServerLoadFailed"


class Begun(TritonServer):
    """Looks whether its time is over once it loads a model, which a busy machine may come to long after that."""

    async def _connect(self, deadline: float) -> None:
        async def it_loads() -> bool:
            return "loading: multiply" in self.log_tail()

        await eventually(it_loads)
        await super()._connect(deadline)


async def test_a_server_that_hangs_ends_at_the_deadline_with_its_log(artifact: Artifact, tmp_path: Path) -> None:
    model = write_model(tmp_path, "multiply", artifact, ServingChoice(max_batch_size=8))
    (model / "1/model.py").write_text("import threading\nthreading.Event().wait()\n")
    with pytest.raises(UserError, match="not ready within 3 s") as caught:
        async with Begun(tmp_path, models=("multiply",), ready_seconds=3):
            pass
    assert "loading: multiply" in caught.value.message


class Patient(TritonServer):
    """Asks where its processes hang once they do, and waits for what they say."""

    async def _ask_where(self) -> None:
        async def log_has(words: str) -> bool:
            return words in self.log_tail()

        await eventually(lambda: log_has("it hangs now"))
        await super()._ask_where()
        await eventually(lambda: log_has("in comes_to_no_end"))


async def test_a_load_that_hangs_is_told_apart_and_says_where(artifact: Artifact, tmp_path: Path) -> None:
    program = write_model(tmp_path, "multiply", artifact, ServingChoice(max_batch_size=8)) / "1/model.py"
    whole = program.read_text()
    program.unlink()  # it may be a hard link
    program.write_text(whole + "\n\ndef comes_to_no_end():\n    import threading\n"
                               "    print('it hangs now', file=sys.stderr, flush=True)\n"
                               "    threading.Event().wait()\n\n\ncomes_to_no_end()\n")
    async with Patient(tmp_path) as server:
        server.ready_seconds = 0.5
        with pytest.raises(HungError, match="'multiply' was not loaded within 0 s") as caught:
            await server.load("multiply")
    assert caught.value.reason == "ServerLoadFailed"
    assert "in comes_to_no_end" in caught.value.message


async def test_proof_holds_for_right_answers_and_fails_for_wrong_ones(repository: Path) -> None:
    x = rows(2, 3)
    right = Case(inputs={"x": x}, expected={"y": multiply(x)})
    wrong = dataclasses.replace(right, expected={"y": multiply(x) * 1.5})

    proof = await asyncio.to_thread(prove, repository, "multiply", [right])
    assert proof.worst_difference < 1e-5
    assert proof.memory_bytes > 30 << 20
    assert proof.load_seconds > 0
    with pytest.raises(UserError, match="'y'") as caught:
        await asyncio.to_thread(prove, repository, "multiply", [right, wrong])
    assert caught.value.reason == "ServedAnswersDiffer"


@pytest.mark.parametrize(
    ("served", "expected", "off"),
    [
        (np.array([1.0, 2.0]), np.array([1.0, 2.0]), 0.0),
        (np.array([1.0, 2.2]), np.array([1.0, 2.0]), 0.1),
        (None, np.array([1.0]), np.inf),
        (np.array([1.0]), np.array([1.0, 2.0]), np.inf),
        (np.array([np.nan]), np.array([1.0]), np.inf),
        (np.array([np.nan]), np.array([np.nan]), 0.0),
        (np.array([0.5]), np.array([0.0]), 0.5),
        (np.zeros((2, 0)), np.zeros((2, 0)), 0.0),
        (np.array([[1.0], [2.0]]), np.array([1.0, 2.0]), 0.0),
    ],
)
async def test_difference(served: NDArray[Any] | None, expected: NDArray[Any], off: float) -> None:
    assert difference(served, expected) == pytest.approx(off)


async def test_sweep_measures_chooses_and_leaves_nothing(artifact: Artifact, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginewright_builder.sweep.MOST_POINT_SECONDS", 1.0)
    # More time than a busy machine takes, for the batches of the curve and until Triton has counted them.
    monkeypatch.setattr("enginewright_builder.sweep.curve.COUNT_SECONDS", 60.0)
    steps: list[float] = []
    result = await asyncio.to_thread(
        sweep,
        Task(artifact=artifact, model_name="multiply", inputs=[{"x": rows(1, 4)}, {"x": rows(2, 4)}],
             max_batch_size=4, cores=2, objective=ObjectiveRequest(latency_ms=60_000),
             batching=BatchingRequest(max_queue_delay_us=0), instances=InstancesRequest(), budget_seconds=600,
             max_measurements=4, progress=lambda fraction, detail: steps.append(fraction)),
        tmp_path,
    )
    assert result.best in result.points
    assert 1 <= len(result.points) <= 4
    assert result.serving == result.best.serving
    assert result.serving.max_queue_delay_us == 0
    assert result.objective_met
    assert all(point.errors == 0 and point.throughput > 0 for point in result.points)
    assert [point.batch for point in result.service_curve] == [1, 2, 4]
    assert result.alone is not None
    beside = [result.serving.instance_count] * 3
    for point, instances in zip([*result.service_curve, result.alone], [*beside, 1], strict=True):
        assert point.compute_ms > 0
        mean_ms = 1e3 * point.batch * instances / point.throughput
        assert point.compute_ms + point.transport_ms == pytest.approx(mean_ms)
    assert result.cold_start_seconds > 0
    assert steps == sorted(steps)
    assert steps[-1] == 1.0
    assert os.listdir(tmp_path) == []

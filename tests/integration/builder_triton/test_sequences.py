"""Sequences of requests whose state the server keeps, from the source to the answers of a real tritonserver."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import itertools
import json
import re
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import onnx
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2

from enginewright.clients.probe import ProbeClient
from enginewright.core.probe import make_request
from enginewright_builder.building import build
from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Interface,
    Outcome,
    SequenceBatching,
    SourceRequest,
    StateTensor,
)
from enginewright_builder.engines.base import Artifact, BuildContext, ExportedModel, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.errors import UserError
from enginewright_builder.load import Channels, closed_loop, encode
from enginewright_builder.load.requests import decode, in_sequence
from enginewright_builder.pipeline import run_build
from enginewright_builder.pod import smoke
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.resolve import resolve
from enginewright_builder.steps import Budget, Steps
from enginewright_builder.tensors import Steps as Sequence
from enginewright_builder.triton.model_config import parse_text, to_text
from enginewright_builder.triton.server import TritonServer
from support.inputs import graphs, stateful

pytestmark = [pytest.mark.triton]
on_the_loop = pytest.mark.asyncio(loop_scope="session")
MODEL, STEPS, SECONDS = "model", 20, 30.0
# On a machine that is busy a client may pause for seconds, and Triton would forget what it sent.
IDLE_US = 60_000_000
# How far an answer may be off beside other sequences: an engine in 8 bits scales by all that it runs together, or cuts
# off what calibration did not see. Which engine ships depends on the machine. With the state of another sequence an
# answer is another one.
BESIDE = 0.25
STATE = tuple(StateTensor(input_name=name, output_name=output) for name, output in stateful.STATE)
NO_START = "must specify the START flag on the first request of the sequence"


@dataclasses.dataclass(frozen=True)
class Built:
    folder: Path
    source: Path
    outcome: Outcome

    @property
    def repository(self) -> Path:
        return self.folder / "model_repository"

    @property
    def recorded(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / "smoke.json").read_text())
        return found


@on_the_loop
async def test_a_sequence_begins_with_what_a_file_of_the_source_says(tmp_path: Path) -> None:
    """Each time, of each sequence, and in steps that run together."""
    folder = tmp_path / "source"
    folder.mkdir()
    np.save(folder / "h.npy", stateful.first_state())
    plain = _request(tmp_path, precision="fp32")
    shutil.move(tmp_path / "model.onnx", folder)
    kept = SequenceBatching(state=(StateTensor(input_name="h", output_name="hn", data_file="h.npy"), STATE[1]),
                            max_sequence_idle_us=IDLE_US)
    request = dataclasses.replace(plain, source=SourceRequest(uri=str(folder)),
                                  interface=Interface(sequence_batching=kept))
    outcome = await asyncio.to_thread(run_build, request, tmp_path / "scratch", _tracker())
    assert outcome.error is None
    client = stateful.lstm_source(folder / "model.onnx", {"h": stateful.first_state()})
    sent = stateful.sequences(4, 5, seed=9)
    expected = [[one["y"] for one in client.answers([{"x": x[None]} for x in steps])] for steps in sent]
    repository = tmp_path / "store" / outcome.fingerprint / "model_repository"
    async with TritonServer(repository, models=(MODEL,)) as server, Channels(
            server.grpc_url) as channels:
        for _ in range(2):
            served = await asyncio.gather(*(_sequence(channels, steps, 1 + place) for place, steps in enumerate(sent)))
            np.testing.assert_allclose(served, expected, atol=1e-4)


def _tracker() -> Tracker:
    return Tracker(JsonLines(io.StringIO()))


def _request(folder: Path, **how: Any) -> BuildRequest:
    """Of a streaming LSTM and 200 sequences of 20 steps."""
    onnx.save(stateful.lstm(), folder / "model.onnx")
    for seed, (name, count) in enumerate((("evaluation", 200), ("calibration", 40))):
        np.savez(folder / name, x=stateful.sequences(count, STEPS, seed))
    kept = SequenceBatching(state=STATE, max_sequence_idle_us=IDLE_US)
    engine = EngineRequest(build_budget_seconds=900, fallback="source", precision=how.get("precision", "auto"),
                           calibration=DataRequest(uri=str(folder / "calibration.npz")))
    return BuildRequest(
        model_name=MODEL, source=SourceRequest(uri=str(folder / "model.onnx")), store_path=str(folder / "store"),
        engine=engine, interface=Interface(sequence_batching=kept),
        accuracy=AccuracyRequest(tolerance=0.05, evaluation=DataRequest(uri=str(folder / "evaluation.npz"))))


def _built(request: BuildRequest, folder: Path) -> Built:
    outcome = run_build(request, folder / "scratch", _tracker())
    assert outcome.error is None, outcome.error
    return Built(folder / "store" / outcome.fingerprint, Path(request.source.uri), outcome)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("lstm")
    return _built(_request(folder), folder)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(built: Built) -> AsyncIterator[TritonServer]:
    async with TritonServer(built.repository, models=(MODEL,)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def channels(server: TritonServer) -> AsyncIterator[Channels]:
    async with Channels(server.grpc_url) as open_ones:
        yield open_ones


async def _step(channels: Channels, x: Any, sequence: int, *, first: bool = False, last: bool = False) -> Any:
    payload = encode(MODEL, {"x": x[None]}).payload
    return decode(await channels.call(in_sequence(payload, sequence, first=first, last=last), SECONDS))["y"]


async def _sequence(channels: Channels, steps: Any, sequence: int) -> list[Any]:
    return [await _step(channels, x, sequence, first=not number, last=number == len(steps) - 1)
            for number, x in enumerate(steps)]


def _with_config(built: Built, folder: Path, field: str, value: int) -> Path:
    """A copy of the repository, where ``config.pbtxt`` has another number for ``field``."""
    shutil.copytree(built.repository, folder / "repository")
    config = folder / "repository" / MODEL / "config.pbtxt"
    text, times = re.subn(rf"\b{field}: \d+", f"{field}: {value}", config.read_text())
    assert times == 1
    config.write_text(text)
    return folder / "repository"


def _expected(built: Built, steps: Any) -> list[Any]:
    return [one["y"] for one in stateful.lstm_source(built.source).answers([{"x": x[None]} for x in steps])]


@on_the_loop
async def test_steps_are_answered_as_by_the_source_with_its_state(built: Built, channels: Channels) -> None:
    steps = stateful.sequences(1, STEPS, seed=9)[0]
    served = await _sequence(channels, steps, 1)
    np.testing.assert_allclose(served, _expected(built, steps), atol=0.02)
    # A sequence of the same id begins with zeros again.
    np.testing.assert_array_equal(await _sequence(channels, steps, 1), served)


@on_the_loop
async def test_sixteen_interleaved_sequences_keep_to_themselves(built: Built, server: TritonServer) -> None:
    many = stateful.sequences(16, STEPS, seed=11)
    async with Channels(server.grpc_url, count=5) as channels:
        served = await asyncio.gather(*(_sequence(channels, steps, 100 + number) for number, steps in enumerate(many)))
    for steps, answers in zip(many, served, strict=True):
        np.testing.assert_allclose(answers, _expected(built, steps), atol=BESIDE)


@on_the_loop
@pytest.mark.parametrize(("most", "runs"), [(4, STEPS), (1, 4 * STEPS)])
async def test_steps_that_wait_at_once_run_together(built: Built, tmp_path: Path, most: int, runs: int) -> None:
    """Each run waits for a minute or until it has a step of all four, so that the number of runs is known."""
    repository, many = _joining(built, tmp_path, most), stateful.sequences(4, STEPS, seed=14)
    async with TritonServer(repository, models=(MODEL,)) as server, \
            Channels(server.grpc_url) as channels:
        served = await asyncio.gather(*(_sequence(channels, steps, 1 + number) for number, steps in enumerate(many)))
        while (counted := await server.statistics(MODEL))["inference_count"] < 4 * STEPS:
            pass  # Triton counts a request after it has answered
    assert (counted["inference_count"], counted["execution_count"]) == (4 * STEPS, runs)
    for steps, answers in zip(many, served, strict=True):
        np.testing.assert_allclose(answers, _expected(built, steps), atol=BESIDE)


@on_the_loop
async def test_a_step_that_fails_fails_alone(built: Built, tmp_path: Path) -> None:
    """In one run with a sequence that this replica has no state of."""
    repository = _joining(built, tmp_path, 2)
    program = repository / MODEL / "1" / "sequences.py"
    program.write_text(program.read_text().replace("        self._drop()\n", "        self._kept.pop(66, None)\n", 1))
    steps = stateful.sequences(1, 2, seed=15)[0]
    async with TritonServer(repository, models=(MODEL,)) as server, \
            Channels(server.grpc_url) as channels:
        await asyncio.gather(*(_step(channels, steps[0], one, first=True) for one in (65, 66)))
        answer, failed = await asyncio.gather(*(_step(channels, steps[1], one, last=True) for one in (65, 66)),
                                              return_exceptions=True)
    assert not isinstance(answer, BaseException)
    np.testing.assert_allclose(answer, _expected(built, steps)[1], atol=BESIDE)
    assert "sequence 66 has no state in this replica" in str(failed)


def _joining(built: Built, folder: Path, most: int) -> Path:
    """A copy of the repository whose one instance computes up to ``most`` steps in one run, which waits to be full."""
    shutil.copytree(built.repository, folder / "repository")
    path = folder / "repository" / MODEL / "config.pbtxt"
    config = parse_text(path.read_text())
    config.max_batch_size, config.instance_group[0].count = most, 1
    oldest = config.sequence_batching.oldest
    oldest.ClearField("preferred_batch_size")
    oldest.max_queue_delay_microseconds = 60_000_000 if most > 1 else 0
    path.write_text(to_text(config))
    return folder / "repository"


@on_the_loop
async def test_several_instances_have_each_sequence_in_one(built: Built, tmp_path: Path) -> None:
    repository = _with_config(built, tmp_path, "count", 3)
    many = stateful.sequences(12, STEPS, seed=12)
    async with TritonServer(repository, models=(MODEL,)) as server, \
            Channels(server.grpc_url) as channels:
        served = await asyncio.gather(*(_sequence(channels, steps, 1 + number) for number, steps in enumerate(many)))
    for steps, answers in zip(many, served, strict=True):
        np.testing.assert_allclose(answers, _expected(built, steps), atol=BESIDE)


@on_the_loop
async def test_a_word_may_name_a_sequence(built: Built, channels: Channels) -> None:
    steps, served = stateful.sequences(1, 3, seed=13)[0], []
    for number, x in enumerate(steps):
        message = service_pb2.ModelInferRequest.FromString(encode(MODEL, {"x": x[None]}).payload)
        message.parameters["sequence_id"].string_param = "call-7"
        message.parameters["sequence_start"].bool_param = number == 0
        message.parameters["sequence_end"].bool_param = number == len(steps) - 1
        served.append(decode(await channels.call(message.SerializeToString(), SECONDS))["y"])
    np.testing.assert_allclose(served, _expected(built, steps), atol=0.02)


@on_the_loop
@pytest.mark.parametrize(("change", "says"), [
    (lambda payload: payload, "must specify a non-zero or non-empty correlation ID"),
    (lambda payload: in_sequence(payload, 4711, first=False, last=False), NO_START),
])
async def test_what_triton_says_to_requests_of_no_sequence(channels: Channels, change: Callable[[bytes], bytes],
                                                           says: str) -> None:
    payload = encode(MODEL, {"x": stateful.sequences(1, 1)[0]}).payload
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await channels.call(change(payload), SECONDS)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert says in str(refused.value.details())


@on_the_loop
async def test_the_load_generator_sends_whole_sequences(channels: Channels) -> None:
    request = encode(MODEL, Sequence(x=stateful.sequences(1, 7)[0][:, None]))
    seen = await closed_loop(channels, [request], concurrency=1, seconds=60.0, max_requests=8)
    assert (seen.requests, seen.failed) == (8 * 7, 0)
    seen = await closed_loop(channels, [request], concurrency=4, seconds=60.0, max_requests=8)
    assert (8 <= seen.requests <= 8 * 7, seen.failed) == (True, 0)


@on_the_loop
async def test_a_load_that_ends_early_leaves_no_sequence_open(channels: Channels) -> None:
    """Each step after the stop would be refused, were a sequence left open and its id known."""
    stop = asyncio.Event()
    request = encode(MODEL, Sequence(x=stateful.sequences(1, 10_000)[0][:, None]))
    load = asyncio.create_task(closed_loop(channels, [request], concurrency=2, seconds=60.0, stop=stop))
    await _sequence(channels, stateful.sequences(1, STEPS)[0], 1)
    stop.set()
    seen = await load
    assert 0 < seen.requests < 2 * 10_000
    assert not seen.failed


@on_the_loop
async def test_the_smoke_test_of_a_replica_is_a_sequence(built: Built, server: TritonServer) -> None:
    recorded, port = built.recorded, int(server.address.http.rpartition(":")[2])
    assert recorded["steps"] == 8
    for _ in range(2):  # kubelet may ask again
        lines = await asyncio.to_thread(smoke.check, recorded, MODEL, port, SECONDS)
        assert [line.split()[1] for line in lines] == ["y"]


@on_the_loop
async def test_a_probe_of_an_analysis_is_a_sequence_of_one_step(built: Built, server: TritonServer,
                                                               channels: Channels) -> None:
    port = int(server.address.http.rpartition(":")[2])
    async with ProbeClient(deadline=60) as client:
        request = make_request(await client.metadata("127.0.0.1", MODEL, port), 1)
        answers = [await client.infer("127.0.0.1", MODEL, request, port) for _ in range(3)]
    assert answers[0] is not None
    assert set(answers[0]) == {"y"}
    assert answers[1:] == answers[:1] * 2, "none goes on with another's state"


@on_the_loop
async def test_a_replica_that_forgets_fails_its_smoke_test(built: Built, tmp_path: Path) -> None:
    shutil.copytree(built.repository, tmp_path / "repository")
    program = tmp_path / "repository" / MODEL / "1" / "sequences.py"
    program.write_text(program.read_text().replace("return dict(kept[1])", "return dict(self._begin)"))
    async with TritonServer(tmp_path / "repository", models=(MODEL,)) as server:
        port = int(server.address.http.rpartition(":")[2])
        with pytest.raises(smoke.SmokeTestError, match="output y is off the source model's"):
            await asyncio.to_thread(smoke.check, built.recorded, MODEL, port, SECONDS)


@on_the_loop
async def test_an_idle_sequence_is_forgotten(built: Built, tmp_path: Path) -> None:
    repository = _with_config(built, tmp_path, "max_sequence_idle_microseconds", 50_000)
    x = stateful.sequences(1, 1)[0][0]
    async with TritonServer(repository, models=(MODEL,)) as server, \
            Channels(server.grpc_url) as channels:
        await _step(channels, x, 5, first=True)
        for pause in (0.1 * 2 ** number for number in range(8)):  # a request wakes it up: each waits for longer
            await asyncio.sleep(pause)
            if (refused := await _refused(channels, x, 5, first=False)) is not None:
                break
        assert refused is not None
        assert NO_START in str(refused.details())


@on_the_loop
async def test_a_server_that_is_asked_to_end_lets_open_sequences_end(built: Built) -> None:
    """As a replica is on its way out: those that run go on to their end, others are told that it stops."""
    steps = stateful.sequences(1, STEPS, seed=21)[0]
    async with TritonServer(built.repository, models=(MODEL,), options=("--exit-timeout-secs=60",)
                            ) as server, Channels(server.grpc_url, count=1) as channels:
        served = [await _step(channels, steps[0], 1, first=True)]
        assert server._client is not None
        assert server._child is not None
        await server._client.aclose()  # Triton waits for connections of HTTP that are kept open
        server._child.send_signal(signal.SIGTERM)
        others = itertools.count(100)
        while (refused := await _refused(channels, steps[0], next(others))) is None:
            pass  # the signal is on its way
        assert (refused.code(), str(refused.details())[:18]) == (grpc.StatusCode.UNAVAILABLE, "Server is stopping")
        served += [await _step(channels, x, 1, last=number == STEPS - 1) for number, x in enumerate(steps) if number]
        np.testing.assert_allclose(served, _expected(built, steps), atol=0.02)
        assert await server._child.wait() == 0


async def _refused(channels: Channels, x: Any, sequence: int, *, first: bool = True) -> grpc.aio.AioRpcError | None:
    """How a sequence of one step, or a further step of one, is turned away; None where it is answered."""
    try:
        await _step(channels, x, sequence, first=first, last=first)
    except grpc.aio.AioRpcError as error:
        return error
    return None


def test_the_report_and_the_configuration_say_that_there_is_state(built: Built) -> None:
    config = (built.repository / MODEL / "config.pbtxt").read_text()
    assert f"max_sequence_idle_microseconds: {IDLE_US}\n" in config
    assert "max_candidate_sequences: 128" in config
    assert built.outcome.serving is not None
    assert f"max_batch_size: {built.outcome.serving.max_batch_size}\n" in config
    assert not {'name: "h"', 'name: "hn"', "model_warmup"} & set(config.replace("{", "\n").split("\n"))
    report = json.loads((built.folder / "build-report.json").read_text())
    assert any(note.startswith("The server keeps the state (h, c) of each sequence") and "together" in note
               for note in report["notes"])
    assert {32} <= {point["serving"]["max_batch_size"] for point in report["sweep"]["points"]} <= {1, 32}
    tried = {one.precision for one in built.outcome.candidates if one.accuracy}
    assert {"fp32", "int8-dynamic"} <= tried


def test_an_engine_that_forgets_its_state_is_refused(tmp_path: Path) -> None:
    resolved = resolve(_request(tmp_path), tmp_path / "scratch")
    with pytest.raises(UserError) as refused:
        build(resolved, tmp_path / "scratch", Steps(_tracker()), Budget(900), engines=[_Forgetful()])
    assert refused.value.reason == "AccuracyNotReached"


class _Forgetful(OnnxRuntimeEngine):
    """Its first step is the source's own."""

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact:
        made = super().build(rung, model, context)
        path = made.files["model.onnx"]
        onnx.save(stateful.forgetful(path), path)
        return made


def test_the_shapes_of_silero(tmp_path: Path) -> None:
    """A state with the batch in its middle, and the rate as a scalar, which comes with each step."""
    sound = np.random.default_rng(1).normal(size=(200, 12, 32)).astype(np.float32)
    request = _request(tmp_path)
    onnx.save(graphs.voice(), tmp_path / "model.onnx")
    np.savez(tmp_path / "evaluation", sound=sound, sr=np.full((200, 12), 16000))
    np.savez(tmp_path / "calibration", sound=sound[:50] * 0.9, sr=np.full((50, 12), 16000))
    kept = SequenceBatching(state=(StateTensor(input_name="state", output_name="stateN"),),
                            max_sequence_idle_us=IDLE_US)
    made = _built(dataclasses.replace(request, interface=Interface(sequence_batching=kept)), tmp_path)
    source = stateful.Source(tmp_path / "model.onnx", {"state": ("stateN", (2, 1, 8))})
    expected = source.answers([{"sound": one[None], "sr": np.array(16000)} for one in sound[0]])

    async def served() -> list[Any]:
        async with TritonServer(made.repository, models=(MODEL,)) as server, \
                Channels(server.grpc_url) as channels:
            calls = Sequence(sound=sound[0][:, None], sr=np.full((12, 1), 16000)).calls
            return [decode(await channels.call(in_sequence(encode(MODEL, call, batch=1).payload, 1, first=not number,
                                                           last=number == 11), SECONDS))["output"]
                    for number, call in enumerate(calls)]

    np.testing.assert_allclose(asyncio.run(served()), [one["output"] for one in expected], atol=0.02)

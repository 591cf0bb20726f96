from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2

import enginewright_builder
from enginewright_builder.contract import requests_needed
from enginewright_builder.load import (
    Call,
    Channels,
    LoadResult,
    Progress,
    Recorder,
    Request,
    closed_loop,
    constant_arrivals,
    encode,
    open_loop,
    poisson_arrivals,
)
from enginewright_builder.load.__main__ import _made_up, from_json, main
from enginewright_builder.load.loops import pause
from enginewright_builder.load.requests import TruncatedAnswerError, decode, split, unpadded
from enginewright_builder.load.result import nearest_rank, throughput_interval
from enginewright_builder.load.stopping import Stop
from enginewright_builder.sweep.bench import window
from enginewright_builder.tensors import Steps
from enginewright_builder.triton.client import Server


@dataclass
class Backend:
    """A gRPC server with a delay and errors of the test's choosing. ``held`` is what each request waits for first."""

    url: str = ""
    delay: float = 0.0
    held: Callable[[], Awaitable[object]] | None = None
    errors: list[grpc.StatusCode] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)
    served: int = 0
    active: int = 0
    most_active: int = 0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    seen: Callable[[str, bytes], None] = lambda peer, payload: None

    async def infer(self, payload: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.peers.add(context.peer())
        self.seen(context.peer(), payload)
        self.began.set()
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if self.held:
                await self.held()
            await asyncio.sleep(self.delay)
            if self.errors:
                await context.abort(self.errors.pop(), "asked for")
            self.served += 1
            return payload
        finally:
            self.active -= 1


@pytest_asyncio.fixture
async def backend() -> AsyncIterator[Backend]:
    state = Backend()
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(state.infer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler}),)
    )
    state.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield state
    await server.stop(None)


ONE = [Request(b"payload", 2)]


async def test_closed_loop_keeps_exactly_n_in_flight(backend: Backend) -> None:
    backend.delay, backend.held = 0.01, asyncio.Barrier(7).wait
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=7, seconds=600, max_requests=70)
    assert backend.most_active == 7
    assert (result.requests, result.failed, backend.served) == (70, 0, 70)
    assert result.p50_ms >= 10


async def test_errors_are_counted_by_kind_and_kept_out_of_latency(backend: Backend) -> None:
    backend.errors = [grpc.StatusCode.INVALID_ARGUMENT] * 2 + [grpc.StatusCode.UNAVAILABLE] * 3
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=2, seconds=30, max_requests=20)
    assert result.errors == {"INVALID_ARGUMENT": 2, "UNAVAILABLE": 3}
    assert result.messages == {"INVALID_ARGUMENT": "asked for", "UNAVAILABLE": "asked for"}
    assert (result.requests, result.failed, result.measured) == (20, 5, 15)


async def test_failure_during_warmup_is_still_counted(backend: Backend) -> None:
    backend.errors = [grpc.StatusCode.INTERNAL]
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=1, seconds=0.01, warmup_seconds=0.2)
    assert result.errors == {"INTERNAL": 1}


async def test_requests_that_outlast_the_window_are_followed_by_one_that_counts(backend: Backend) -> None:
    """All that were in flight as the window opened were sent before it."""
    backend.delay = 0.6
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=1, seconds=0.01, warmup_seconds=0.5)
    assert result.requests == backend.served >= 2
    assert result.measured == result.requests - 1
    assert result.p50_ms >= 600
    assert result.throughput > 0


async def test_a_window_that_begins_with_an_error_has_the_throughput_of_what_follows(backend: Backend) -> None:
    """A search goes on from each throughput that it measured, and cannot from none at all."""
    begun = itertools.count(1)

    async def held() -> None:
        if next(begun) == 1:  # the one after it outlasts the window
            backend.errors = [grpc.StatusCode.INTERNAL]
        else:
            await asyncio.sleep(0.6)

    backend.held = held
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=1, seconds=0.01)
    assert result.errors == {"INTERNAL": 1}
    assert result.measured >= 1
    assert result.throughput > 0


async def test_a_failure_while_a_point_is_warmed_up_is_one_of_the_point(backend: Backend) -> None:
    backend.errors = [grpc.StatusCode.INTERNAL]
    none = {"count": 0, "ns": 0}

    async def statistics(model: str) -> dict[str, Any]:
        return {"execution_count": 0, "inference_count": 0, "inference_stats": dict.fromkeys(
            ("queue", "compute_infer", "compute_input", "compute_output"), none)}

    async def metrics() -> str:
        return ""

    triton = SimpleNamespace(grpc_url=backend.url, statistics=statistics, metrics=metrics)
    seen = await window(cast(Server, triton), "m", ONE, concurrency=1, seconds=0.01, warmup_seconds=0.01)
    assert (seen.load.failed, seen.load.errors) == (1, {"INTERNAL": 1})
    assert seen.load.measured > 0


async def test_retries_are_off_by_default_and_counted_when_on(backend: Backend) -> None:
    backend.errors = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE]
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=1, seconds=30, max_requests=5, retries=2)
    assert result.retried == 2
    assert result.errors == {"INVALID_ARGUMENT": 1}


def _flags(payload: bytes) -> tuple[int, bool, bool]:
    parameters = service_pb2.ModelInferRequest.FromString(payload).parameters
    return (parameters["sequence_id"].int64_param, parameters["sequence_start"].bool_param,
            parameters["sequence_end"].bool_param)


async def test_steps_of_a_sequence_follow_each_other_on_one_connection(backend: Backend) -> None:
    seen: list[tuple[str, bytes]] = []
    backend.seen = lambda peer, payload: seen.append((peer, payload))
    request = encode("model", Steps(x=np.zeros((5, 1, 3), np.float32)))
    async with Channels(backend.url, count=3) as channels:
        result = await closed_loop(channels, [request], concurrency=1, seconds=600, max_requests=4)
    assert (result.requests, result.failed) == (20, 0)
    flags = [_flags(payload) for _, payload in seen]
    assert [one[1:] for one in flags] == [(True, False), *[(False, False)] * 3, (False, True)] * 4
    sequences = [flags[start:start + 5] for start in range(0, 20, 5)]
    assert all(len({number for number, *_ in one}) == 1 for one in sequences)
    assert len({number for number, *_ in flags}) == 4
    assert all(len({peer for peer, _ in seen[start:start + 5]}) == 1 for start in range(0, 20, 5))


async def test_a_sequence_ends_with_the_request_that_fails(backend: Backend) -> None:
    backend.errors = [grpc.StatusCode.INVALID_ARGUMENT]
    request = encode("model", Steps(x=np.zeros((5, 1, 3), np.float32)))
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, [request], concurrency=1, seconds=600, max_requests=2, retries=3)
    assert (result.requests, result.failed, backend.served) == (1 + 5, 1, 5)


async def test_a_load_that_stops_ends_its_sequences(backend: Backend) -> None:
    stop, seen = asyncio.Event(), list[bytes]()

    def last(peer: str, payload: bytes) -> None:
        seen.append(payload)
        if len(seen) == 3:
            stop.set()

    backend.seen = last
    request = encode("model", Steps(x=np.zeros((1000, 1, 3), np.float32)))
    async with Channels(backend.url) as channels:
        await closed_loop(channels, [request], concurrency=1, seconds=600, stop=stop)
    assert [_flags(payload)[2] for payload in seen] == [False, False, False, True]


async def test_sequences_have_no_open_loop(backend: Backend) -> None:
    request = encode("model", Steps(x=np.zeros((2, 1, 3), np.float32)))
    async with Channels(backend.url) as channels:
        with pytest.raises(ValueError, match="closed loop alone"):
            await open_loop(channels, [request], constant_arrivals(10), seconds=1)


async def test_open_loop_counts_latency_from_the_scheduled_time(backend: Backend) -> None:
    """All are due at once and the server takes one after the other: the last one waited for all the others."""
    lock = asyncio.Lock()
    real = backend.infer

    async def one_at_a_time(payload: bytes, context: grpc.aio.ServicerContext) -> bytes:
        async with lock:
            return await real(payload, context)

    backend.delay = 0.02
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "inference.GRPCInferenceService", {"ModelInfer": grpc.unary_unary_rpc_method_handler(one_at_a_time)}
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Channels(f"127.0.0.1:{port}") as channels:
        result = await open_loop(channels, ONE, [0.0] * 10, seconds=0.1)
    await server.stop(None)
    assert result.requests == 10
    assert result.max_ms >= 10 * 20
    assert result.failed == 0


def test_rows_are_sent_without_the_padding_that_their_mask_marks() -> None:
    row = {"ids": np.array([[5, 6, 0, 0]]), "mask": np.array([[1, 1, 0, 0]]), "other": np.zeros((1, 4, 2)),
           "one": np.zeros((1, 1))}
    assert {name: array.shape for name, array in unpadded(row, "mask").items()} == {
        "ids": (1, 2), "mask": (1, 2), "other": (1, 2, 2), "one": (1, 1)}
    assert unpadded({"mask": np.zeros((1, 4))}, "mask")["mask"].shape == (1, 1)
    with pytest.raises(ValueError, match="'kept' names no input"):
        unpadded(row, "kept")


@pytest.mark.parametrize(("least", "times", "sent"), [(0, 1, 0), (1, 1, 1), (7, 1, 7), (99, 1, 20), (7, 2, 0)])
async def test_a_load_asked_to_stop_first_sends_the_least_that_was_wanted(backend: Backend, least: int, times: int,
                                                                          sent: int) -> None:
    stop = Stop(least)
    for _ in range(times):
        stop.ask()
    arrivals = [index / 1000 for index in range(20)]
    async with Channels(backend.url) as channels:
        result = await open_loop(channels, ONE, stop.counted(arrivals), seconds=600 if sent < 20 else 0.1,
                                 stop=stop.event)
    assert (result.requests, backend.served) == (sent, sent)


async def test_open_loop_says_what_it_could_not_send(backend: Backend) -> None:
    told = asyncio.Event()
    backend.held = told.wait

    def arrivals() -> Iterator[float]:
        yield from [0.0] * 5
        told.set()

    async with Channels(backend.url) as channels:
        result = await open_loop(channels, ONE, arrivals(), seconds=0.1, max_outstanding=2)
    assert result.errors == {"NOT_SENT": 3}
    assert result.requests == 5


async def test_stop_finishes_what_is_in_flight(backend: Backend) -> None:
    backend.delay = 0.05
    stop = asyncio.Event()
    async with Channels(backend.url) as channels:
        running = asyncio.create_task(closed_loop(channels, ONE, concurrency=3, seconds=60, stop=stop))
        await backend.began.wait()
        stop.set()
        result = await running
    assert result.failed == 0
    assert result.requests == backend.served > 0


async def test_reconnecting_moves_to_new_connections_and_loses_nothing(backend: Backend) -> None:
    async with Channels(backend.url, count=2, reconnect_seconds=0.1) as channels:
        result = await closed_loop(channels, ONE, concurrency=4, seconds=60, enough=lambda _: channels.reconnects >= 4)
    assert result.failed == 0
    assert len(backend.peers) >= 4


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
async def test_a_proxy_for_downloads_is_not_between_server_and_load(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    async with Channels(backend.url) as channels:
        result = await closed_loop(channels, ONE, concurrency=1, seconds=60, max_requests=3)
    assert (result.requests, result.failed) == (3, 0)


@pytest.mark.parametrize("later", range(5))
async def test_an_end_that_comes_as_a_connection_stands_is_an_end(monkeypatch: pytest.MonkeyPatch, later: int) -> None:
    """Renewal that was cancelled at that moment went on for ever, and so did the load generator."""
    ready = asyncio.get_running_loop().create_future()

    class Channel:
        async def channel_ready(self) -> None:
            await ready

        def unary_unary(self, _method: str) -> None:
            """What calls through it is not looked at here."""

    monkeypatch.setattr(grpc.aio, "insecure_channel", lambda *_, **__: Channel())
    connecting = asyncio.create_task(Channels("nowhere:1")._connect())
    await asyncio.sleep(0)
    ready.set_result(None)
    for _ in range(later):
        await asyncio.sleep(0)
    cancelled = connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled() is cancelled


async def test_no_server_is_said_at_once() -> None:
    with pytest.raises(ConnectionError, match="does not answer"):
        async with Channels("127.0.0.1:1", connect_seconds=0.2):
            raise AssertionError("must not connect")


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=300), st.floats(0.1, 100))
def test_nearest_rank_is_an_observed_value_with_enough_below(values: list[float], percentile: float) -> None:
    ordered = sorted(values)
    found = nearest_rank(ordered, percentile)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= percentile / 100 * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < percentile / 100 * len(ordered) + 1e-6


def test_throughput_counts_elements_completed_inside_the_window() -> None:
    recorder = Recorder()
    recorder.begin = 10.0
    for end in (9.0, 10.5, 11.0, 11.5, 12.5):
        recorder.add(Call(end - 0.1, end, 4))
    result = recorder.result("closed", 12.0)
    assert result.throughput == pytest.approx(3 * 4 / 2.0)
    assert result.requests == 5


def test_steady_rate_has_a_narrow_interval_and_a_bursty_one_a_wide() -> None:
    steady = [Call(0, index / 100, 1) for index in range(1000)]
    bursts = [Call(0, index // 500 * 5.0, 1) for index in range(1000)]
    low, high = throughput_interval(steady, 0, 10)
    assert low == pytest.approx(100, rel=0.02)
    assert high == pytest.approx(100, rel=0.02)
    low, high = throughput_interval(bursts, 0, 10)
    assert high - low > 100


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 4), st.booleans()), max_size=60), st.floats(2, 9))
def test_figures_so_far_are_those_of_all_calls(steps: list[tuple[float, int, bool]], open_for: float) -> None:
    recorder, now = Recorder(), 0.0
    recorder.begin = 3.0
    for gap, batch, failed in steps:
        recorder.add(Call(max(0.0, now - 0.5), now := now + gap, batch, "INTERNAL" if failed else ""))
        if now >= recorder.begin + open_for:
            break
    now = max(now, recorder.begin + open_for)
    whole, running = recorder.result("closed", now), recorder.so_far(now)
    assert (running.seconds, running.measured) == (whole.seconds, whole.measured)
    assert running.throughput == pytest.approx(whole.throughput)
    assert (running.throughput_low, running.throughput_high) == pytest.approx(
        (whole.throughput_low, whole.throughput_high))


async def test_nothing_is_sorted_while_requests_are_in_flight(backend: Backend, monkeypatch: pytest.MonkeyPatch
                                                              ) -> None:
    """What the checks take, each request in flight would be late by: 2 % of requests, where one takes 5 ms."""
    made, asked, figures = list[int](), list[int](), Recorder.result

    def result(self: Recorder, mode: str, finish: float) -> LoadResult:
        made.append(backend.active)
        return figures(self, mode, finish)

    def enough(seen: Progress) -> bool:
        asked.append(seen.measured)
        return len(asked) == 3

    monkeypatch.setattr(Recorder, "result", result)
    async with Channels(backend.url) as channels:
        await closed_loop(channels, ONE, concurrency=4, seconds=60, enough=enough)
    assert made == [0]
    assert asked == sorted(asked)


def test_checks_come_less_often_the_longer_a_load_goes_on() -> None:
    at = list(itertools.takewhile(lambda now: now < 60, itertools.accumulate(
        itertools.repeat(0.0), lambda now, _: now + pause(now), initial=0.25)))
    assert at[:4] == [0.25, 0.5, 0.75, 1.0]
    assert len(at) < 30
    assert all(after <= 1.25 * before for before, after in itertools.pairwise(at[3:]))


@pytest.mark.parametrize(("percentile", "needed"), [(50, 2), (95, 20), (99, 100), (99.9, 1000), (99.99, 10_000)])
def test_a_percentile_takes_one_request_beyond_it(percentile: float, needed: int) -> None:
    assert requests_needed(percentile) == needed


@pytest.mark.parametrize(("count", "tail"), [(999, None), (1000, 999.0), (2000, 1998.0)])
def test_p999_is_told_of_enough_requests_only(count: int, tail: float | None) -> None:
    recorder = Recorder()
    for index in range(count):
        recorder.add(Call(due=1.0, end=1.0 + (index + 1) / 1e3, batch=1))
    found = recorder.result("closed", 10.0).p999_ms
    assert found == (tail if tail is None else pytest.approx(tail))


def test_nothing_measured_is_zero_not_nan() -> None:
    result = Recorder().result("open", 1.0)
    assert (result.p99_ms, result.throughput, result.mean_ms) == (0.0, 0.0, 0.0)
    assert math.isfinite(result.throughput_high)


def test_arrivals_keep_their_rate_and_repeat_with_their_seed() -> None:
    first = list(itertools.islice(poisson_arrivals(50, seed=3), 5000))
    assert first == list(itertools.islice(poisson_arrivals(50, seed=3), 5000))
    assert first[-1] == pytest.approx(100, rel=0.05)
    assert list(itertools.islice(constant_arrivals(4), 4)) == [0, 0.25, 0.5, 0.75]


@given(st.integers(1, 20), st.integers(1, 8))
def test_split_gives_whole_batches(rows: int, batch: int) -> None:
    parts = split({"x": np.arange(rows)}, batch)
    assert len(parts) == max(1, rows // batch)
    assert all(len(part["x"]) == min(batch, rows) for part in parts)


@pytest.mark.parametrize("inputs", [{}, {"x": np.zeros((0, 3))}, {"x": np.zeros((2, 3)), "y": np.zeros((3, 3))}])
def test_useless_inputs_are_refused(inputs: dict[str, NDArray[Any]]) -> None:
    with pytest.raises((ValueError, StopIteration)):
        split(inputs, 1) if inputs else encode("m", inputs)


def test_a_request_carries_its_arrays() -> None:
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "t": np.array([[b"a"], [b"bc"]], dtype=object)}
    request = encode("m", arrays)
    message = service_pb2.ModelInferRequest.FromString(request.payload)
    assert request.batch == 2
    assert [(entry.name, entry.datatype, list(entry.shape)) for entry in message.inputs] == [
        ("x", "FP32", [2, 3]),
        ("t", "BYTES", [2, 1]),
    ]
    assert message.raw_input_contents[1] == b"\x01\0\0\0a\x02\0\0\0bc"


@pytest.mark.parametrize(("line", "shape"), [({"text": "Zürich"}, [1, 1]), ({"text": ["Zürich"]}, [1, 1]),
                                             ({"text": ["Zürich", "where?"]}, [1, 2])])
def test_a_line_of_text_is_a_row_of_bytes(line: dict[str, Any], shape: list[int]) -> None:
    made = from_json("m", [{"name": "text", "datatype": "BYTES", "shape": [-1, shape[1]]}], line, batched=True)
    sent, = service_pb2.ModelInferRequest.FromString(made.payload).inputs
    assert (sent.datatype, list(sent.shape), made.batch) == ("BYTES", shape, 1)
    assert b"Z\xc3\xbcrich" in made.payload


def test_a_response_gives_its_arrays() -> None:
    message = service_pb2.ModelInferResponse()
    message.outputs.add(name="y", datatype="INT64").shape.extend([1, 2])
    message.raw_output_contents.append(np.array([[3, 4]]).tobytes())
    assert decode(message.SerializeToString())["y"].tolist() == [[3, 4]]


def test_an_answer_without_its_numbers_is_none() -> None:
    """As Triton's Python backend before 24.11 sends arrays of NumPy 2."""
    message = service_pb2.ModelInferResponse(raw_output_contents=[b""])
    message.outputs.add(name="y", datatype="FP32").shape.extend([1, 384])
    with pytest.raises(TruncatedAnswerError, match=re.escape("output 'y' has the shape [1, 384] and 0 numbers")):
        decode(message.SerializeToString())


def _command(url: str, data: Path, *options: str) -> list[str]:
    np.savez(data, x=np.zeros((4, 3), np.float32))
    return [
        sys.executable,
        "-m",
        "enginewright_builder.load",
        "--url",
        url,
        "--model",
        "m",
        "--inputs",
        str(data),
        "--closed",
        "2",
        "--json",
        *options,
    ]


SOURCES = {**os.environ, "PYTHONPATH": str(Path(enginewright_builder.__file__).parent.parent)}


async def test_command_prints_one_json_object(backend: Backend, tmp_path: Path) -> None:
    arguments = _command(backend.url, tmp_path / "data.npz", "--seconds", "30", "--max-requests", "8", "--batch", "2")
    process = await asyncio.create_subprocess_exec(*arguments, env=SOURCES, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    figures = json.loads(output)
    assert process.returncode == 0
    assert (figures["requests"], figures["failed"], figures["mode"]) == (8, 0, "closed")


async def test_command_sends_sequences(backend: Backend, tmp_path: Path) -> None:
    arguments = _command(backend.url, tmp_path / "data.npz", "--seconds", "30", "--max-requests", "2", "--sequences")
    np.savez(tmp_path / "data", x=np.zeros((2, 3, 1, 4), np.float32))
    process = await asyncio.create_subprocess_exec(*arguments, env=SOURCES, stdout=asyncio.subprocess.PIPE)
    figures = json.loads((await process.communicate())[0])
    assert process.returncode == 0
    assert (figures["requests"], figures["failed"]) == (backend.served, 0)
    assert backend.served > 2


def test_command_takes_sequences_from_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", "127.0.0.1:1", "--model", "m", "--sequences"]) == 2
    assert "--inputs FILE.npz" in capsys.readouterr().err


async def test_command_ends_gracefully_when_its_pod_is_stopped(backend: Backend, tmp_path: Path) -> None:
    backend.delay = 0.05
    arguments = _command(backend.url, tmp_path / "data.npz", "--seconds", "600")
    process = await asyncio.create_subprocess_exec(*arguments, env=SOURCES, stdout=asyncio.subprocess.PIPE)
    await backend.began.wait()
    process.terminate()
    output, _ = await process.communicate()
    figures = json.loads(output)
    assert (process.returncode, figures["failed"], figures["requests"]) == (0, 0, backend.served)


@pytest.mark.parametrize(
    "arguments", [["--closed", "0"], ["--rate", "-1"], ["--rate", "nan"], ["--closed", "2", "--rate", "3"]]
)
def test_command_refuses_absurd_numbers(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--url", "x", "--model", "m", *arguments])
    assert caught.value.code == 2


def test_shapes_of_inputs_that_the_model_has_not_are_refused() -> None:
    described = [{"name": "text", "datatype": "BYTES", "shape": [-1, 1]}]
    with pytest.raises(ValueError, match="--shape input_ids: the model has no such input; write one of text"):
        _made_up(described, {"input_ids": (64,)}, 1, batched=True)
    assert _made_up(described, {"text": (1,)}, 2, batched=True)["text"].shape == (2, 1)

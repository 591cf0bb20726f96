"""Queue depth out of Triton's metrics, over a real socket where the wire matters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients.errors import TransientError
from enginewright.clients.page import LARGEST_PAGE
from enginewright.clients.signals import NoSignalError
from enginewright.clients.triton import TritonClient, parse_metrics

PAGE = b"""# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="minilm",version="1"} 12
# HELP nv_inference_request_failure Number of failed inference requests, all batch sizes
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="minilm",reason="OTHER",version="1"} 1
nv_inference_request_failure{model="minilm",reason="BACKEND",version="1"} 2
nv_inference_request_failure{model="minilm",reason="CANCELED",version="1"} 4
nv_inference_request_failure{model="minilm",reason="REJECTED",version="1"} 8
# HELP nv_inference_pending_request_count Instantaneous number of pending requests awaiting execution per-model.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="minilm",version="1"} 3
nv_inference_pending_request_count{model="minilm",version="2"} 4
nv_inference_pending_request_count{gpu_uuid="GPU-1",model="minilm",version="1"} 0
nv_inference_pending_request_count{model="tokenizer",version="1"} 5
nv_inference_compute_infer_summary_us{model="minilm",version="1",quantile="0.5"} nan
"""


# Four that failed beside others of their batch, of which one was not what the engine takes.
MISTAKEN = PAGE + b"""# TYPE enginewright_failed_requests_total counter
enginewright_failed_requests_total{fault="backend",model="minilm",version="1"} 3
enginewright_failed_requests_total{fault="request",model="minilm",version="1"} 1
"""


def test_pending_is_summed_over_versions_and_survives_the_zero_twin() -> None:
    metrics = parse_metrics(PAGE)
    assert metrics.pending == {"minilm": 7.0, "tokenizer": 5.0}
    assert metrics.queued == 12.0
    assert metrics.successes == {"minilm": 12.0}


# "m" is a cache before the engine "m_computed": 5 hits and 2 misses of clients, and 1 probe of the engine.
CACHED = b"""nv_inference_request_success{model="m",version="1"} 7
nv_inference_request_success{model="m_computed",version="1"} 3
nv_inference_request_failure{model="m",reason="OTHER",version="1"} 4
nv_inference_request_failure{model="m_computed",reason="REJECTED",version="1"} 4
nv_inference_count{model="m",version="1"} 2
nv_inference_count{model="m_computed",version="1"} 3
nv_inference_exec_count{model="m",version="1"} 2
nv_inference_exec_count{model="m_computed",version="1"} 3
nv_inference_request_duration_us{model="m",version="1"} 2100
nv_inference_request_duration_us{model="m_computed",version="1"} 3000
nv_inference_queue_duration_us{model="m",version="1"} 40
nv_inference_queue_duration_us{model="m_computed",version="1"} 300
nv_inference_pending_request_count{model="m",version="1"} 1
nv_inference_pending_request_count{model="m_computed",version="1"} 1
nv_inference_request_summary_us{model="m",version="1",quantile="0.99"} 9
nv_inference_request_summary_us{model="m_computed",version="1",quantile="0.99"} 1500
nv_cache_num_hits_per_model{model="m",version="1"} 5
nv_cache_num_misses_per_model{model="m",version="1"} 2
"""


def test_of_a_server_with_a_cache_the_engine_alone_counts_and_hits_apart() -> None:
    metrics = parse_metrics(CACHED)
    assert (metrics.hits, metrics.misses) == (5.0, 2.0)
    assert (metrics.timed, metrics.busy, metrics.queued_for) == (3.0, 3000.0, 300.0)
    assert (metrics.inferences, metrics.executions, metrics.queued, metrics.p99) == (3.0, 3.0, 1.0, 1.5)
    assert (metrics.rejected, metrics.broken) == (4.0, 0.0)


SUMMARY = b"""nv_inference_pending_request_count{model="m",version="1"} 0
nv_inference_request_duration_us{model="m",version="1"} 3000
nv_inference_queue_duration_us{model="m",version="1"} 1000
nv_inference_queue_duration_us{model="n",version="1"} 500
nv_inference_exec_count{model="m",version="1"} 2
nv_inference_exec_count{model="n",version="1"} 1
nv_inference_request_summary_us_count{model="m",version="1"} 3
nv_inference_request_summary_us_sum{model="m",version="1"} 3000
nv_inference_request_summary_us{model="m",version="1",quantile="0.5"} 900
nv_inference_request_summary_us{model="m",version="1",quantile="0.99"} 1500
nv_inference_request_summary_us{model="n",version="1",quantile="0.99"} 2500
nv_inference_request_summary_us{model="n",version="1",quantile="0.5"} nan
"""


def test_durations_executions_and_quantiles() -> None:
    metrics = parse_metrics(SUMMARY)
    assert (metrics.busy, metrics.queued_for, metrics.executions) == (3000.0, 1500.0, 3.0)
    assert parse_metrics(PAGE).executions == 0.0
    assert metrics.quantiles == {0.5: 0.9, 0.99: 2.5}
    assert parse_metrics(PAGE).quantiles == {}


def test_what_the_client_gave_up_and_what_a_full_queue_turned_away_is_no_fault_of_the_engine() -> None:
    assert parse_metrics(PAGE).broken == 3.0


def test_what_failed_beside_others_is_no_success_though_triton_counts_it_as_one() -> None:
    metrics = parse_metrics(MISTAKEN)
    assert (metrics.timed, metrics.answered, metrics.broken) == (12.0, 8.0, 6.0)
    assert (parse_metrics(PAGE).timed, parse_metrics(PAGE).answered) == (12.0, 12.0)


def test_a_failure_that_is_counted_before_its_success_leaves_no_negative_count() -> None:
    early = MISTAKEN.replace(b'success{model="minilm",version="1"} 12', b'success{model="minilm",version="1"} 2')
    assert parse_metrics(early).answered == 0.0


@pytest.mark.parametrize("page", [b"", b"# only comments\n", b"nv_inference_request_success{model=\"m\"} 1\n"])
def test_a_page_without_queue_depth_is_no_signal_and_not_zero(page: bytes) -> None:
    with pytest.raises(NoSignalError):
        parse_metrics(page)


@given(st.binary(max_size=200))
def test_any_text_is_parsed_or_refused(text: bytes) -> None:
    try:
        parse_metrics(b"nv_inference_pending_request_count" + text)
    except NoSignalError:
        return


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Handler], Awaitable[int]]]:
    runners = []

    async def start(handler: Handler) -> int:
        app = web.Application()
        app.router.add_get("/metrics", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_scrape(serve: Callable[[Handler], Awaitable[int]]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=PAGE)

    async with TritonClient(deadline=60) as client:
        assert (await client.scrape("127.0.0.1", await serve(answer))).queued == 12.0


async def test_a_replica_that_hangs_is_given_up_on(serve: Callable[[Handler], Awaitable[int]]) -> None:
    release = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response(body=PAGE)

    port = await serve(answer)
    async with TritonClient(deadline=0.05) as client:
        with pytest.raises(TransientError, match=r"no answer within 0.05 s"):
            await client.scrape("127.0.0.1", port)
    release.set()


async def test_replicas_that_hang_keep_no_other_waiting(serve: Callable[[Handler], Awaitable[int]]) -> None:
    """As behind network policies of some namespaces: replicas elsewhere are asked all the same."""
    release, asked = asyncio.Event(), asyncio.Semaphore(0)

    async def hang(_: web.Request) -> web.Response:
        asked.release()
        await release.wait()
        return web.Response(body=PAGE)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=PAGE)

    hanging, answering = await serve(hang), await serve(answer)
    async with TritonClient(deadline=60) as client, asyncio.TaskGroup() as group, asyncio.timeout(30):
        for _ in range(200):
            group.create_task(client.scrape("127.0.0.1", hanging))
        for _ in range(64):
            await asked.acquire()
        assert (await client.scrape("127.0.0.1", answering)).queued == 12.0
        release.set()


async def test_an_error_page_is_no_metrics_page(serve: Callable[[Handler], Awaitable[int]]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=503, body=PAGE)

    async with TritonClient(deadline=60) as client:
        with pytest.raises(TransientError, match="answered 503"):
            await client.scrape("127.0.0.1", await serve(answer))


async def test_an_endless_page_is_refused(serve: Callable[[Handler], Awaitable[int]]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * (LARGEST_PAGE + 1))

    async with TritonClient(deadline=30) as client:
        with pytest.raises(TransientError, match="more than"):
            await client.scrape("127.0.0.1", await serve(answer))


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with TritonClient(deadline=60) as client:
        with pytest.raises(TransientError, match="ConnectionRefusedError"):
            await client.scrape("127.0.0.1", unused_tcp_port)

"""vLLM's own metrics page, as release 0.32 writes it, and who asks for it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from enginewright.clients.prometheus import PrometheusClient, pending_query
from enginewright.clients.signals import NoSignalError, ReplicaMetrics
from enginewright.clients.triton import TritonClient
from enginewright.clients.vllm import parse_vllm_metrics
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM
from enginewright.core.tokens import Tokens
from enginewright.observe.keys import Key
from enginewright.observe.signals import Signals, Target
from enginewright.observe.window import Window
from enginewright.reconcile.targets import target_of
from support.cluster import SPEC, Cluster, resolved
from support.published_language_model import built_language_model

PAGE = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 7.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 2.0
vllm:request_success_total{engine="0",finished_reason="error",model_name="m"} 1.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="0.3",model_name="m"} 0.0
vllm:e2e_request_latency_seconds_sum{engine="0",model_name="m"} 4.5
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 15.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 0.25
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="m"} 19.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 23.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 23.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 4.6
vllm:request_generation_tokens_bucket{engine="0",le="1.0",model_name="m"} 4.0
vllm:request_generation_tokens_bucket{engine="0",le="2.0",model_name="m"} 9.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="m"} 15.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 15.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 300.0
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="0.05",model_name="m"} 12.0
vllm:request_time_per_output_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 15.0
vllm:request_time_per_output_token_seconds_count{engine="0",model_name="m"} 15.0
vllm:request_time_per_output_token_seconds_sum{engine="0",model_name="m"} 0.44
"""


def test_what_a_page_says() -> None:
    found = parse_vllm_metrics(PAGE)
    assert (found.queued, found.answered, found.broken) == (3.0, 12.0, 1.0)
    assert found.failures == {"CANCELED": 2.0, "BACKEND": 1.0}
    assert (found.busy, found.queued_for) == (4.5e6, 0.25e6)
    assert (found.p99, found.executions, found.inferences, found.gpus) == (None, 0.0, 0.0, {})


def test_what_a_page_says_of_tokens() -> None:
    """Of 23 that began 15 have ended, 2 run and 3 wait: clients left 3, beside the 2 that ended so."""
    found = parse_vllm_metrics(PAGE).tokens
    assert found is not None
    assert (found.begun, found.ended, found.generated, found.cut, found.gone) == (23.0, 15.0, 300.0, 7.0, 5.0)
    assert [found.waited, found.pace] == pytest.approx([4.6e6, 0.44e6])
    assert found.paced == 11.0, "of four the first token was the last"
    assert found.begun_within == {250.0: 19.0, math.inf: 23.0}
    assert found.paced_within == {50.0: 12.0, math.inf: 15.0}


def test_a_page_without_histograms_says_nothing_of_tokens() -> None:
    found = parse_vllm_metrics(PAGE[:PAGE.index(b"vllm:time_to_first_token")])
    assert (found.answered, found.tokens) == (12.0, Tokens(cut=7.0, gone=2.0))


@pytest.mark.parametrize("bound", ["", 'le="many",', 'le="nan",'])
def test_a_bound_that_is_no_number_is_no_signal(bound: str) -> None:
    page = PAGE + f'vllm:request_generation_tokens_bucket{{{bound}model_name="m"}} 1.0\n'.encode()
    with pytest.raises(NoSignalError, match="has a bound that is not a number"):
        parse_vllm_metrics(page)


def counted(begun: float, ended: float, gone: float) -> dict[str, ReplicaMetrics]:
    tokens = Tokens(begun=begun, ended=ended, gone=gone)
    return {"pod": ReplicaMetrics(pending={"m": 0.0}, successes={"m": ended}, tokens=tokens)}


def test_tokens_of_an_analysis_are_those_between_two_scrapes() -> None:
    window = Window(0.0)
    window.analyse("k")
    pages = (counted(begun=5, ended=4, gone=1), counted(begun=9, ended=7, gone=2), counted(begun=12, ended=8, gone=0),
             counted(begun=14, ended=9, gone=3), counted(begun=2, ended=1, gone=1))
    for second, page in enumerate(pages):
        window.count(float(second), page, {"pod": "new"})
    found = [one.traffic["new"].tokens for one in window.view().rounds if one.traffic]
    assert found == [Tokens(begun=4, ended=3, gone=1), Tokens(begun=3, ended=1), Tokens(begun=2, ended=1, gone=1),
                     Tokens(begun=2, ended=1, gone=1)], "the server started again before the last"


@pytest.mark.parametrize("page", [b"", b"nv_inference_pending_request_count{model=\"m\"} 1\n", b"<html>"])
def test_an_unknown_queue_is_no_empty_one(page: bytes) -> None:
    with pytest.raises(NoSignalError, match="no vllm:num_requests_waiting"):
        parse_vllm_metrics(page)


class PortVllm(TritonClient):
    """The port is fixed in a cluster and free in a test."""

    port = 0

    async def scrape_vllm(self, address: str, port: int = 0) -> object:  # type: ignore[override]
        return await super().scrape_vllm(address, self.port)


@pytest.fixture
async def replica() -> AsyncIterator[int]:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=PAGE)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def test_the_scraper_reads_it_where_replicas_run_vllm(replica: int) -> None:
    async with PortVllm(deadline=60) as client, PrometheusClient() as prometheus:
        client.port = replica
        signals = Signals(client, prometheus, wake=lambda _: None, clock=lambda: 1.0, scraped=lambda *_: None)
        window = Window(0.0)
        await signals.round(Key("prod", "m"), Target(replicas={"pod": "127.0.0.1"}, current=1, server=VLLM), window)
    (sample,) = window.view().samples
    assert (sample.pending, sample.missing) == ({"pod": 3.0}, 0)


def test_its_page_is_at_the_port_of_its_api() -> None:
    assert VLLM.metrics_port == 8000


def test_which_server_is_read_is_what_the_record_says() -> None:
    for scaling in ({}, {"autoscaling": {"minReplicas": 1, "maxReplicas": 2}}):
        cluster = Cluster(spec={**SPEC, **scaling})
        assert target_of(cluster.view(), cluster.observe(), cluster.operate()).server is TRITON
        cluster.finish(resolved())
        cluster.operate()
        cluster.finish(built_language_model(built_at=cluster.now), of="build")
        cluster.settle()
        assert target_of(cluster.view(), cluster.observe(), cluster.operate()).server is VLLM


def test_prometheus_is_asked_for_its_name_of_the_queue() -> None:
    asked = pending_query("prod", "m", gauge=VLLM.metrics.pending)
    assert asked.startswith('vllm:num_requests_waiting{namespace="prod"')

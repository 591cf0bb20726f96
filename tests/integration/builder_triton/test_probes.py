"""The operator's probes and counters against a real tritonserver."""

from __future__ import annotations

import time

import pytest

from enginewright.clients.probe import ProbeClient
from enginewright.clients.triton import TritonClient
from enginewright.core.comparison import Limits, Question
from enginewright.core.probe import Match, ProbeError, make_request, match
from enginewright.core.signals import Traffic
from enginewright.observe.prober import PAIRS, Prober
from enginewright.observe.signals import Signals, Target
from enginewright.observe.window import Window
from enginewright_builder.triton.server import TritonServer
from support.apiserver import eventually

pytestmark = [pytest.mark.triton, pytest.mark.asyncio(loop_scope="session")]


def port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


async def test_made_up_inputs_are_answered(server: TritonServer) -> None:
    async with ProbeClient(deadline=60) as client:
        http = port(server.http_url)
        metadata = await client.metadata("127.0.0.1", "multiply", http)
        request = make_request(metadata, 1)
        first = await client.infer("127.0.0.1", "multiply", request, http)
        again = await client.infer("127.0.0.1", "multiply", request, http)
        other = await client.infer("127.0.0.1", "multiply", make_request(metadata, 2), http)
        with pytest.raises(ProbeError, match="answered 4"):
            await client.infer("127.0.0.1", "no-such-model", request, http)
    assert first
    assert again
    assert other
    assert first["y"].shape == (1, 8, 4)
    assert match(first, again, same_model=True) == Match(similarity=1.0)
    found = match(first, other, same_model=True)
    assert found.similarity is not None
    assert found.similarity < 0.9


async def test_probes_come_back_as_the_servers_own_counts(server: TritonServer) -> None:
    class Here(ProbeClient):
        async def metadata(self, address: str, model: str, port_: int = 0) -> object:  # type: ignore[override]
            return await super().metadata(address, model, port(server.http_url))

        async def infer(self, address: str, model: str, request: object, port_: int = 0) -> object:  # type: ignore[override]
            return await super().infer(address, model, request, port(server.http_url))  # type: ignore[arg-type]

    class Counted(TritonClient):
        async def scrape(self, address: str, port_: int = 0) -> object:  # type: ignore[override]
            return await super().scrape(address, port(server.metrics_address))

    question = Question(key="k", stable="old", candidate="new", model="multiply", limits=Limits(similarity=0.9))
    replicas, revisions = {"a": "127.0.0.1", "b": "127.0.0.1"}, {"a": "old", "b": "new"}
    target = Target(replicas=replicas, current=2, revisions=revisions, question=question)
    window = Window(0.0)
    window.analyse("k")
    async with Here(deadline=60) as probes, Counted(deadline=60) as triton:
        signals = Signals(triton, None, wake=lambda _: None, clock=time.monotonic,  # type: ignore[arg-type]
                          scraped=lambda *_: None)
        prober = Prober(probes, time.monotonic)
        await signals.round(None, target, window)  # type: ignore[arg-type]
        await prober.round(question, replicas, revisions, window)
        # Fewer where the machine is busy: a round has a budget of time.
        pairs = window.probes.pairs
        assert 1 <= pairs <= PAIRS

        async def all_are_counted() -> bool:
            """Triton renews its metrics now and then, not with each request."""
            await signals.round(None, target, window)  # type: ignore[arg-type]
            return sum(one.traffic.get("new", Traffic()).requests for one in window.view().rounds) >= 2 * pairs

        await eventually(all_are_counted)
    assert window.probes.similarities == (1.0,) * pairs
    # One server plays both replicas, so each sees the probes of both.
    counted = [one.traffic["new"] for one in window.view().rounds if "new" in one.traffic]
    assert sum(one.requests for one in counted) == 2 * pairs
    assert sum(one.busy for one in counted) > sum(one.queued for one in counted) > 0
    assert sum(one.failed for one in counted) == 0

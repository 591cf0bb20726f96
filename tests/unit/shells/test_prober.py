"""Requests of the operator's own, to real HTTP servers that speak the Open Inference Protocol."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web

from enginewright.clients.probe import LARGEST_ANSWER, ProbeClient
from enginewright.core.comparison import FRUITLESS_PAIRS, Limits, Question
from enginewright.core.probe import Match, Request, Tensor
from enginewright.observe.prober import COMPARED, MOST_COMPARED, MOST_PAIRS, PAIRS, Prober
from enginewright.observe.window import UNANSWERED, Window

OLD, NEW = "127.0.0.1", "127.0.0.2"
QUESTION = Question(key="k", stable="old", candidate="new", model="m", limits=Limits(similarity=0.9))
REPLICAS = {"old-1": OLD, "new-1": NEW}
REVISIONS = {"old-1": "old", "new-1": "new"}
LIKE = Match(similarity=1.0)


@dataclass
class Servers:
    """What each address answers: two numbers, ``repeats`` times over, or an HTTP status."""

    answers: dict[str, tuple[float, float] | int] = field(default_factory=lambda: {OLD: (1.0, 2.0), NEW: (1.0, 2.0)})
    inputs: tuple[int, ...] = (-1, 4)
    repeats: int = 1
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    port: int = 0

    async def metadata(self, _: web.Request) -> web.Response:
        return web.json_response({"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": self.inputs}]})

    async def infer(self, request: web.Request) -> web.Response:
        self.names.append(request.path.split("/")[3])
        address = request.get_extra_info("sockname")[0]
        body = await request.read()
        self.asked.append((address, body))
        said = self.answers[address]
        if isinstance(said, int):
            return web.json_response({"error": "no"}, status=said)
        count = 2 * self.repeats
        head = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, count],
                                        "parameters": {"binary_data_size": 4 * count}}]}).encode()
        return web.Response(body=head + self.repeats * struct.pack("<2f", *said),
                            headers={"Inference-Header-Content-Length": str(len(head))})


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    made = Servers()
    app = web.Application()
    for name in ("m", "m_computed"):
        app.router.add_get(f"/v2/models/{name}", made.metadata)
        app.router.add_post(f"/v2/models/{name}/infer", made.infer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()
    made.port = int(runner.addresses[0][1])
    yield made
    await runner.cleanup()


class PortProbe(ProbeClient):
    port = 0

    async def metadata(self, address: str, model: str, port: int = 0) -> object:  # type: ignore[override]
        return await super().metadata(address, model, self.port)

    async def infer(self, address: str, model: str, request: Request, port: int = 0) -> dict[str, Tensor] | None:
        return await super().infer(address, model, request, self.port)


@pytest.fixture
async def prober(servers: Servers) -> AsyncIterator[Prober]:
    async with PortProbe(deadline=60) as client:
        client.port = servers.port
        yield Prober(client, lambda: 0.0)


def fresh() -> Window:
    window = Window(0.0)
    window.analyse("k")
    return window


async def test_both_get_the_same_inputs_in_turns(servers: Servers, prober: Prober) -> None:
    window = fresh()
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert len(servers.asked) == 2 * PAIRS
    firsts = [address for address, _ in servers.asked[::2]]
    assert firsts == [OLD, NEW, OLD, NEW, OLD]
    for (_, first), (_, second) in zip(servers.asked[::2], servers.asked[1::2], strict=True):
        assert first == second
    assert len({body for _, body in servers.asked}) == PAIRS
    assert window.probes.pairs == PAIRS
    assert window.probes.similarities == (1.0,) * PAIRS


@pytest.mark.parametrize(("caching", "alone", "names"), [
    ({"new"}, False, ["m", "m_computed"]), ({"old"}, False, ["m_computed", "m"]), ({"new"}, True, ["m_computed"] * 2),
])
async def test_no_cache_answers_a_probe(servers: Servers, prober: Prober, caching: set[str], alone: bool,
                                        names: list[str]) -> None:
    question = replace(QUESTION, caching=frozenset(caching), alone=alone)
    await prober.round(question, REPLICAS, REVISIONS, fresh())
    assert servers.names[:2] == names


async def test_with_live_traffic_only_outputs_are_compared(servers: Servers, prober: Prober,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    window = fresh()
    monkeypatch.setattr(window, "thin", lambda *_: False)
    for _ in range(COMPARED + 5):
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert window.probes.pairs == COMPARED


@pytest.mark.parametrize(
    ("had", "more"),
    [
        ([LIKE] * 4 + [Match(flaw="odd")] * 4, 4),
        ([Match()] * FRUITLESS_PAIRS, 0),
        ([LIKE, *[Match()] * (MOST_COMPARED - 2)], 1),
    ],
)
async def test_outputs_are_asked_for_until_enough_can_be_compared(
    servers: Servers, prober: Prober, monkeypatch: pytest.MonkeyPatch, had: list[Match], more: int
) -> None:
    window = fresh()
    monkeypatch.setattr(window, "thin", lambda *_: False)
    for one in had:
        window.probed(0.0, one)
    for _ in range(COMPARED):
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert window.probes.pairs - len(had) == more


async def test_probes_end(servers: Servers, prober: Prober) -> None:
    window = fresh()
    while window.probes.pairs < MOST_PAIRS:
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
        if window.probes.pairs == PAIRS:
            window._probes = replace(window.probes, pairs=MOST_PAIRS - 1)
    asked = len(servers.asked)
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert len(servers.asked) == asked


async def test_other_answers_are_seen(servers: Servers, prober: Prober) -> None:
    servers.answers[NEW] = (-1.0, -2.0)
    window = fresh()
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert window.probes.median == pytest.approx(-1.0)


@pytest.mark.parametrize(("answer", "flaw"), [(500, "answered 500"), ((float("nan"), 1.0), "not finite")])
async def test_a_candidate_that_fails_probes_is_seen(
    servers: Servers, prober: Prober, answer: int | tuple[float, float], flaw: str
) -> None:
    servers.answers[NEW] = answer
    window = fresh()
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert window.probes.flawed == window.probes.pairs == PAIRS
    assert flaw in window.probes.flaw


async def test_inputs_that_the_stable_revision_refuses_blame_nobody(servers: Servers, prober: Prober) -> None:
    servers.answers = {OLD: 400, NEW: 400}
    window = fresh()
    for _ in range(UNANSWERED - 1):
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
        assert not window.probes.problem, "it may be one stall"
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert window.probes.pairs == window.probes.flawed == 0
    assert "the stable revision does not answer probes: it answered 400" in window.probes.problem


async def test_another_input_is_tried_where_one_is_refused(servers: Servers, prober: Prober) -> None:
    servers.answers = {OLD: 400, NEW: 400}
    window = fresh()
    for _ in range(4):
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert len({body for _, body in servers.asked}) == 4


async def test_answers_that_are_large_are_not_compared(servers: Servers, prober: Prober) -> None:
    window = fresh()
    servers.repeats = LARGEST_ANSWER // 8 - 100
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert window.probes.similarities == (1.0,) * PAIRS
    servers.repeats = LARGEST_ANSWER // 8
    servers.answers[NEW] = (-1.0, -2.0)
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert (window.probes.pairs, window.probes.flawed) == (2 * PAIRS, 0)
    assert len(window.probes.similarities) == PAIRS


async def test_stalls_that_are_not_in_a_row_are_no_problem(servers: Servers, prober: Prober) -> None:
    window = fresh()
    for _ in range(2 * UNANSWERED):
        servers.answers[OLD] = 400
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
        servers.answers[OLD] = (1.0, 2.0)
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    servers.answers[OLD] = 400
    await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert not window.probes.problem


async def test_a_model_that_cannot_be_made_inputs_for(servers: Servers, prober: Prober) -> None:
    servers.inputs = (-1, 40_000_000)
    window = fresh()
    for _ in range(UNANSWERED):
        await prober.round(QUESTION, REPLICAS, REVISIONS, window)
    assert "takes more than 4 MiB" in window.probes.problem


async def test_a_replica_that_is_away(prober: Prober, unused_tcp_port: int) -> None:
    async with PortProbe(deadline=60) as client:
        client.port = unused_tcp_port
        window = fresh()
        for _ in range(UNANSWERED):
            await Prober(client, lambda: 0.0).round(QUESTION, REPLICAS, REVISIONS, window)
    assert "the stable revision does not answer probes" in window.probes.problem


@pytest.mark.parametrize(("alone", "asked"), [(False, set[str]()), (True, {NEW})])
async def test_without_a_stable_replica(servers: Servers, prober: Prober, alone: bool, asked: set[str]) -> None:
    await prober.round(replace(QUESTION, alone=alone), {"new-1": NEW}, {"new-1": "new"}, fresh())
    assert {address for address, _ in servers.asked} == asked

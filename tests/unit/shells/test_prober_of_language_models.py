"""Requests of the operator's own to a language model's replicas, by OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from enginewright.clients.probe import TOKENS, ProbeClient
from enginewright.core.comparison import Question
from enginewright.observe.prober import PAIRS, Prober
from enginewright.observe.window import UNANSWERED, Window

OLD, NEW = "127.0.0.1", "127.0.0.2"
QUESTION = Question(key="k", stable="old", candidate="new", model="m", generates=True)
REPLICAS, REVISIONS = {"old-1": OLD, "new-1": NEW}, {"old-1": "old", "new-1": "new"}


class Servers:
    """``refuses`` are addresses that answer 404."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refuses: set[str] = set()
        self.port = 0

    async def complete(self, request: web.Request) -> web.Response:
        address = request.get_extra_info("sockname")[0]
        self.asked.append((address, await request.json()))
        if address in self.refuses:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        return web.Response(text=json.dumps({"choices": [{"text": " a"}]}))


class PortProbe(ProbeClient):
    port = 0

    async def complete(self, address: str, model: str, prompt: str, port: int = 0) -> None:
        await super().complete(address, model, prompt, self.port)


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    made, app = Servers(), web.Application()
    app.router.add_post("/v1/completions", made.complete)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()
    made.port = int(runner.addresses[0][1])
    yield made
    await runner.cleanup()


async def probed(servers: Servers, rounds: int = 1) -> Window:
    window = Window(0.0)
    window.analyse("k")
    async with PortProbe(deadline=60) as client:
        client.port = servers.port
        for _ in range(rounds):
            await Prober(client, lambda: 1.0).round(QUESTION, REPLICAS, REVISIONS, window)
    return window


async def test_both_are_asked_for_as_many_tokens_of_the_same_text_and_each_pair_for_another(servers: Servers) -> None:
    window = await probed(servers)
    assert (window.probes.pairs, window.probes.flawed, window.probes.problem) == (PAIRS, 0, "")
    pairs = [servers.asked[place:place + 2] for place in range(0, len(servers.asked), 2)]
    assert {frozenset(address for address, _ in pair) for pair in pairs} == {frozenset((OLD, NEW))}
    assert all(mine == theirs for (_, mine), (_, theirs) in pairs)
    beginnings = {body["prompt"][:12] for _, body in servers.asked}
    assert len(beginnings) == PAIRS
    asked = {(body["model"], body["max_tokens"], body["ignore_eos"]) for _, body in servers.asked}
    assert asked == {("m", TOKENS, True)}


async def test_a_candidate_that_refuses_what_the_stable_one_answers_is_flawed(servers: Servers) -> None:
    servers.refuses = {NEW}
    window = await probed(servers)
    assert window.probes.flawed == window.probes.pairs == PAIRS


async def test_a_stable_one_that_refuses_says_nothing_of_the_candidate(servers: Servers) -> None:
    servers.refuses = {OLD}
    window = await probed(servers, UNANSWERED)
    assert window.probes.pairs == 0
    assert "the stable revision does not answer probes" in window.probes.problem

"""The container that the operator asks for runs a real vLLM, which answers the operator's own questions and ends its
streams before it goes."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from enginewright.activator.serve import Options, activator
from enginewright.clients.errors import ClientError
from enginewright.clients.probe import TOKENS, ProbeClient
from enginewright.clients.quality import QualityClient
from enginewright.clients.triton import TritonClient
from enginewright.core import labels
from enginewright.core.manifests import deployment, quality
from enginewright.core.probe import ProbeError, make_prompt
from enginewright.core.servers.vllm import VLLM
from enginewright.core.tokens import Tokens
from enginewright.observe.keys import Key
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.http import metrics_app, serving
from enginewright_builder.contract import REFERENCE_FOLDER, QualityReport
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Client
from enginewright_builder.generate.gate import score
from enginewright_builder.generate.kept_prompts import keep_prompts
from enginewright_builder.generate.packages import packages
from enginewright_builder.generate.server import PROVEN_WORDS
from enginewright_builder.generate.speculation import speculated
from enginewright_builder.generate.teacher import record
from enginewright_builder.pod import renewing
from enginewright_builder.triton import process
from enginewright_builder.triton.ports import HOST, free_ports
from support.apiserver import eventually
from support.children import children_of
from support.dashboards import expressions
from support.language_model import CACHE_VARIABLE, cut, tiny, vllm
from support.prometheus import RULES, at_once, fired, running
from support.published_language_model import built_language_model

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200), pytest.mark.asyncio(loop_scope="module")]

READY_SECONDS = 900
SETTINGS = ServerArguments(dtype="float32", max_model_len=512, max_num_seqs=4, cache_gib=1, threads=1,
                           enforce_eager=True)


@dataclass
class Replica:
    port: int
    child: asyncio.subprocess.Process
    log: Path


def container(settings: ServerArguments = SETTINGS) -> dict[str, Any]:
    """The server's own, of what a build with these settings has published."""
    children = children_of("chat", {"source": {"uri": "pvc://models/tiny"}, "placement": {"accelerator": "cpu"}})
    outcome = built_language_model(
        children.fingerprint, words=(*PROVEN_WORDS, *settings.words()),
        environment=settings.environment(), draft=settings.draft)
    made = deployment(children.owner, children.spec, replace(children.record, outcome=outcome), children.placement,
                      children.config)
    found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return found


def here(asked: dict[str, Any], model: Path, home: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Command and environment on this machine: its folders and a free port in place of the pod's, and the program as
    its image starts it."""
    *_, program, verb = asked["command"]
    assert program == "vllm"
    places = {"/models/chat": str(model), f"--port={VLLM.ports[0].number}": f"--port={port}"}
    assert places.keys() <= set(asked["args"])
    words = [places.get(word, word) for word in asked["args"]]
    variables = {one["name"]: one["value"] for one in asked["env"]}
    return ([sys.executable, "-s", "-S", "-m", "vllm.entrypoints.cli.main", verb, *words, f"--host={HOST}"],
            {**variables, "PATH": os.environ["PATH"], "PYTHONPATH": f"{Path(renewing.__file__).parent}:{packages()}",
             "PYTHONDONTWRITEBYTECODE": "1", CACHE_VARIABLE: os.environ[CACHE_VARIABLE],
             "HOME": str(home)})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def replica(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replica]:
    vllm()
    place = tmp_path_factory.mktemp("replica")
    (port,) = free_ports(1)
    async with started(*here(container(), tiny(place / "tiny"), place, port), place, port) as found:
        yield found


@asynccontextmanager
async def started(command: list[str], environment: dict[str, str], place: Path, port: int) -> AsyncIterator[Replica]:
    log = place / "log"
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(*command, env=environment, cwd=place, stdout=output, stderr=output,
                                                     stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
    running = Replica(port, child, log)
    try:
        await ready(running)
        yield running
    finally:
        await process.end(child, 5.0)


async def test_one_with_a_draft_finds_it_where_the_store_is_mounted(tmp_path: Path) -> None:
    vllm()
    source, (port,) = tiny(tmp_path / "model"), free_ports(1)
    cut(source, tmp_path / "draft", 1)
    asked = container(replace(SETTINGS, speculative_tokens=2, draft="small"))
    (mount,) = (one for one in asked["volumeMounts"] if one.get("subPath", "").endswith("/draft"))
    asked["args"] = [word.replace(mount["mountPath"], str(tmp_path / "draft")) for word in asked["args"]]
    async with (started(*here(asked, source, tmp_path, port), tmp_path, port), ProbeClient(deadline=120) as prober,
                httpx.AsyncClient(trust_env=False, timeout=60) as client):
        await prober.complete(HOST, "chat", make_prompt(1), port)
        found = speculated("", (await client.get(f"http://{HOST}:{port}/metrics")).text)
    assert found is not None
    assert found.proposed == 2 * found.rounds > 0
    assert len(found.at) == 2


async def ready(replica: Replica) -> None:
    """As the readiness probe asks."""
    until = time.monotonic() + READY_SECONDS
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{replica.port}", trust_env=False) as client:
        while True:
            assert replica.child.returncode is None, replica.log.read_text()[-4000:]
            try:
                if (await client.get(VLLM.ready_path, timeout=5)).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                assert time.monotonic() < until, replica.log.read_text()[-4000:]
            await asyncio.sleep(0.5)


async def test_the_operator_probes_it_and_reads_what_it_counts(replica: Replica) -> None:
    async with ProbeClient(deadline=120) as prober, TritonClient(deadline=30) as scraper:
        before = await scraper.scrape_vllm(HOST, replica.port)
        assert (before.queued, before.answered) == (0.0, 0.0)
        for seed in range(3):
            await prober.complete(HOST, "chat", make_prompt(seed), replica.port)
        with pytest.raises(ProbeError):
            await prober.complete(HOST, "another", make_prompt(0), replica.port)
        after = await scraper.scrape_vllm(HOST, replica.port)
    assert (after.queued, after.answered, after.broken) == (0.0, 3.0, 0.0)
    assert after.pending.keys() == after.successes.keys() == {"chat"}
    assert 0 < after.busy < 120e6


async def test_each_answer_ends_its_connection(replica: Replica) -> None:
    """So that no client keeps a replica that is about to end."""
    asked = {"model": "chat", "prompt": "one", "max_tokens": 4, "ignore_eos": True}
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{replica.port}", trust_env=False, timeout=120) as client:
        whole = await client.post("/v1/completions", json=asked)
        async with client.stream("POST", "/v1/completions", json={**asked, "stream": True}) as streamed:
            lines = [line async for line in streamed.aiter_lines() if line]
        refused = await client.post("/v1/completions", json={**asked, "model": "another"})
    assert (whole.status_code, refused.status_code, lines[-1]) == (200, 404, "data: [DONE]")
    assert {answer.headers["connection"] for answer in (whole, streamed, refused)} == {"close"}


async def test_the_container_beside_it_asks_it_the_builds_prompts(replica: Replica, tmp_path: Path) -> None:
    """With the words that the operator writes, but for folder and ports of this machine."""
    children = children_of("chat", {"source": {"uri": "pvc://models/tiny"}, "placement": {"accelerator": "cpu"},
                                    "quality": {"sampleShare": 1, "maxSamplesPerMinute": 600}})
    proven = replace(children.record, outcome=built_language_model(children.fingerprint))
    pod = deployment(children.owner, children.spec, proven, children.placement,
                     children.config)["spec"]["template"]["spec"]
    (asked,) = (one for one in pod["containers"] if one["name"] == labels.CONTAINER_QUALITY)
    assert {one["name"] for one in asked["volumeMounts"]} <= {one["name"] for one in pod["volumes"]}
    async with Client(f"http://{HOST}:{replica.port}", model="chat") as client, QualityClient(deadline=30) as reader:
        records = await record(client, [({"role": "user", "content": text},) for text in ("one", "two", "three")], 4,
                               concurrency=1)
        scored = [score(one, one.steps) for one in records]
        keep_prompts(tmp_path, records, scored, 0.05)
        (port,) = free_ports(1)
        places = {quality.REFERENCE_PATH: str(tmp_path / REFERENCE_FOLDER),
                  f"--port={labels.QUALITY_PORT}": f"--port={port}",
                  f"--server-port={labels.HTTP_PORT}": f"--server-port={replica.port}"}
        assert places.keys() <= set(asked["args"])
        child = await asyncio.create_subprocess_exec(
            sys.executable, *asked["command"][1:], *(places.get(word, word) for word in asked["args"]),
            start_new_session=True)

        async def answered() -> QualityReport:
            """Questions follow live requests."""
            await client.decode((1, 2, 3), 1)
            try:
                report = await reader.report(HOST, port)
            except ClientError as error:
                raise AssertionError(error) from error
            assert report.samples, report
            return report

        try:
            report = await eventually(answered, patience=300)
        finally:
            await process.end(child, 5.0)
    assert report.problem == ""
    assert report.total == report.samples


async def test_it_counts_the_tokens_that_scaling_goes_by(replica: Replica) -> None:
    """Prompts count with what the prefix cache answered of them."""
    asked = {"model": "chat", "prompt": [5 + number % 20 for number in range(400)], "max_tokens": 8, "ignore_eos": True}
    async with TritonClient(deadline=30) as scraper, httpx.AsyncClient(trust_env=False, timeout=120) as client:
        seen = [await scraper.scrape_vllm(HOST, replica.port)]
        for _ in range(2):
            answer = await client.post(f"http://{HOST}:{replica.port}/v1/completions", json=asked)
            assert answer.status_code == httpx.codes.OK, answer.text
            seen.append(await scraper.scrape_vllm(HOST, replica.port))
    first, second = ((new.prompt_tokens - old.prompt_tokens, new.generated_tokens - old.generated_tokens,
                      new.cached_tokens - old.cached_tokens) for old, new in pairwise(seen))
    assert first[:2] == second[:2] == (400, 8)
    assert first[2] < second[2] < 400
    assert seen[-1].running == 0
    assert seen[-1].cache_used is not None


async def test_rules_and_dashboards_name_only_what_it_exports(replica: Replica) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        page = (await client.get(f"http://{HOST}:{replica.port}/metrics")).text
    named = re.compile(r"vllm:[a-z_]+")
    texts = [text for _, text in expressions("vllm:", {})] + [RULES.read_text()]
    asked = {name for text in texts for name in named.findall(text)}
    assert len(asked) > 12
    assert asked <= set(re.findall(r"^vllm:[a-z_]+", page, re.MULTILINE))


async def test_an_alarm_says_that_its_tokens_are_late(replica: Replica, tmp_path: Path) -> None:
    """The objective is one that no server keeps. A rate needs two readings with requests between them."""
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)
    exposed.remember(Key("models", "chat"), {}, {"objective": {"tokens": {"ttftMilliseconds": 0.001}}})
    scraped = {"targets": [f"{HOST}:{replica.port}"],
               "labels": {"namespace": "models", "optimisedmodel": "chat", "pod": "a"}}
    async with (serving(metrics_app(registry), 0) as ours,
                running(tmp_path, [scraped, {"targets": [f"{HOST}:{ours}"]}], [at_once(tmp_path)]) as url,
                ProbeClient(deadline=120) as prober, httpx.AsyncClient(trust_env=False) as http):
        async def it_fires() -> bool:
            await prober.complete(HOST, "chat", make_prompt(time.monotonic_ns() % 1000), replica.port)
            return ("TokensLate", "chat") in await fired(http, url)

        await eventually(it_fires)


async def test_the_activator_passes_its_stream_on_token_by_token(replica: Replica) -> None:
    options = Options(backend=HOST, backend_http=replica.port, backend_grpc=replica.port, host=HOST, http_port=0,
                      grpc_port=0, metrics_port=0, live_path=VLLM.live_path, ready_path=VLLM.ready_path)
    asked = {"model": "chat", "prompt": "one", "max_tokens": 16, "ignore_eos": True, "stream": True}
    async with activator(options) as found, httpx.AsyncClient(trust_env=False, timeout=120) as client:
        url = f"http://{HOST}:{found.http_port}/v1/completions"
        async with client.stream("POST", url, json=asked) as answer:
            lines = [line async for line in answer.aiter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert sum(bool(json.loads(line.removeprefix("data: "))["choices"]) for line in lines[:-1]) > 1


async def test_the_operator_reads_how_answers_begin_and_end(replica: Replica) -> None:
    """Beside those that end, one that its client leaves after its first tokens. A busy machine may end it before the
    server sees that, so that some more are left."""
    async with ProbeClient(deadline=120) as prober, TritonClient(deadline=30) as scraper:
        before = await tokens_of(scraper, replica)
        found = Tokens()
        for seed in range(20):
            if found.gone:
                break
            await leave(replica)
            # Gauges are written with a step of the engine.
            await prober.complete(HOST, "chat", make_prompt(9 + seed), replica.port)
            now = (await tokens_of(scraper, replica)).known_after(before)
            found = now.since(before)
    assert found.gone == 1.0
    assert found.begun == found.ended + found.gone
    assert found.cut == found.ended == found.paced >= 1.0
    assert found.generated >= TOKENS * found.cut
    assert found.pace > 0
    assert found.waited > 0
    assert now.begun_within[math.inf] == now.begun
    assert now.paced_within[math.inf] == now.ended
    assert len(now.begun_within) > 10


async def leave(replica: Replica) -> None:
    asked = {"model": "chat", "prompt": "one", "max_tokens": 500, "ignore_eos": True, "stream": True}
    async with (httpx.AsyncClient(base_url=f"http://{HOST}:{replica.port}", trust_env=False, timeout=120) as client,
                client.stream("POST", "/v1/completions", json=asked) as got):
        await anext(got.aiter_lines())


async def tokens_of(scraper: TritonClient, replica: Replica) -> Tokens:
    found = (await scraper.scrape_vllm(HOST, replica.port)).tokens
    assert found is not None
    return found


async def test_a_stream_that_runs_when_it_is_told_to_stop_is_answered_to_its_end(replica: Replica) -> None:
    asked = {"model": "chat", "prompt": "one", "max_tokens": 200, "ignore_eos": True, "stream": True}
    url = f"http://{HOST}:{replica.port}/v1/completions"
    tokens, stopping, done = 0, False, False
    async with httpx.AsyncClient(trust_env=False, timeout=120) as client, client.stream("POST", url, json=asked) as got:
        assert got.status_code == httpx.codes.OK
        async for line in got.aiter_lines():
            if line == "data: [DONE]":
                done = True
            elif line.startswith("data: "):
                tokens += bool(json.loads(line.removeprefix("data: "))["choices"])
            if tokens and not stopping:
                stopping = True
                replica.child.send_signal(signal.SIGTERM)
    assert done, replica.log.read_text()[-4000:]
    assert tokens > 100
    assert await asyncio.wait_for(replica.child.wait(), 600) == 0, replica.log.read_text()[-4000:]

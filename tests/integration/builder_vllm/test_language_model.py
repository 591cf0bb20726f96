"""A real vLLM with SmolLM2: its process, its streams, the reference's text through the served path, and what the gate
says of models that were broken on purpose. One server for all, which takes minutes to be ready on a loaded machine."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from enginewright.clients.errors import ClientError
from enginewright.clients.quality import QualityClient
from enginewright.core.quality import LEAST_SAMPLES, find
from enginewright.core.servers.vllm import VLLM
from enginewright_builder.contract import REFERENCE_FOLDER, QualityReport
from enginewright_builder.generate import smoke_record
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.figures import figures
from enginewright_builder.generate.gate import Record, Scored, check_floor, check_words, judge, score
from enginewright_builder.generate.kept_prompts import keep_prompts
from enginewright_builder.generate.load import closed_loop
from enginewright_builder.generate.prompts import Lengths, made_up
from enginewright_builder.generate.server import LOGPROBS, SERVED_NAME, VllmServer
from enginewright_builder.generate.teacher import hold, record, words
from enginewright_builder.pod import smoke
from enginewright_builder.running import Running
from enginewright_builder.sources.causal import locate_causal
from enginewright_builder.triton import process
from enginewright_builder.triton.ports import HOST, free_ports
from support.apiserver import eventually
from support.language_model import smollm2, vllm
from support.warm_vllm import Forks, WarmVllm

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200), pytest.mark.asyncio(loop_scope="module")]

# As many prompts as prove this.
TOLERANCE, PROMPTS, TOKENS = 0.15, 20, 8
# One thread: with more than there are free cores, each step waits for the last of them.
SETTINGS = ServerArguments(dtype="float32", max_model_len=1024, max_num_seqs=16, cache_gib=1, threads=1,
                           enforce_eager=True)
TOPICS = ("the sea", "bread", "a river", "winter", "music", "the moon", "glass", "a bridge", "salt", "paper", "iron",
          "a garden", "sleep", "maps", "bees", "rain", "clocks", "a harbour", "wool", "light")


def asked() -> list[tuple[dict[str, str], ...]]:
    return [({"role": "user", "content": f"Write one sentence about {topic}."},) for topic in TOPICS]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmServer]:
    vllm()
    with Forks(tmp_path_factory.mktemp("forks")) as forks:
        async with WarmVllm(smollm2(), SETTINGS, forks=forks, ready_seconds=900) as running:
            yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def records(server: VllmServer) -> list[Record]:
    async with Client(server.http_url) as client:
        return await record(client, asked(), TOKENS, concurrency=10)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def floor(server: VllmServer, records: list[Record]) -> list[Scored]:
    """The server against itself, with fewer requests in parallel."""
    async with Client(server.http_url) as client:
        held = await hold(client, records, concurrency=4)
    return [score(one, steps) for one, steps in zip(records, held, strict=True)]


async def test_the_server_says_what_it_is(server: VllmServer) -> None:
    running: Running = server
    assert running.version
    assert running.start_seconds > 0
    assert await running.memory_bytes() > 500 << 20
    page, names = await running.metrics(), VLLM.metrics
    for name in (names.pending, names.successes, names.busy, names.queued_for):
        assert re.search(rf'^{name}{{[^}}]*{names.model_label}="[^}}]*}} ', page, re.MULTILINE), name


async def test_chat_streams_and_is_counted(server: VllmServer) -> None:
    async with Client(server.http_url) as client:
        answer = await client.stream(Ask(prompt=({"role": "user", "content": "Say hello."},), max_tokens=6, chat=True))
        refused = await client.stream(Ask(prompt=tuple([1000] * 2000), max_tokens=4))
    assert answer.error == ""
    assert answer.output_tokens == sum(one.tokens for one in answer.arrivals) == 6
    assert answer.prompt_tokens > 10
    assert answer.text.strip()
    assert refused.error.startswith("HTTP 400")


async def test_load_has_the_lengths_that_are_asked_for(server: VllmServer) -> None:
    async with Client(server.http_url) as client:
        answers = await closed_loop(client, made_up(Lengths(input_tokens=12, output_tokens=4), 49152), concurrency=3,
                                    requests=6)
    found = figures(answers, begin=min(one.due for one in answers), end=max(one.end for one in answers))
    assert (found.requests, found.failed, found.finishes) == (6, 0, {"length": 6})
    assert (found.input_tokens, found.output_tokens) == (72, 24)
    assert found.ttft_ms.p50 > 0


async def test_the_reference_agrees_with_itself(floor: list[Scored]) -> None:
    check_floor(floor, TOLERANCE)
    assert judge(floor, floor, TOLERANCE).passed


async def test_it_reads_and_writes_as_the_reference_does(server: VllmServer, records: list[Record]) -> None:
    async with Client(server.http_url) as client:
        read = await words(client, asked(), records)
    assert check_words([one.prompt for one in records], read.prompts, read.texts, read.texts) == ""


async def test_the_start_up_test_passes_on_what_was_recorded_and_on_nothing_else(
        server: VllmServer, records: list[Record], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with Client(server.http_url) as client:
        held = await hold(client, records, concurrency=4)
    places = smoke_record.asked(records, held)
    measured = smoke_record.kept(records, held, places)
    file, port = tmp_path / "smoke.json", server.http_url.rpartition(":")[2]
    words = [f"--model={SERVED_NAME}", f"--data={file}", f"--port={port}", "--ready=/health", "--server-pid=0"]
    file.write_text(smoke_record.smoke_file(records, places, measured))
    assert await asyncio.to_thread(smoke.main, words) == 0
    assert "tokens are the unquantised model's" in capsys.readouterr().out
    # As if another model were served: what is recorded of each prompt is another one's answer.
    others = [Record(prompt=one.prompt, steps=(Step(token=0, top={0: -0.1}),) * TOKENS) for one in records]
    file.write_text(smoke_record.smoke_file(others, places, measured))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smoke, "end", lambda message, pid: None)
        assert await asyncio.to_thread(smoke.main, words) == 1
    assert "smoke test failed: 0 of" in capsys.readouterr().out


def monitor(folder: Path, port: int, server: VllmServer) -> list[str]:
    return [sys.executable, "-m", "enginewright_builder.quality", "generate", str(folder), f"--model={SERVED_NAME}",
            "--share=1", "--per-minute=600", "--window=100", f"--port={port}",
            f"--server-port={server.http_url.rpartition(':')[2]}"]


async def test_its_monitor_finds_that_it_answers_as_it_was_proven_to_and_that_another_model_would_not(
        server: VllmServer, records: list[Record], floor: list[Scored], tmp_path: Path) -> None:
    """Two monitors of one server: one asks what was recorded, the other as if another model had been recorded."""
    others = [Record(prompt=one.prompt, steps=(Step(token=0, top={}),)) for one in records]
    reports: dict[str, QualityReport] = {}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(Client(server.http_url))
        reader = await stack.enter_async_context(QualityClient(deadline=30))
        ports = dict(zip(("sound", "other"), free_ports(2), strict=True))
        for name, of in (("sound", records), ("other", others)):
            keep_prompts(tmp_path / name, of, floor, TOLERANCE)
            child = await asyncio.create_subprocess_exec(
                *monitor(tmp_path / name / REFERENCE_FOLDER, ports[name], server), start_new_session=True)
            stack.push_async_callback(process.end, child, 5.0)

        async def enough() -> bool:
            """Questions follow live requests."""
            await http.decode((1, 2, 3), 1)
            for name, port in ports.items():
                with suppress(ClientError):
                    reports[name] = await reader.report(HOST, port)
            assert len(reports) == 2, reports
            assert all(one.samples >= LEAST_SAMPLES for one in reports.values()), reports
            return True

        await eventually(enough, patience=900)
    assert reports["sound"].problem == reports["other"].problem == ""
    found = find(reports)
    assert found is not None
    assert found.worst == "other"
    alone = find({"one": reports["sound"]})
    assert alone is not None
    assert alone.agreement.mean >= alone.required
    assert not alone.drifted


# What a broken configuration would answer is computed by transformers, in one pass over the reference's text: to start
# a server for each would take minutes. That both agree on the sound model is a test of its own.

Model = Any


def taken_through(model: Model, records: Sequence[Record]) -> list[Scored]:
    """All texts in one call: what fills the shorter ones up lies behind them, where a causal model does not look."""
    import torch

    texts = [[*one.prompt, *(step.token for step in one.steps)] for one in records]
    longest = max(map(len, texts))
    with torch.inference_mode():
        logits = model(torch.tensor([text + [0] * (longest - len(text)) for text in texts])).logits
    return [score(one, _steps(rows[len(one.prompt) - 1:len(text) - 1]))
            for one, text, rows in zip(records, texts, logits, strict=True)]


def _steps(logits: Any) -> list[Step]:
    values, names = logits.log_softmax(dim=-1).topk(LOGPROBS)
    return [Step(token=int(tokens[0]), top=dict(zip(tokens.tolist(), likely.tolist(), strict=True)))
            for tokens, likely in zip(names, values, strict=True)]


@pytest.fixture
def model() -> Model:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_pretrained(smollm2(), dtype=torch.float32)


async def test_transformers_is_as_good_as_the_reference(model: Model, records: list[Record],
                                                        floor: list[Scored]) -> None:
    found = judge(floor, await asyncio.to_thread(taken_through, model, records), TOLERANCE)
    assert found.passed, found.reason
    assert found.disagreement.value <= 0.01
    assert found.divergence.value <= 0.001


def wrong_scale(model: Model) -> None:
    """As of a quantised weight whose scale was stored for another layer."""
    model.model.layers[3].mlp.down_proj.weight.data *= 4


def scale_of_the_cache(model: Model) -> None:
    """Keys come back from the cache at a quarter of their size in every layer."""
    for layer in model.model.layers:
        layer.self_attn.k_proj.weight.data *= 0.25


def swapped_layers(model: Model) -> None:
    layers = model.model.layers
    layers[2].mlp, layers[20].mlp = layers[20].mlp, layers[2].mlp


def two_bits(model: Model) -> None:
    """Weights rounded to four values in each row."""
    for layer in model.model.layers:
        weight = layer.mlp.gate_proj.weight.data
        step = weight.abs().amax(dim=1, keepdim=True) / 1.5
        weight.copy_(((weight / step - 0.5).round().clamp(-2, 1) + 0.5) * step)


@pytest.mark.parametrize("sabotage", [wrong_scale, scale_of_the_cache, swapped_layers, two_bits])
async def test_a_broken_model_is_refused(sabotage: Callable[[Model], None], model: Model, records: list[Record],
                                         floor: list[Scored]) -> None:
    sabotage(model)
    found = judge(floor, await asyncio.to_thread(taken_through, model, records), TOLERANCE)
    assert not found.passed, found


async def test_another_template_or_tokeniser_is_refused(records: list[Record], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    def read(folder: Path) -> tuple[list[tuple[int, ...]], list[str]]:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        prompts = [tuple(tokenizer.apply_chat_template(list(one), add_generation_prompt=True, return_dict=False))
                   for one in asked()]
        return prompts, [str(tokenizer.decode([step.token for step in one.steps])) for one in records]

    def copied(name: str) -> Path:
        return Path(shutil.copytree(smollm2(), tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors")))

    prompts, texts = read(smollm2())
    assert check_words([one.prompt for one in records], prompts, texts, texts) == ""
    other = copied("template")
    template = other / "chat_template.jinja"
    template.write_text(template.read_text().replace("You are a helpful", "You are another"))
    assert "its tokeniser or chat template differs" in check_words(prompts, read(other)[0], texts, texts)
    short = copied("tokeniser")
    settings = json.loads((short / "tokenizer.json").read_text())
    settings["model"]["merges"] = settings["model"]["merges"][:2000]
    (short / "tokenizer.json").write_text(json.dumps(settings))
    assert "its tokeniser or chat template differs" in check_words(prompts, read(short)[0], texts, texts)


async def test_smollm2_is_a_causal_model() -> None:
    found = locate_causal(smollm2())
    assert (found.architecture, found.vocabulary, found.context) == ("LlamaForCausalLM", 49152, 8192)
    assert found.chat

"""``python -m enginewright_builder.generate`` against a fake server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.generate.__main__ import EXIT_USAGE, cut_streams, main
from enginewright_builder.generate.answer import CUT, Answer, Arrival
from support.fake_openai import FakeOpenAI, fake_openai

MODULE = "enginewright_builder.generate"


def always_two(_: Sequence[int]) -> dict[int, float]:
    return {2: -0.1, 3: -2.5}


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "ab", "max_tokens": 3}\n{"messages": [{"role": "user", "content": "c"}]}\n')
    return file


async def load(fake: FakeOpenAI, prompts: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", MODULE, "--url", fake.url, "--model", "m", "--jsonl", str(prompts), "--json", *words,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


async def printed(process: asyncio.subprocess.Process) -> dict[str, Any]:
    out, _ = await process.communicate()
    assert process.returncode == 0
    return dict(json.loads(out))


async def test_asked_to_stop_it_answers_what_is_in_flight_and_reports(prompts: Path) -> None:
    gate = asyncio.Event()
    async with fake_openai(always_two, gate=gate, expects=2) as fake:
        process = await load(fake, prompts, "--closed", "2", "--seconds", "600")
        await fake.full.wait()
        process.send_signal(signal.SIGTERM)
        gate.set()
        found = await printed(process)
    assert (found["failed"], found["cut_streams"]) == (0, 0)
    assert found["requests"] >= 2
    assert found["ttft_ms"]["p50"] > 0
    assert {one["model"] for one in fake.seen} == {"m"}
    assert len({one["cache_salt"] for one in fake.seen}) == len(fake.seen), "a prefix cache would answer"


async def test_a_rate_ends_by_itself_and_what_is_cut_is_counted(prompts: Path) -> None:
    async with fake_openai(always_two, trouble="cut") as fake:
        found = await printed(await load(fake, prompts, "--rate", "50", "--seconds", "0.3"))
    assert found["cut_streams"] == found["failed"] == len(fake.seen) > 0
    assert sum(found["errors"].values()) == found["failed"]
    assert set(found["messages"]) == set(found["errors"])


async def test_each_failure_is_told_with_its_time_and_how_far_it_came(prompts: Path) -> None:
    async with fake_openai(always_two, trouble="event") as fake:
        found = await printed(await load(fake, prompts, "--rate", "50", "--seconds", "0.3", "--exact"))
    assert all(one["ignore_eos"] for one in fake.seen)
    assert len(found["failures"]) == found["failed"] > 0
    for one in found["failures"]:
        assert (one["tokens"], one["error"]) == (1, "InternalServerError: the engine is gone")
        assert 0 <= one["sent_seconds"] <= one["after_seconds"]


def test_a_stream_is_cut_once_a_token_came() -> None:
    came = (Arrival(1.0, 1),)
    answers = [Answer(due=0, end=2, arrivals=came, finish="stop"),
               Answer(due=0, end=2, arrivals=came, error="ReadError"),
               Answer(due=0, end=2, error=CUT), Answer(due=0, end=2, error="HTTP 503: it is stopping")]
    assert cut_streams(answers) == 2


def test_prompts_that_are_none_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"text": "ab"}\n')
    assert main(["--url", "http://127.0.0.1:1", "--model", "m", "--jsonl", str(file), "--closed", "1"]) == EXIT_USAGE
    assert "line 1 has not just one of prompt and messages" in capsys.readouterr().err

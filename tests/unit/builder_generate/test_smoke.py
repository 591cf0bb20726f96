"""The start-up test of a language model's replicas: what is recorded, and what the program in the pod says of servers
that answer as recorded and of others."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.gate import Record
from enginewright_builder.generate.smoke_record import PROMPTS, TOKENS, asked, kept, smoke_file
from enginewright_builder.pod import smoke
from enginewright_builder.pod.smoke import leading
from support.fake_openai import Model, fake_openai


def counting(tokens: Sequence[int]) -> dict[int, float]:
    return {len(tokens): -0.1, len(tokens) + 1: -2.5}


def other(tokens: Sequence[int]) -> dict[int, float]:
    return {len(tokens) + 1: -0.1, len(tokens): -2.5}


def other_soon(tokens: Sequence[int]) -> dict[int, float]:
    """Of prompts up to 8 tokens the first 4 tokens are those of ``counting``."""
    return counting(tokens) if len(tokens) < 8 else other(tokens)


def steps(*tokens: int) -> tuple[Step, ...]:
    return tuple(Step(token=token, top={token: -0.1}) for token in tokens)


def recorded(length: int, answer: int = TOKENS) -> Record:
    return Record(prompt=tuple(range(length)), steps=steps(*range(length, length + answer)))


def test_leading() -> None:
    assert leading([1, 2, 3], [1, 2, 4]) == 2
    assert leading([1, 2], [1, 2, 3]) == 2
    assert leading([], [1]) == leading([2], [1]) == 0


def test_the_shortest_prompts_are_sent_of_which_the_answer_began_as_the_unquantised_models() -> None:
    records = [recorded(length) for length in (90, 5, 80, 4, *range(10, 20))]
    held = [list(one.steps) for one in records]
    assert asked(records, held) == [1, 3, *range(4, 4 + PROMPTS - 2)]
    held[3] = [*steps(99), *held[3][1:]]
    assert asked(records, held) == [1, *range(4, 4 + PROMPTS - 1)]


def test_what_is_kept_is_counted_to_the_first_other_token() -> None:
    records = [recorded(3), recorded(4, answer=2), recorded(5)]
    held = [steps(3, 4, 99, 6), steps(4, 5), steps(99)]
    assert kept(records, held, [0, 1, 2]) == 2 + 2 + 0
    assert kept(records, held, [0]) == 2
    assert kept(records, [one.steps for one in records], [0, 1, 2]) == TOKENS + 2 + TOKENS


async def said(model: Model, measured: int, folder: Path, trouble: str = "") -> tuple[int, str]:
    """Exit status of the program, and its termination message. Unless it is content, it ends the server, in whose place
    there is a process that only waits."""
    (folder / "smoke.json").write_text(smoke_file([recorded(length) for length in (4, 4, 4)], [0, 1, 2], measured))
    message = folder / "message"
    message.write_text("")
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    try:
        async with fake_openai(model, trouble=trouble) as fake:
            program = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", smoke.__file__, "--model=m", f"--data={folder / 'smoke.json'}",
                "--ready=/health", f"--port={fake.url.rpartition(':')[2]}", f"--server-pid={server.pid}",
                env={"TERMINATION_LOG": str(message)}, stdout=asyncio.subprocess.DEVNULL)
            if status := await program.wait():
                assert await server.wait() == -signal.SIGTERM
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
    return status, message.read_text()


@pytest.mark.parametrize(("model", "measured"), [(counting, 3 * TOKENS), (other_soon, 3 * TOKENS)])
async def test_a_server_that_chooses_enough_of_the_recorded_tokens_passes(model: Model, measured: int,
                                                                          tmp_path: Path) -> None:
    assert await said(model, measured, tmp_path) == (0, "")


async def test_a_server_that_chooses_others_is_ended(tmp_path: Path) -> None:
    assert await said(other, 20, tmp_path) == (
        1, "smoke test failed: 0 of 24 tokens are the unquantised model's; 20 were when this configuration was proven, "
           "and 10 are asked for")


async def test_one_token_is_asked_for_at_least(tmp_path: Path) -> None:
    status, message = await said(other, 1, tmp_path)
    assert status == 1
    assert message.endswith("and 1 are asked for")


def test_what_no_server_could_pass_is_not_written() -> None:
    with pytest.raises(ValueError, match="itself chose no token"):
        smoke_file([recorded(4)], [], 0)


async def test_a_server_that_refuses_is_ended(tmp_path: Path) -> None:
    status, message = await said(counting, 24, tmp_path, trouble="refused")
    assert status == 1
    assert message.startswith("smoke test failed: a prompt of 4 tokens got status 503")

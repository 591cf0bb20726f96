"""The client, both loops and the figures, against a fake server; prompts and lengths."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.generate.answer import Answer, Arrival
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.figures import Objective, figures
from enginewright_builder.generate.load import closed_loop, open_loop
from enginewright_builder.generate.prompts import Lengths, made_up, read_prompts
from support.fake_openai import fake_openai


def counting(tokens: Sequence[int]) -> dict[int, float]:
    """The next token is the number of those so far."""
    return {len(tokens): -0.1, len(tokens) + 1: -2.5}


async def test_a_text_is_streamed_and_counted() -> None:
    async with fake_openai(counting) as fake, Client(fake.url) as client:
        answer = await client.stream(Ask(prompt="ab", max_tokens=3, exact=True))
    assert (answer.error, answer.text, answer.finish) == ("", "<2><3><4>", "length")
    assert (answer.prompt_tokens, answer.output_tokens, len(answer.arrivals)) == (2, 3, 3)
    assert fake.seen[0]["ignore_eos"] is True
    assert fake.seen[0]["temperature"] == 0.0


async def test_messages_go_to_chat() -> None:
    async with fake_openai(counting) as fake, Client(fake.url) as client:
        answer = await client.stream(Ask(prompt=({"role": "user", "content": "abc"},), max_tokens=2, chat=True))
    assert (answer.error, answer.text, answer.output_tokens) == ("", "<3><4>", 2)
    assert "ignore_eos" not in fake.seen[0]


@pytest.mark.parametrize(("trouble", "error"), [
    ("event", "InternalServerError: the engine is gone"), ("refused", "HTTP 503: Unavailable: it is stopping"),
    ("cut", "RemoteProtocolError")])
async def test_what_goes_wrong_is_the_answers_error(trouble: str, error: str) -> None:
    async with fake_openai(counting, trouble=trouble) as fake, Client(fake.url) as client:
        answer = await client.stream(Ask(prompt="ab", max_tokens=3))
    assert answer.error in (error, "ReadError")
    assert len(answer.arrivals) == (0 if trouble == "refused" else 1)


@pytest.mark.parametrize("said", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"[" * 100_000,
                                  b'{"tokens": [[1]], "choices": [{"token_ids": 7, "logprobs": {"tokens": [1]}}]}'])
async def test_what_another_server_answers_is_refused_by_name(said: bytes) -> None:
    async with fake_openai(counting, other=said) as fake, Client(fake.url) as client:
        for asked in (client.tokens("a"), client.text([1]), client.decode([1], 1), client.choose([1], 1, "")):
            with pytest.raises(UserError, match="it answered otherwise than vLLM") as caught:
                await asked
            assert caught.value.reason == "ServerRefused"


async def test_nobody_there_is_an_error_of_a_stream_and_is_raised_elsewhere() -> None:
    async with Client("http://127.0.0.1:1") as client:
        assert (await client.stream(Ask(prompt="a", max_tokens=1))).error == "ConnectError"
        with pytest.raises(TransientError, match="does not answer /tokenize"):
            await client.tokens("a")


async def test_a_server_that_refuses_to_decode_is_named() -> None:
    async with fake_openai(counting, trouble="refused") as fake, Client(fake.url) as client:
        with pytest.raises(UserError, match="HTTP 503: Unavailable: it is stopping") as caught:
            await client.decode([1, 2], 3)
    assert caught.value.reason == "ServerRefused"


async def test_a_closed_loop_keeps_its_number_in_flight() -> None:
    gate = asyncio.Event()
    async with fake_openai(counting, gate=gate, expects=3) as fake, Client(fake.url) as client:
        running = asyncio.create_task(closed_loop(
            client, itertools.repeat(Ask(prompt="a", max_tokens=2)), concurrency=3, requests=8))
        await fake.full.wait()
        gate.set()
        answers = await running
    assert len(answers) == 8
    assert {one.error for one in answers} == {""}
    assert fake.most == 3


async def test_a_closed_loop_ends_with_its_prompts() -> None:
    async with fake_openai(counting) as fake, Client(fake.url) as client:
        answers = await closed_loop(client, [Ask(prompt="a", max_tokens=1)] * 2, concurrency=4, requests=100)
    assert len(answers) == 2


async def test_an_open_loop_sends_whatever_the_server_does_and_says_what_it_did_not_send() -> None:
    gate = asyncio.Event()
    async with fake_openai(counting, gate=gate, expects=3) as fake, Client(fake.url) as client:
        running = asyncio.create_task(open_loop(
            client, itertools.repeat(Ask(prompt="a", max_tokens=2)), [0.0] * 5 + [9.0], seconds=1.0,
            max_outstanding=3))
        await fake.full.wait()
        gate.set()
        answers = await running
    assert sorted(one.error for one in answers) == ["", "", "", "NotSent", "NotSent"]


def answered(due: float, *times: float, error: str = "") -> Answer:
    return Answer(due=due, end=times[-1] if times else due + 1, arrivals=tuple(Arrival(one, 1) for one in times),
                  prompt_tokens=10, output_tokens=len(times), finish="" if error else "stop", error=error)


def test_figures_of_a_window() -> None:
    answers = [answered(0.0, 0.1, 0.2, 0.3), answered(1.0, 1.5, 1.6), answered(2.0, 2.1, 3.1),
               answered(3.0, error="Gone: 7"), answered(3.5, error="Gone: 8"), answered(99.0, 99.1)]
    found = figures(answers, begin=0.0, end=10.0, objective=Objective(ttft_ms=200, tpot_ms=500))
    assert (found.requests, found.failed, found.errors) == (5, 2, {"Gone": 2})
    assert found.finishes == {"stop": 3}
    assert found.ttft_ms.p50 == pytest.approx(100)
    assert found.ttft_ms.p99 == pytest.approx(500)
    assert found.tpot_ms.p99 == pytest.approx(1000)
    assert (found.input_tokens, found.output_tokens) == (30, 7)
    assert found.output_rate == pytest.approx(0.7)
    assert found.request_rate == pytest.approx(0.3)
    # The second is late with its first token, the third with the next.
    assert found.goodput == pytest.approx(0.1)
    assert found.within == pytest.approx(0.2)


def test_tokens_of_a_request_that_failed_count_for_nothing() -> None:
    found = figures([answered(0.0, 0.1, 0.2, error="cut"), answered(1.0, 1.1)], begin=0.0, end=10.0)
    assert found.output_rate == pytest.approx(0.1)
    assert (found.requests, found.failed, found.output_tokens) == (2, 1, 1)


def test_figures_of_nothing_are_zero() -> None:
    found = figures([], begin=0.0, end=1.0)
    assert (found.requests, found.ttft_ms.p99, found.goodput, found.within) == (0, 0.0, 0.0, 0.0)


@given(some.lists(some.tuples(some.floats(0, 9), some.lists(some.floats(0.001, 5), max_size=5), some.booleans()),
                  max_size=8), some.floats(1, 3000), some.floats(1, 3000))
def test_goodput_is_never_more_than_what_succeeds_and_falls_with_the_objective(
        calls: list[tuple[float, list[float], bool]], ttft: float, tpot: float) -> None:
    answers = [answered(due, *itertools.accumulate(gaps, initial=due + 0.1), error="x" if bad else "")
               for due, gaps, bad in calls]
    strict = figures(answers, begin=0.0, end=10.0, objective=Objective(ttft_ms=ttft, tpot_ms=tpot))
    loose = figures(answers, begin=0.0, end=10.0, objective=Objective(ttft_ms=ttft * 2, tpot_ms=tpot * 2))
    whole = figures(answers, begin=0.0, end=10.0)
    assert strict.goodput <= loose.goodput <= whole.goodput
    assert whole.goodput == pytest.approx((len(answers) - whole.failed) / 10)


def test_made_up_prompts_are_all_different_and_the_same_for_a_seed() -> None:
    lengths = Lengths(input_tokens=40, output_tokens=20, spread=0.5, longest=100)
    first, again = (list(itertools.islice(made_up(lengths, 1000, seed=3), 50)) for _ in range(2))
    assert first == again
    assert len({one.prompt for one in first}) == 50
    assert all(isinstance(token, int) and 500 <= token < 1000 for one in first for token in one.prompt)
    assert all(one.exact for one in first)


@given(some.integers(1, 2000), some.floats(0, 3))
def test_no_length_is_beyond_the_longest(mean: int, spread: float) -> None:
    lengths = Lengths(input_tokens=mean, output_tokens=mean, spread=spread, longest=2000).checked()
    assert all(1 <= one <= 2000 for one in lengths.drawn(random.Random(0)))


def test_the_mean_length_is_what_is_asked_for() -> None:
    generator = random.Random(1)
    lengths = Lengths(input_tokens=200, output_tokens=50, spread=0.6, longest=100_000)
    drawn = [lengths.drawn(generator) for _ in range(4000)]
    assert sum(one for one, _ in drawn) / len(drawn) == pytest.approx(200, rel=0.05)
    assert sum(one for _, one in drawn) / len(drawn) == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize("lengths", [
    Lengths(input_tokens=0, output_tokens=1), Lengths(input_tokens=1, output_tokens=9999),
    Lengths(input_tokens=1, output_tokens=1, spread=-1)])
def test_impossible_lengths_are_refused(lengths: Lengths) -> None:
    with pytest.raises(UserError) as caught:
        lengths.checked()
    assert caught.value.reason == "LengthsInvalid"


def test_prompts_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    messages = [{"role": "user", "content": "hi"}]
    file.write_text('{"prompt": "one", "max_tokens": 5}\n\n' + json.dumps({"messages": messages}) + "\n")
    assert read_prompts(file) == [Ask(prompt="one", max_tokens=5),
                                  Ask(prompt=tuple(messages), max_tokens=128, chat=True)]


@pytest.mark.parametrize(("text", "problem"), [
    ("", "it holds no prompt"), ("{", "line 1 is not JSON"), ("[]", "line 1 has not just one"),
    ('{"prompt": "a", "messages": []}', "not just one"), ('{"prompt": ""}', "prompt is not a text"),
    ('{"prompt": "a", "max_tokens": 0}', "max_tokens is 0"), ('{"messages": []}', "messages is not a list"),
    ('{"prompt": "a"}\n{"messages": [{"role": "user"}]}', "line 2: messages is not a list")])
def test_a_file_of_prompts_that_is_none_says_where(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match=problem) as caught:
        read_prompts(file)
    assert caught.value.reason == "PromptsInvalid"

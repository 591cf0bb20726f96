"""Streams of events become answers with times, and nothing that a server sends breaks the reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from enginewright_builder.generate.answer import Answer, Arrival, Reader, Step, steps


def read(*events: Any, begin: float = 0.0, expected: int = 0) -> Answer:
    """Each event a second after the one before."""
    reader, now = Reader(due=begin, expected=expected), begin
    for event in events:
        now += 1
        reader.line("data: " + (event if isinstance(event, str) else json.dumps(event)), now)
    return reader.answer(now)


def text(said: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"text": said, "finish_reason": finish, **more}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def test_times_run_from_when_it_was_due() -> None:
    answer = read(text("a"), text("b"), text("c", "stop"), USAGE, "[DONE]", begin=10.0)
    assert (answer.text, answer.finish, answer.error) == ("abc", "stop", "")
    assert (answer.prompt_tokens, answer.output_tokens) == (7, 3)
    assert answer.ttft_seconds == 1.0
    assert answer.tpot_seconds == 1.0
    assert answer.gaps_seconds == (1.0, 1.0)


def test_tokens_that_come_together_share_the_time() -> None:
    answer = read(text("a", token_ids=[1]), text("bcd", "length", token_ids=[2, 3, 4]), "[DONE]")
    assert answer.arrivals == (Arrival(1.0, 1), Arrival(2.0, 3))
    assert answer.tpot_seconds == pytest.approx(1 / 3)
    assert answer.tokens == (1, 2, 3, 4)
    assert answer.output_tokens == 4


def test_a_role_is_no_token() -> None:
    answer = read({"choices": [{"delta": {"role": "assistant", "content": ""}}]},
                  {"choices": [{"delta": {"content": "hi"}}]},
                  {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    assert answer.ttft_seconds == 2.0
    assert (answer.text, answer.output_tokens, answer.tpot_seconds) == ("hi", 1, None)


@pytest.mark.parametrize(("events", "error"), [
    ([text("a")], "Cut"),
    ([text("a"), "[DONE]"], "Cut"),
    ([text("a", "stop")], "Cut"),
    ([], "Cut"),
    ([text("a"), {"error": {"type": "Gone", "message": "it stops"}}, "[DONE]"], "Gone: it stops"),
    ([text("a"), {"error": "it stops"}], "it stops"),
    (["{", "[DONE]"], "Malformed: JSONDecodeError in '{'"),
    (["[1]"], "Malformed: TypeError in '[1]'"),
    ([{"usage": {}, "choices": [{"text": "a"}]}], "Cut"),
    ([{"choices": [{"delta": 3}]}], "Malformed: TypeError in '{\"choices\": [{\"delta\": 3}]}'")])
def test_a_stream_without_a_whole_answer_is_an_error(events: list[Any], error: str) -> None:
    assert read(*events).error == error


def test_an_answer_with_other_tokens_than_were_asked_for_is_an_error_though_it_ends_well() -> None:
    """What the server says of their number does not count: a chunk may have been lost on the way."""
    whole = text("ab", token_ids=[1, 2]), text("c", "length", token_ids=[3]), USAGE, "[DONE]"
    assert read(*whole, expected=3).error == ""
    assert read(*whole[1:], expected=3).error == "Short: 1 of 3 tokens"
    assert read(*whole[:1], expected=2).error == "Cut"
    assert read(*whole[1:]).error == ""


JSON = some.recursive(some.none() | some.booleans() | some.integers() | some.text(max_size=5),
                      lambda inner: some.lists(inner, max_size=3) | some.dictionaries(
                          some.sampled_from(["choices", "delta", "text", "usage", "error", "token_ids", "content",
                                             "prompt_tokens", "finish_reason"]), inner, max_size=4), max_leaves=8)


@given(some.lists(JSON | some.text(max_size=10).filter(lambda line: "\n" not in line), max_size=5))
def test_no_event_breaks_the_reader(events: list[Any]) -> None:
    reader = Reader(due=0.0)
    for event in events:
        reader.line(event if isinstance(event, str) else f"data: {json.dumps(event)}", 1.0)
    assert reader.answer(2.0).error


def test_steps_are_read_by_token() -> None:
    assert steps({"tokens": ["token_id:5"], "top_logprobs": [{"token_id:5": -0.1, "token_id:9": -3}]}) == [
        Step(token=5, top={5: -0.1, 9: -3.0})]


@pytest.mark.parametrize("logprobs", [
    {}, {"tokens": ["a"], "top_logprobs": [{}]}, {"tokens": ["token_id:x"], "top_logprobs": [{}]},
    {"tokens": ["token_id:1"], "top_logprobs": []}, {"tokens": ["token_id:1"], "top_logprobs": [None]}, None,
    {"tokens": ["token_id:1"], "top_logprobs": [{"token_id:1": float("nan")}]},
    {"tokens": ["token_id:1"], "top_logprobs": [{"token_id:1": float("-inf")}]}])
def test_what_is_no_log_probabilities_says_so(logprobs: Any) -> None:
    """Of what is no number the divergence would be 0, as of a perfect candidate."""
    with pytest.raises(ValueError, match=r"token|zip|int|log-probability"):
        steps(logprobs)

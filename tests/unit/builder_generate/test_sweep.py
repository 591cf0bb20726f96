"""What counts of a load, which settings are tried next, and what a request's time is spent on."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from enginewright_builder.generate.answer import Answer, Arrival
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.figures import Objective, figures
from enginewright_builder.generate.layers import layers
from enginewright_builder.generate.sweep import (
    Aim,
    Point,
    best,
    gains,
    is_full,
    measure,
    measure_again,
    moves,
    point,
    shown,
    to_show,
)
from enginewright_builder.sweep.objective import requests_to_decide, requests_to_show
from support.fake_openai import fake_openai

FREE = Aim(objective=Objective())
STRICT = Aim(objective=Objective(ttft_ms=200), percentile=90)


def loaded(aim: Aim, *, concurrency: int = 1, late: int = 0, failed: int = 0, requests: int = 10) -> Point:
    """Each answer has two tokens within a second; ``late`` of them are late with their first one."""
    answers = [Answer(due=0.0, end=1.0, arrivals=(Arrival(0.5 if number < late else 0.1, 1), Arrival(1.0, 1)),
                      output_tokens=2, finish="stop", error="Gone" if number >= requests - failed else "")
               for number in range(requests)]
    return point(concurrency, figures(answers, begin=0.0, end=1.0, objective=aim.objective), aim)


def test_without_an_objective_tokens_count_and_with_one_requests_that_meet_it() -> None:
    assert loaded(FREE).value == pytest.approx(20)
    nine, eight = loaded(STRICT, late=1), loaded(STRICT, late=2)
    assert (nine.value, eight.value) == pytest.approx((9, 8))
    assert (nine.meets, eight.meets) == (True, False)


@pytest.mark.parametrize("aim", [FREE, STRICT])
def test_a_load_with_a_failed_request_meets_nothing(aim: Aim) -> None:
    assert not loaded(aim, failed=1).meets


def test_the_best_meets_the_objective_and_of_equal_ones_has_fewer_in_flight() -> None:
    few, many, breaks = (loaded(STRICT, concurrency=4), loaded(STRICT, concurrency=16),
                         loaded(STRICT, concurrency=64, requests=100, late=50))
    assert best([few, many, breaks]) is few
    assert best([breaks]) is breaks


def test_a_setting_gains_only_by_more_than_measurements_differ_by() -> None:
    ten, same, more = (loaded(FREE, requests=count) for count in (100, 102, 104))
    assert not gains(same, ten)
    assert gains(more, ten)
    assert not gains(loaded(FREE, requests=200, failed=1), ten)
    assert gains(ten, loaded(FREE, requests=200, failed=1))


def test_a_server_is_full_once_more_in_flight_gain_nothing_or_break_the_objective() -> None:
    assert not is_full([loaded(FREE)])
    assert not is_full([loaded(FREE), loaded(FREE, requests=12)])
    assert is_full([loaded(FREE), loaded(FREE)])
    assert is_full([loaded(STRICT, late=5)])


async def test_levels_ask_the_same_prompts_with_salts_of_their_own() -> None:
    asks = [Ask(prompt=text, max_tokens=2) for text in ("a", "bb", "ccc")]
    pages = itertools.count(1)

    async def metrics() -> str:
        return "\n".join(f'vllm:request_{what}_time_seconds_{part}{{engine="0"}} {next(pages)}'
                         for what in ("queue", "prefill", "decode") for part in ("sum", "count"))

    async with fake_openai(lambda tokens: {len(tokens): -0.1}) as fake, Client(fake.url) as client:
        found = await measure(client, asks, FREE, seconds=0.0, metrics=metrics)
    warm, *counted = fake.seen
    assert warm["cache_salt"] == "warm"
    # Time is over at once: one level, with the requests that make it one.
    assert [(one["prompt"], one["cache_salt"]) for one in counted] == [("a", "1.0")]
    assert [one.concurrency for one in found] == [1]
    assert found[0].layers is not None
    assert found[0].layers.queue_ms == pytest.approx(1000)


@pytest.mark.parametrize("chat", [False, True])
async def test_tokens_that_come_together_all_count(chat: bool) -> None:
    """As of a server that speculates: by its events it would be as slow as one token for each."""
    async def metrics() -> str:
        return ""

    prompt = ({"role": "user", "content": "a"},) if chat else "a"
    async with fake_openai(lambda tokens: {len(tokens): -0.1}, at_once=4) as fake, Client(fake.url) as client:
        found = await measure(client, [Ask(prompt=prompt, max_tokens=8, chat=chat)], FREE, seconds=0.0,
                              metrics=metrics)
    assert found[0].figures.output_tokens == 8
    assert found[0].value * found[0].figures.seconds == pytest.approx(8)


async def test_a_load_that_is_put_on_once_more_has_as_many_requests_as_decide() -> None:
    async def metrics() -> str:
        return ""

    aim = Aim(objective=Objective(ttft_ms=60_000.0), percentile=50)
    async with fake_openai(lambda tokens: {len(tokens): -0.1}) as fake, Client(fake.url) as client:
        found = await measure_again(client, [Ask(prompt="a", max_tokens=1)], aim, 4, seconds=60.0, metrics=metrics)
        few = await measure_again(client, [Ask(prompt="a", max_tokens=1)], aim, 4, seconds=0.0, metrics=metrics)
    needed = requests_to_decide(50)
    assert (found.again, found.figures.requests, found.concurrency) == (needed, needed, 4)
    assert len({one["cache_salt"] for one in fake.seen}) > needed, "no answer is another's"
    assert shown(found, aim)
    assert few.again == 4, "as many as are in flight, in whatever time"


def test_the_objective_is_met_by_enough_requests_of_a_new_load_alone() -> None:
    aim = Aim(objective=STRICT.objective, percentile=99)
    few, many = loaded(aim, requests=100), loaded(aim, requests=10_000)
    assert (few.meets, shown(few, aim)) == (True, False)
    assert not shown(many, aim), "it was chosen by these"
    assert to_show(many, aim) == requests_to_show(99, 0)
    again = dataclasses.replace(many, again=10_000)
    assert (shown(again, aim), to_show(again, aim)) == (True, 0)
    some = dataclasses.replace(loaded(aim, requests=200, late=2), again=200)
    assert (some.meets, shown(some, aim)) == (True, False)
    assert to_show(some, aim) == requests_to_show(99, 2) > 200
    late = dataclasses.replace(loaded(aim, requests=200, late=3), again=200)
    assert (late.meets, shown(late, aim), to_show(late, aim)) == (False, False, 0)
    assert shown(loaded(FREE), FREE), "the request has no objective"


def test_settings_that_could_change_nothing_are_not_tried() -> None:
    assert [move.name for move in moves(1, longest=20, gpu=False)] == ["no prefix cache"]
    names = [move.name for move in moves(256, longest=2000, gpu=True)]
    assert names == ["16384 tokens a step", "1024 tokens a step", "16 requests at once", "no prefix cache",
                     "whole prompts", "95 % of memory"]
    assert [move.name for move in moves(256, longest=2000, gpu=False)] == [
        "8192 tokens a step", "512 tokens a step", "16 requests at once", "1024 requests at once", "no prefix cache",
        "whole prompts"]


def test_what_was_chosen_stays() -> None:
    first, second = moves(64, longest=64, gpu=False)[:2]
    chosen = first.applied(ServerArguments())
    assert chosen == ServerArguments(max_num_batched_tokens=8192)
    assert second.applied(chosen) is None


PAGE = """# HELP vllm:request_queue_time_seconds Time in WAITING phase.
vllm:request_queue_time_seconds_bucket{{engine="0",le="0.3"}} 7.0
vllm:request_queue_time_seconds_sum{{engine="0",model_name="model"}} {queue}
vllm:request_queue_time_seconds_count{{engine="0",model_name="model"}} {count}
vllm:request_prefill_time_seconds_sum{{engine="0"}} {prefill}
vllm:request_prefill_time_seconds_count{{engine="0"}} {count}
vllm:request_decode_time_seconds_sum{{engine="0"}} {decode}
vllm:request_decode_time_seconds_count{{engine="0"}} {count}
"""


def test_layers_are_the_servers_own_and_the_rest_is_transport() -> None:
    before = PAGE.format(queue=1, prefill=2, decode=3, count=10)
    after = PAGE.format(queue=1.2, prefill=2.4, decode=5, count=14)
    found = layers(before, after, [Answer(due=0.0, end=1.0), Answer(due=0.0, end=9.0, error="Gone")])
    assert found is not None
    assert (found.queue_ms, found.prefill_ms, found.decode_ms) == pytest.approx((50, 100, 500))
    assert found.transport_ms == pytest.approx(350)
    assert layers(before, before, [Answer(due=0.0, end=1.0)]) is None
    assert layers("", "", []) is None

"""How far the gate looks: many requests at once, whole answers, and what it says of what it did not reach; against
servers that err only there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginewright_builder.errors import UserError
from enginewright_builder.generate.arguments import ServerArguments
from enginewright_builder.generate.client import Ask, Client
from enginewright_builder.generate.comparing import AT_ONCE, TOKENS, Yardstick, compared, of_itself, planned, yardstick
from enginewright_builder.generate.gate import Judgement
from enginewright_builder.generate.reach import unreached
from support.fake_openai import Model, fake_openai

PROMPTS, LONGEST, TOLERANCE = 20, 600, 0.15
# More seconds than any machine takes for these requests, so that no clock decides how many the gate compares.
AGES = 1e6
MANY = ServerArguments(max_num_seqs=40)


def sound(tokens: Sequence[int]) -> dict[int, float]:
    return {len(tokens) % 500: -0.1, len(tokens) % 500 + 1: -2.5}


def broken(tokens: Sequence[int]) -> dict[int, float]:
    return {len(tokens) % 500 + 1: -0.1, len(tokens) % 500: -2.5}


def from_place(place: int) -> Model:
    """Prompts have one token each: what lies at ``place`` of an answer comes after as many and that one."""
    return lambda tokens: (broken if len(tokens) >= place else sound)(tokens)


def asks(longest: int = LONGEST) -> list[Ask]:
    """Of which one may be ``longest``, and the others are short."""
    return [Ask(prompt=chr(100 + number), max_tokens=longest if number == 7 else 2 * TOKENS)
            for number in range(PROMPTS)]


async def measured(reference: Model = sound, *, seconds: float = AGES, tolerance: float = TOLERANCE,
                   longest: int = LONGEST, **fake: Any) -> Yardstick:
    async with fake_openai(reference, **fake) as server, Client(server.url) as client:
        found, took = await yardstick(client, asks(longest), MANY, tolerance=tolerance, seconds=seconds)
    assert took > 0
    return found


async def judged(found: Yardstick, model: Model, **fake: Any) -> Judgement:
    async with fake_openai(model, **fake) as server, Client(server.url) as client:
        return (await compared(client, found, MANY))[0]


async def test_a_sound_configuration_is_compared_to_the_end_of_the_longest_answer_and_with_as_many_as_it_runs() -> None:
    found = await measured()
    said = await judged(found, sound)
    assert said.passed
    assert [(part.where.first, part.where.last, part.where.at_once, part.prompts) for part in said.parts] == [
        (1, 1, AT_ONCE, PROMPTS), (1, TOKENS, 40, PROMPTS), (33, 128, 40, PROMPTS), (129, 512, 40, 1),
        (513, LONGEST, 40, 1)]
    assert [part.proven for part in said.parts] == [True, True, True, False, False]
    assert [part.where for part in of_itself(found, MANY).parts] == [part.where for part in said.parts]


@pytest.mark.parametrize(("place", "said"), [
    (1, ""), (2, ""), (40, "in tokens 33 to 128 of answers with 40 requests at once, ")])
async def test_what_goes_wrong_further_on_is_refused(place: int, said: str) -> None:
    found = await judged(await measured(), from_place(place))
    assert not found.passed
    assert found.reason.startswith(said)


async def test_one_answer_proves_nothing_and_the_report_says_so() -> None:
    found = await measured()
    said = await judged(found, from_place(600))
    assert said.passed
    assert any(line.startswith("In tokens 513 to 600 of answers with 40 requests at once a loss of at most 0.15 is not "
                               "proven: so few answers were compared there (1). Of their tokens 1.14% are others")
               for line in unreached(said, found, MANY))


async def test_what_goes_wrong_with_many_at_once_is_refused() -> None:
    found = await measured()
    assert (await judged(found, sound, crowd=40, crowded=sound)).passed
    said = await judged(found, sound, crowd=40, crowded=broken)
    assert said.reason.startswith("in tokens 1 to 32 of answers with 40 requests at once, 100.00%")


async def test_a_reference_that_errs_with_many_at_once_is_no_measure() -> None:
    with pytest.raises(UserError, match="in tokens 1 to 32 of answers with 40 requests at once") as caught:
        await measured(crowd=40, crowded=broken)
    assert caught.value.reason == "NoiseFloorTooHigh"


async def test_the_first_token_counts_by_itself() -> None:
    """Of 32 it is 3 %, which the tolerance allows: each answer would begin otherwise."""
    found = await measured(seconds=0.0, tolerance=0.2)
    said = await judged(found, lambda tokens: (broken if len(tokens) == 1 else sound)(tokens))
    assert said.disagreement.high < 0.2
    assert said.reason.startswith("in the first token of answers, 100.00% of its next tokens differ")


async def test_without_time_beginnings_are_compared_and_the_rest_is_said() -> None:
    found = await measured(seconds=0.0)
    said = await judged(found, from_place(40), crowd=1, crowded=broken)
    assert said.passed, "it is asked for the beginnings alone"
    assert said.places == PROMPTS * TOKENS
    answers, at_once = unreached(said, found, MANY)
    assert answers.startswith(f"{PROMPTS} answers go on after their first {TOKENS} tokens. The gate compared 0 of them "
                              f"further, up to token {TOKENS}; prompts ask for up to {LONGEST}.")
    assert at_once.startswith(f"The gate compared answers with up to {AT_ONCE} requests at once, and the server may "
                              "run 40")


async def test_where_all_is_compared_nothing_is_left_to_say() -> None:
    found = await measured(longest=2 * TOKENS)
    said = await judged(found, sound)
    assert unreached(said, found, MANY) == []
    assert [line.split(".")[0] for line in unreached(said, found, ServerArguments())] == [
        "The gate compared answers with up to 40 requests at once"]


async def test_the_floor_is_of_prompts_that_were_read_once_more() -> None:
    """What the reference has in its prefix cache would hide noise that each other server has."""
    async with fake_openai(sound) as server, Client(server.url) as client:
        await yardstick(client, asks(), MANY, tolerance=TOLERANCE, seconds=0.0)
    assert [one.get("cache_salt", "") for one in server.seen] == [""] * PROMPTS + ["floor"] * PROMPTS


async def test_a_refused_beginning_is_asked_no_further() -> None:
    found = await measured()
    async with fake_openai(broken) as server, Client(server.url) as client:
        said, _ = await compared(client, found, MANY)
        assert not said.passed
        assert all("cache_salt" not in one for one in server.seen)


@pytest.mark.parametrize(("longest", "tokens", "most", "expected"), [
    ([100, 600, 100], 1e9, 10_000, {1: 600, 0: 100, 2: 100}),
    # The longest first, each as far as its time goes, and as many as the time of all allows.
    ([100, 600, 100], 1e9, 500, {1: 500, 0: 100, 2: 100}), ([100] * 40, 1600.0, 10_000, dict.fromkeys(range(16), 100)),
    ([100, 600], 650.0, 10_000, {1: 600, 0: 50}), ([100, 90_000], 50_000.0, 80_000, {1: 50_000}),
    # Of nothing beyond the beginnings is there time.
    ([100, 600], 1e9, TOKENS, {}), ([], 1e9, 10_000, {})])
def test_which_answers_are_compared_whole(longest: list[int], tokens: float, most: int,
                                          expected: dict[int, int]) -> None:
    assert planned(longest, tokens=tokens, most=most) == expected


def test_as_many_at_once_as_a_configuration_may_run_and_fit() -> None:
    found = Yardstick(records=(), floor=(), tolerance=0.1, fits=100)
    assert [found.at_once(ServerArguments(max_num_seqs=most)) for most in (8, 40, 1024, None)] == [16, 40, 100, 100]

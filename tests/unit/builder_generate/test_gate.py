"""The gate over recorded log-probabilities: laws of its figures, what passes and what does not, and the way a candidate
is taken through the reference's text."""

from __future__ import annotations

import asyncio
import functools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from enginewright_builder.accuracy.rules import samples_advised
from enginewright_builder.errors import UserError
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.client import Client
from enginewright_builder.generate.gate import (
    Compared,
    Record,
    Scored,
    Where,
    check_floor,
    check_part_of_floor,
    check_words,
    divergence,
    judge,
    score,
)
from enginewright_builder.generate.teacher import LEAST_TOKENS, MOST_WRONG, Decode, Prompt, follow, hold, record, words
from support.fake_openai import Model, fake_openai

VOCABULARY = 40


def logarithms(shares: dict[int, float]) -> dict[int, float]:
    return {token: math.log(share) for token, share in shares.items()}


@pytest.mark.parametrize(("left", "right", "bits"), [
    ({1: 1.0}, {1: 1.0}, 0.0),
    ({1: 1.0}, {2: 1.0}, 1.0),
    ({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}, 0.0),
    # The rest, of which nothing is known, is one token.
    ({1: 0.5}, {1: 0.5}, 0.0),
    ({1: 1.0}, {1: 0.5, 2: 0.5}, 0.3113),
    ({1: 0.9, 2: 0.1}, {1: 0.1, 2: 0.9}, 0.5310)])
def test_divergence(left: dict[int, float], right: dict[int, float], bits: float) -> None:
    assert divergence(logarithms(left), logarithms(right)) == pytest.approx(bits, abs=1e-4)


@some.composite
def tops(draw: some.DrawFn) -> dict[int, float]:
    tokens = draw(some.lists(some.integers(0, 9), min_size=1, max_size=6, unique=True))
    weights = [draw(some.floats(0.001, 1)) for _ in tokens]
    named = draw(some.floats(0.1, 1))
    return {token: math.log(named * weight / sum(weights)) for token, weight in zip(tokens, weights, strict=True)}


@given(tops(), tops())
def test_divergence_is_a_symmetric_share(left: dict[int, float], right: dict[int, float]) -> None:
    found = divergence(left, right)
    assert 0.0 <= found <= 1.0
    assert found == pytest.approx(divergence(right, left), abs=1e-9)
    assert divergence(left, left) == pytest.approx(0.0, abs=1e-9)


def scored(agreement: float, diverged: float = 0.0) -> Scored:
    return Scored(agreement=agreement, divergence=diverged, places=32)


SAME = [scored(1.0)] * 400


@pytest.mark.parametrize(("candidate", "passes"), [
    (SAME, True),
    ([scored(1.0, 0.001)] * 400, True),
    ([scored(1.0)] * 399 + [scored(0.9)], True),
    ([scored(0.97)] * 400, False),
    ([scored(1.0, 0.03)] * 400, False),
    # In one prompt of twenty all goes wrong.
    ([scored(1.0)] * 380 + [scored(0.0, 1.0)] * 20, False),
    ([scored(0.0, 1.0)] * 400, False)])
def test_what_passes(candidate: list[Scored], passes: bool) -> None:
    found = judge(SAME, candidate, 0.01)
    assert found.passed is passes
    assert bool(found.reason) is not passes


def test_what_the_reference_itself_loses_does_not_count() -> None:
    noisy = [scored(0.97, 0.02)] * 400
    assert judge(noisy, noisy, 0.01).passed
    assert not judge(SAME, noisy, 0.01).passed
    found = judge(noisy, noisy, 0.01).disagreement
    assert found.value == found.floor == pytest.approx(0.03)
    assert found.beyond == 0.0


def test_what_may_be_lost_in_all_is_said_with_what_the_user_wrote() -> None:
    """The bound is of what lies beyond the floor: a model may choose 5 % otherwise where that is 3 %, and no more."""
    noisy = [scored(0.97, 0.02)] * 400
    assert "up to 3.72% are lost beyond that. 2.00% may be, so 5.00% of all" in judge(
        noisy, [scored(0.94, 0.02)] * 400, 0.02).reason
    assert "0.02 may be, so 0.0400 in all" in judge(noisy, [scored(0.97, 0.06)] * 400, 0.02).reason


LATER = Where(first=33, last=128, at_once=64)


@pytest.mark.parametrize(("candidate", "refused", "proven"), [
    ([scored(1.0)] * 300, False, True),
    # Five prompts prove nothing, and so do not refuse; all of five wrong show more than chance.
    ([scored(1.0)] * 5, False, False),
    ([scored(1.0)] * 4 + [scored(0.5)], False, False),
    ([scored(0.0, 1.0)] * 5, True, False),
    ([scored(1.0, 0.9)] * 5, True, False),
    # As many as are advised have to prove it, as the beginnings do.
    ([scored(0.985)] * (samples_advised(0.02) - 1), False, False),
    ([scored(0.985)] * samples_advised(0.02), True, False)])
def test_what_is_compared_beside_the_beginnings(candidate: list[Scored], refused: bool, proven: bool) -> None:
    part = Compared(where=LATER, floor=[scored(1.0)] * len(candidate), candidate=candidate)
    found = judge(SAME, SAME, 0.02, [part])
    assert found.parts[0].proven is proven
    assert found.passed is not refused
    assert found.reason.startswith("in tokens 33 to 128 of answers with 64 requests at once, ") is refused
    assert ("diverge by" in found.reason) is (refused and candidate[0].agreement == 1.0), "the figure that shows it"
    assert (found.parts[0].prompts, found.parts[0].places) == (len(candidate), 32 * len(candidate))


def test_what_the_reference_itself_loses_in_a_part_does_not_count() -> None:
    part = Compared(where=LATER, floor=[scored(0.5)] * 20, candidate=[scored(0.4)] * 20)
    assert judge(SAME, SAME, 0.15, [part]).passed
    worse = Compared(where=LATER, floor=part.floor, candidate=[scored(0.1)] * 20)
    assert not judge(SAME, SAME, 0.15, [worse]).passed


def test_a_part_that_has_to_prove_nothing_refuses_what_it_shows() -> None:
    """Of the first token each prompt says yes or no: a bound of its mean is wide."""
    first = Where(first=1, last=1, at_once=16, proves=False)
    some = [scored(1.0)] * 385 + [scored(0.0)] * 15
    assert judge(SAME, SAME, 0.03, [Compared(where=first, floor=SAME, candidate=some)]).passed
    found = judge(SAME, SAME, 0.03, [Compared(where=first, floor=SAME, candidate=[scored(0.0)] * 400)])
    assert found.reason.startswith("in the first token of answers, 100.00% of its next tokens differ")


def test_a_part_of_the_floor_is_too_high_only_where_it_is_shown_to_be() -> None:
    few = [scored(1.0)] * 4 + [scored(0.5)]
    check_part_of_floor(Compared(where=LATER, floor=few, candidate=few), 0.05)
    with pytest.raises(UserError, match="in tokens 33 to 128 of answers with 64 requests at once") as caught:
        check_part_of_floor(Compared(where=LATER, floor=[scored(0.5)] * 20, candidate=[]), 0.05)
    assert caught.value.reason == "NoiseFloorTooHigh"


def test_parts_admit_no_sabotage_and_refuse_next_to_no_sound_one() -> None:
    """Drawn places of 61 beginnings and of a number of whole answers, at a floor of 2 % of the tokens. Broken ones
    choose 20 % otherwise from token 129 on, and sound ones as the reference itself. None of 300 and three of 300 at
    most."""
    generator, tolerance = random.Random(3), 0.1

    def drawn(count: int, places: int, wrong: float) -> list[Scored]:
        return [scored(1 - sum(generator.random() < wrong for _ in range(places)) / places) for _ in range(count)]

    admitted = refused = 0
    for number in range(300):
        whole = (12, 40, 61)[number % 3]
        stretches = [(Where(first=first, last=last, at_once=16), last - first + 1)
                     for first, last in ((33, 128), (129, 512))]
        floor, begins = drawn(61, 32, 0.02), drawn(61, 32, 0.02)
        floors = [drawn(whole, places, 0.02) for _, places in stretches]
        for broken in (False, True):
            parts = [Compared(where=where, floor=known, candidate=drawn(
                whole, places, 0.2 if broken and where.first > 128 else 0.02))
                for (where, places), known in zip(stretches, floors, strict=True)]
            passed = judge(floor, begins, tolerance, parts).passed
            admitted += broken and passed
            refused += not broken and not passed
    assert admitted == 0
    assert refused <= 3


def test_few_prompts_prove_little() -> None:
    assert not judge(SAME[:100], SAME[:100], 0.01).passed
    assert judge(SAME[:100], SAME[:100], 0.05).passed


@given(some.lists(some.tuples(some.floats(0, 1), some.floats(0, 1)), min_size=20, max_size=40), some.floats(0, 0.5))
def test_who_agrees_less_is_never_judged_better(pairs: list[tuple[float, float]], less: float) -> None:
    floor = [scored(one) for one, _ in pairs]
    better = judge(floor, [scored(other) for _, other in pairs], 0.1)
    worse = judge(floor, [scored(max(0.0, other - less)) for _, other in pairs], 0.1)
    assert worse.disagreement.high >= better.disagreement.high - 1e-6


def test_a_bound_is_above_the_mean() -> None:
    generator = random.Random(0)
    floor = [scored(1.0 if generator.random() < 0.9 else 0.95) for _ in range(200)]
    candidate = [scored(1.0 if generator.random() < 0.8 else 0.9) for _ in range(200)]
    found = judge(floor, candidate, 0.05).disagreement
    assert found.beyond < found.high < 1.0


def test_figures_of_different_prompts_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different prompts"):
        judge(SAME, SAME[:-1], 0.01)


def test_a_floor_above_the_tolerance_and_too_few_prompts_are_refused() -> None:
    check_floor(SAME, 0.01)
    for floor, reason in ((SAME[:100], "EvaluationTooSmall"), ([scored(0.95)] * 400, "NoiseFloorTooHigh"),
                          ([scored(1.0, 0.05)] * 400, "NoiseFloorTooHigh")):
        with pytest.raises(UserError) as caught:
            check_floor(floor, 0.01)
        assert caught.value.reason == reason


@pytest.mark.parametrize(("read", "texts", "said"), [
    (((1, 2), (3,)), ("a", "b"), ""),
    (((1, 2), (4,)), ("a", "b"), "reads prompt 1 as other tokens from place 0"),
    (((1, 2, 9), (3,)), ("a", "b"), "reads prompt 0 as other tokens from place 2 on"),
    (((1, 2), (3,)), ("a", "c"), "writes the tokens of answer 1 as another text")])
def test_another_tokeniser_or_template_is_found(read: tuple[tuple[int, ...], ...], texts: tuple[str, ...],
                                                said: str) -> None:
    found = check_words([(1, 2), (3,)], read, ["a", "b"], texts)
    assert said in found
    assert bool(said) == bool(found)


# A language model of forty words: what follows depends on the last two tokens.

@functools.cache
def logits_after(last: tuple[int, ...]) -> list[float]:
    return [random.Random(hash((last, token))).gauss(0, 2) for token in range(VOCABULARY)]


def model(*, noise: float = 0.0, swapped: bool = False, scale: float = 1.0, seed: int = 0) -> Model:
    def following(tokens: Sequence[int]) -> dict[int, float]:
        last = tuple(tokens[-2:])[::-1] if swapped else tuple(tokens[-2:])
        logits = [one * scale for one in logits_after(last)]
        jitter = random.Random(hash((seed, tuple(tokens))))
        logits = [one + jitter.gauss(0, noise) for one in logits] if noise else logits
        total = math.log(sum(math.exp(one) for one in logits))
        likely = sorted(range(VOCABULARY), key=lambda token: -logits[token])[:20]
        return {token: logits[token] - total for token in likely}

    return following


def decode_by(model: Model, asked: list[int]) -> Decode:
    async def decode(prompt: Sequence[int], max_tokens: int) -> list[Step]:
        asked.append(len(prompt))
        tokens, found = list(prompt), []
        for _ in range(max_tokens):
            top = model(tokens)
            found.append(Step(token=max(top, key=lambda one: top[one]), top=top))
            tokens.append(found[-1].token)
        return found

    return decode


async def recorded(number: int, places: int = 24) -> Record:
    prompt = (number % VOCABULARY, (number * 7 + 1) % VOCABULARY)
    return Record(prompt=prompt, steps=tuple(await decode_by(model(), [])(prompt, places)))


async def test_an_equal_model_takes_one_request() -> None:
    asked: list[int] = []
    reference = await recorded(3)
    held = await follow(decode_by(model(), asked), reference)
    assert tuple(held) == reference.steps
    assert asked == [2]


async def test_each_choice_is_made_after_the_references_tokens() -> None:
    """At every place what it says is what the other model says after the reference's text."""
    other, asked, reference = model(noise=0.8, seed=5), list[int](), await recorded(5)
    held = await follow(decode_by(other, asked), reference)
    text = list(reference.prompt)
    for step, expected in zip(held, reference.steps, strict=True):
        assert step.top == other(text)
        text.append(expected.token)
    wrong = sum(one.token != two.token for one, two in zip(held, reference.steps, strict=True))
    assert wrong >= 1
    assert len(asked) <= wrong + 1


async def test_a_broken_model_is_not_asked_for_ever() -> None:
    asked: list[int] = []
    reference = await recorded(1, places=60)
    held = await follow(decode_by(lambda tokens: {VOCABULARY + 1: -0.01}, asked), reference)
    assert len(asked) == MOST_WRONG == len(held)
    assert score(reference, held).agreement == 0.0


async def test_what_is_broken_further_on_is_left_there() -> None:
    """It follows as long as it goes well, and asks for no whole answer after each other choice."""
    asked: list[int] = []
    reference = await recorded(1, places=400)

    def late(tokens: Sequence[int]) -> dict[int, float]:
        return model()(tokens) if len(tokens) < 202 else {VOCABULARY + 1: -0.01}

    held = await follow(decode_by(late, asked), reference)
    assert [one.token for one in held[:200]] == [one.token for one in reference.steps[:200]]
    assert len(held) == 200 + MOST_WRONG
    assert len(asked) == 1 + MOST_WRONG - 1
    assert score(reference, held, 128).agreement == pytest.approx(72 / 96)


async def test_a_candidate_that_errs_now_and_then_is_followed_to_the_end() -> None:
    reference, tokens = await recorded(1, places=400), list[int]()
    decode = decode_by(model(noise=0.2, seed=8), [])

    async def counting(prompt: Sequence[int], most: int) -> list[Step]:
        found = await decode(prompt, most)
        tokens.append(len(found))
        return found

    held = await follow(counting, reference)
    wrong = sum(one.token != two.token for one, two in zip(held, reference.steps, strict=True))
    assert wrong > MOST_WRONG, "more than a broken one is followed for"
    assert sum(tokens) <= 3 * len(held) + LEAST_TOKENS * (wrong + 1), "each is asked for few in vain"


PROMPTS, TOLERANCE = 120, 0.05


async def taken_through(candidate: Model, records: Sequence[Record]) -> list[Scored]:
    return [score(one, await follow(decode_by(candidate, []), one)) for one in records]


@functools.cache
def reference() -> tuple[list[Record], list[Scored]]:
    """Records and the floor, which is another run of the same model."""
    async def made() -> tuple[list[Record], list[Scored]]:
        records = [await recorded(number, places=6) for number in range(PROMPTS)]
        return records, await taken_through(model(noise=0.001), records)

    return asyncio.run(made())


def judged(candidate: Model) -> bool:
    records, floor = reference()
    check_floor(floor, TOLERANCE)
    return judge(floor, asyncio.run(taken_through(candidate, records)), TOLERANCE).passed


@pytest.mark.parametrize("candidate", [model(noise=0.001, seed=9), model(noise=0.003, seed=1)])
def test_sound_configurations_pass(candidate: Model) -> None:
    assert judged(candidate)


@pytest.mark.parametrize("candidate", [model(noise=0.8), model(swapped=True), model(scale=0.5), model(scale=3.0)],
                         ids=["rough", "swapped", "flat", "sharp"])
def test_sabotaged_configurations_do_not(candidate: Model) -> None:
    """Scaled logits choose the same tokens: it is the divergence that shows them."""
    assert not judged(candidate)


async def test_through_a_server_the_same_is_read() -> None:
    async with fake_openai(model()) as fake, Client(fake.url) as client:
        prompts: list[Prompt] = ["one", ({"role": "user", "content": "two"},)]
        records = await record(client, prompts, 8, concurrency=2)
        held = await hold(client, records, concurrency=2)
        read = await words(client, prompts, records)
    assert [tuple(one) for one in held] == [one.steps for one in records]
    assert read.prompts == tuple(one.prompt for one in records)
    assert read.texts[0] == "".join(f"<{step.token}>" for step in records[0].steps)
    assert [one["ignore_eos"] for one in fake.seen] == [False, False, True, True]

"""The monitor of a language model: how many questions it asks, how it scores them, and what it reports."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from enginewright_builder.contract import AGREEMENT, REFERENCE_FOLDER, ContractError
from enginewright_builder.errors import TransientError
from enginewright_builder.generate.answer import Step
from enginewright_builder.generate.client import Client
from enginewright_builder.generate.gate import Record, Scored
from enginewright_builder.generate.kept_prompts import FILE, MOST_PROMPTS, keep_prompts, read_prompts
from enginewright_builder.quality.__main__ import monitor
from enginewright_builder.quality.asking import MOST_SAVED, Allowance, Asking, answered
from support.fake_openai import fake_openai

TOKENS = (5, 6, 7, 8)


def page(stopped: float, cut: float = 0, left: float = 0) -> str:
    """As vLLM 0.32 writes it."""
    return "".join(
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}} {count}\n'
        for reason, count in (("stop", stopped), ("length", cut), ("abort", left), ("error", left), ("repetition", 0)))


def kept(folder: Path, disagreements: Sequence[float] = (0.0, 0.5), tolerance: float = 0.05) -> Path:
    records = [Record(prompt=(1, number), steps=tuple(Step(token=token, top={}) for token in TOKENS))
               for number in range(len(disagreements))]
    floor = [Scored(agreement=1 - one, divergence=0.0, places=len(TOKENS)) for one in disagreements]
    keep_prompts(folder, records, floor, tolerance)
    return folder / REFERENCE_FOLDER


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    found = read_prompts(kept(tmp_path))
    assert [(one.prompt, one.tokens) for one in found.prompts] == [((1, 0), TOKENS), ((1, 1), TOKENS)]
    assert (found.tolerance, found.floor, found.allowed) == pytest.approx((0.05, 0.25, 0.3))


def test_of_very_many_prompts_some_are_kept_from_all_over(tmp_path: Path) -> None:
    found = read_prompts(kept(tmp_path, [0.0, 1.0] * MOST_PROMPTS))
    assert len(found.prompts) <= MOST_PROMPTS
    assert found.prompts[-1].prompt[1] >= 2 * MOST_PROMPTS - 2
    assert found.floor == 0.0, "of the prompts that are kept"


@pytest.mark.parametrize("text", ["", "[]", '{"tolerance": 0.1}'])
def test_what_makes_no_sense_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(ContractError):
        read_prompts(tmp_path)


def test_what_failed_or_was_left_was_not_answered() -> None:
    assert answered(page(3, 2, left=9)) == 5.0
    assert answered("") == 0.0


def asked(allowance: Allowance, most: int = 1000) -> int:
    for number in range(most):
        if not allowance.open:
            return number
        allowance.spend()
    return most


@pytest.mark.parametrize(("live", "share", "per_minute", "questions"), [
    (100, 0.1, 600, 10), (9, 0.1, 600, 0), (0, 1.0, 600, 0), (100, 1.0, 60, 5), (10_000, 1.0, 600, 50)])
def test_questions_follow_live_requests(live: int, share: float, per_minute: int, questions: int) -> None:
    allowance = Allowance(share, per_minute)
    allowance.note(40, 5.0)
    assert asked(allowance) == 0, "what was before the monitor began counts for nothing"
    allowance.note(40 + live, 5.0)
    assert asked(allowance) == questions


def test_its_own_requests_bring_no_more_of_them() -> None:
    allowance, count = Allowance(1.0, 600), 0.0
    allowance.note(count, 5.0)
    count += 8
    for _ in range(5):
        allowance.note(count, 5.0)
        count += asked(allowance)
    assert count == 8 + 8


def test_a_burst_is_not_paid_off_for_hours() -> None:
    allowance, found = Allowance(1.0, 600), 0
    allowance.note(0, 5.0)
    for _ in range(10):
        allowance.note(1_000_000 + found, 5.0)
        found += asked(allowance)
    assert found == MOST_SAVED


def test_a_server_that_began_again_counts_from_zero() -> None:
    allowance = Allowance(1.0, 600)
    allowance.note(500, 5.0)
    allowance.note(3, 5.0)
    assert asked(allowance) == 0
    allowance.note(7, 5.0)
    assert asked(allowance) == 4


class Replica:
    """Chooses the right tokens, but at the ``wrong`` places of an answer."""

    def __init__(self, *wrong: int, error: str = "") -> None:
        self.wrong, self.error, self.words = wrong, error, list[str]()

    async def __call__(self, prompt: Sequence[int], tokens: int, word: str) -> list[Step]:
        self.words.append(word)
        if self.error:
            raise TransientError(self.error, "secret words")
        begin = len(prompt) - 2
        return [Step(token=0 if place in self.wrong else TOKENS[place], top={}) for place in
                range(begin, begin + tokens)]


def asking(replica: Replica, folder: Path, *, window: int = 100, clock: Sequence[float] = ()) -> Asking:
    times, words = iter(clock), map(str, itertools.count())
    allowance = Allowance(1.0, 600)
    return Asking(read_prompts(kept(folder)), replica, allowance, window=window, draw=lambda most: most - 1,
                  word=lambda: next(words), clock=lambda: next(times, 100.0))


@pytest.mark.parametrize(("wrong", "score", "requests"), [((), 1.0, 1), ((1,), 0.75, 2), ((3,), 0.75, 1),
                                                          ((0, 1, 2, 3), 0.0, 4)])
async def test_an_answer_is_scored_after_the_source_models_tokens(wrong: tuple[int, ...], score: float, requests: int,
                                                                  tmp_path: Path) -> None:
    replica = Replica(*wrong)
    found = asking(replica, tmp_path, clock=[0.0, 5.0])
    await found.turn(page(0), 5.0)
    await found.turn(page(1), 5.0)
    report = found.snapshot().report
    assert (report.metric, report.samples, report.total, report.requests) == (AGREEMENT, 1, score, 1)
    assert report.tolerance == pytest.approx(0.3)
    assert report.problem == ""
    assert replica.words == ["0"] * requests, "one question, one word"


async def test_the_newest_answers_count(tmp_path: Path) -> None:
    replica = Replica()
    found = asking(replica, tmp_path, window=3)
    await found.turn(page(0), 5.0)
    found._allowance.note(50, 60.0)
    for _ in range(5):
        await found._ask()
    replica.wrong = (3,)
    await found._ask()
    assert (found.snapshot().report.samples, found.snapshot().report.total) == (3, 2.75)
    assert len(set(replica.words)) == 6


async def test_a_replica_that_does_not_answer_is_no_wrong_one(tmp_path: Path) -> None:
    found = asking(Replica(error="ServerUnavailable"), tmp_path, clock=[0.0, 5.0])
    await found.turn(page(0), 5.0)
    await found.turn(page(1), 5.0)
    told = found.snapshot()
    assert (told.report.samples, told.report.requests, told.skipped) == (0, 1, 1)
    assert told.report.problem == "the build's prompts are not answered: ServerUnavailable"
    assert "secret" not in told.report.to_json()


async def test_a_turn_ends_in_time(tmp_path: Path) -> None:
    """A slow replica is asked less. The clock is read once as a turn begins, and then before each question and after
    it."""
    found = asking(Replica(), tmp_path, clock=[0.0, 0.0, 60.0, 61.0, 62.0, 66.0])
    await found.turn(page(0), 5.0)
    await found.turn(page(50), 5.0)
    assert found.snapshot().report.samples == 1


async def test_the_client_asks_for_tokens_beyond_the_end_of_texts() -> None:
    async with fake_openai(lambda tokens: {len(tokens): -0.1}) as server, Client(server.url, model="chat") as client:
        found = await client.choose((1, 2, 3), 3, "salt")
    assert [one.token for one in found] == [3, 4, 5]
    (body,) = server.seen
    assert (body["model"], body["ignore_eos"], body["temperature"], body["cache_salt"]) == ("chat", True, 0.0, "salt")
    assert "logprobs" not in body


def test_the_word_generate_asks_for_this_monitor() -> None:
    assert monitor(["generate", "/reference", "--port=1"]) == ["enginewright_builder.quality.prompted", "/reference",
                                                              "--port=1"]
    assert monitor(["/reference"]) == ["enginewright_builder.quality.monitor", "/reference"]

"""What a token takes of a replica, from the loads of a sweep."""

from __future__ import annotations

import dataclasses

import pytest

from enginewright_builder.generate.answer import Answer, Arrival
from enginewright_builder.generate.figures import Objective, figures
from enginewright_builder.generate.layers import Layers, cached_tokens
from enginewright_builder.generate.sweep import Aim, Point, point
from enginewright_builder.generate.work import MOST_READING, work_of

FREE = Aim(objective=Objective())


def load(concurrency: int, *, requests: int, prefill_ms: float = 0.0, step: float = 0.1, read: int = 1000,
         written: int = 11) -> Point:
    """``requests`` within two seconds, each with a token every ``step`` seconds after the first."""
    arrivals = tuple(Arrival(0.5 + step * number, 1) for number in range(written))
    answers = [Answer(due=0.0, end=2.0, arrivals=arrivals, prompt_tokens=read, output_tokens=written, finish="stop")
               for _ in range(requests)]
    layers = Layers(queue_ms=0.0, prefill_ms=prefill_ms, decode_ms=0.0, transport_ms=0.0) if prefill_ms else None
    return point(concurrency, figures(answers, begin=0.0, end=2.0), FREE, layers)


ALONE = load(1, requests=1, prefill_ms=200.0)
FULL = load(4, requests=8)


def test_a_busy_replica_is_busy_with_what_it_reads_and_writes() -> None:
    found = work_of([ALONE, FULL], FULL)
    assert found is not None
    assert (found.input_tokens, found.output_tokens) == (1000, 11)
    # 200 ms for 1,000 tokens, less the step of 100 ms that made the first token.
    assert found.input_seconds == pytest.approx(1e-4)
    assert 4 * (found.input_seconds * 1000 + found.output_seconds * 11) == pytest.approx(1), "4 requests a second"


def test_tokens_that_the_cache_answered_were_not_read() -> None:
    alone, full = (dataclasses.replace(one, cached_tokens=one.figures.input_tokens / 2) for one in (ALONE, FULL))
    found = work_of([alone, full], full)
    assert found is not None
    assert found.input_tokens == 500
    assert found.input_seconds == pytest.approx(2e-4)


def test_without_the_servers_own_times_the_first_token_tells() -> None:
    found = work_of([load(1, requests=1), FULL], FULL)
    assert found is not None
    assert found.input_seconds * 4000 == pytest.approx(MOST_READING), "some of the time is for writing in any case"


@pytest.mark.parametrize("points", [[FULL], [load(1, requests=1, prefill_ms=90.0), FULL]], ids=["none", "a step"])
def test_where_reading_alone_tells_nothing_all_work_is_writing(points: list[Point]) -> None:
    found = work_of(points, FULL)
    assert found is not None
    assert found.input_seconds == 0.0
    assert found.output_seconds == pytest.approx(1 / 44)


def test_a_load_without_a_token_tells_nothing() -> None:
    assert work_of([ALONE], load(4, requests=0)) is None


def test_hits_of_the_prefix_cache_are_counted_over_the_load() -> None:
    before = 'vllm:prefix_cache_hits_total{engine="0"} 16.0\nvllm:prefix_cache_hits_created{engine="0"} 1.7e9\n'
    assert cached_tokens(before, before.replace("16.0", "48.0")) == 32.0
    assert cached_tokens("", "") == 0.0

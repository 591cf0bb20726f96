"""What vLLM counts of speculation, and how many tokens at once that speaks for."""

from __future__ import annotations

import pytest

from enginewright_builder.generate.speculation import MOST, Speculated, better_number, speculated

LABELS = 'engine="0",model_name="model"'
BEFORE = f"""\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{{LABELS}}} 10.0
vllm:spec_decode_num_draft_tokens_total{{{LABELS}}} 20.0
vllm:spec_decode_num_accepted_tokens_total{{{LABELS}}} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="0"}} 6.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="1"}} 3.0
vllm:spec_decode_num_drafts_created{{{LABELS}}} 1.7e+09
"""
AFTER = f"""\
vllm:spec_decode_num_drafts_total{{{LABELS}}} 110.0
vllm:spec_decode_num_draft_tokens_total{{{LABELS}}} 220.0
vllm:spec_decode_num_accepted_tokens_total{{{LABELS}}} 129.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="0"}} 86.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{{LABELS},position="1"}} 43.0
"""


def test_a_load_is_what_grew_between_two_pages() -> None:
    assert speculated(BEFORE, AFTER) == Speculated(rounds=100, proposed=200, accepted=120, at=(80, 40))
    assert speculated("", BEFORE) == Speculated(rounds=10, proposed=20, accepted=9, at=(6, 3))


@pytest.mark.parametrize(("before", "after"), [("", ""), (AFTER, AFTER), ("", "vllm:num_requests_running 1.0")])
def test_a_server_that_did_not_speculate_has_no_figures(before: str, after: str) -> None:
    assert speculated(before, after) is None


def taken(*shares: float) -> Speculated:
    at = tuple(round(1000 * share) for share in shares)
    return Speculated(rounds=1000, proposed=1000 * len(shares), accepted=sum(at), at=at)


def time_of(found: Speculated, cost: float, alone_ms: float = 10.0) -> float:
    """Of a token, where each token that is proposed takes ``cost`` of a step of the model alone."""
    return alone_ms * (1 + cost * len(found.at)) / (1 + found.accepted / found.rounds)


@pytest.mark.parametrize(("shares", "cost", "expected"), [
    ((0.9, 0.81, 0.729, 0.656), 0.0, MOST),   # proposals that take no time: as many as there may be
    ((0.9, 0.6, 0.02, 0.01), 0.2, 2),         # the last two are never taken
    ((0.6, 0.1, 0.0, 0.0), 0.3, 1),
    ((0.8, 0.64, 0.51, 0.41), 0.15, 4),       # 5 would serve 1 % better, and that is no gain
    ((0.3, 0.09, 0.03, 0.01), 0.5, 4),        # no number is better than no speculation: none is tried
    ((0.0, 0.0, 0.0, 0.0), 0.1, 4),
    ((0.9,), 0.05, MOST),                     # each further one as often taken as the first
], ids=["free", "two", "one", "stays", "dear", "never", "first"])
def test_as_many_tokens_at_once_as_are_worth_their_time(shares: tuple[float, ...], cost: float, expected: int) -> None:
    found = taken(*shares)
    times = {"with_ms": time_of(found, cost), "alone_ms": 10.0}
    assert better_number(found, len(shares), **times, least=1.03) == expected


@pytest.mark.parametrize(("found", "alone_ms"), [(taken(0.9, 0.0), 0.0), (Speculated(rounds=1, proposed=2, accepted=1),
                                                                        10.0)])
def test_without_a_measurement_the_number_stays(found: Speculated, alone_ms: float) -> None:
    assert better_number(found, 2, with_ms=8.0, alone_ms=alone_ms, least=1.03) == 2

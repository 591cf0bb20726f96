"""The table is what the benchmarks say, and the order that it gives finds what they found, each model told by the
others."""

from __future__ import annotations

import pytest

from enginewright_builder.competition.experience import experience
from trial_order.experience import TABLE, made
from trial_order.fixed import FixedOrder
from trial_order.replay import BATCHES, PAGE, ZONE, Replay, beside_fixed, replay
from trial_order.replay import replays as replays_of

MODELS = tuple(experience("gpu").models)


@pytest.fixture(scope="module")
def replays() -> dict[tuple[str, int], Replay]:
    return {(model, budget): replay(model, budget) for model in MODELS for budget in (300, 900)}


def test_the_table_is_made_from_the_benchmarks_as_they_are() -> None:
    assert TABLE.read_text(encoding="utf-8") == made()


def test_the_page_says_how_many_cells_are_within_the_zone(replays: dict[tuple[str, int], Replay]) -> None:
    for budget in (300, 900):
        within = sum(value <= ZONE for model in MODELS for value in replays[model, budget].regret.values())
        assert f"## {budget} s: {within} of 24 cells within 3 %" in PAGE.read_text(encoding="utf-8")


def test_the_page_says_what_a_fixed_order_finds(replays: dict[tuple[str, int], Replay]) -> None:
    ours = {300: [replays[model, 300] for model in MODELS]}
    row = beside_fixed(ours, {300: replays_of(300, FixedOrder)})[-2]
    assert row.startswith("| 300 s | ")
    assert row in PAGE.read_text(encoding="utf-8")


def test_most_of_what_ships_after_300_seconds_is_within_the_zone_of_the_best(
        replays: dict[tuple[str, int], Replay]) -> None:
    """The goal is all. What is missing are two engines for one batch: EfficientNet's takes more than a minute, and
    BERT's time went into FP16 while the 8-bit graph was written."""
    late = {(model, batch): regret for model in MODELS for batch in BATCHES
            if (regret := replays[model, 300].regret[batch]) > ZONE}
    assert late.keys() <= {("bert-base", 8), ("efficientnet-b0", 8)}
    assert max(late.values()) < 1.15


def test_300_seconds_buy_nearly_what_900_do_in_nine_of_ten_cells(replays: dict[tuple[str, int], Replay]) -> None:
    pairs = [(replays[model, 300].regret[batch], replays[model, 900].regret[batch])
             for model in MODELS for batch in BATCHES]
    assert sum(short <= ZONE * long for short, long in pairs) / len(pairs) >= 0.9


@pytest.mark.parametrize("model", MODELS)
def test_no_budget_is_overdrawn_by_more_than_the_last_trial_was_dearer_than_it_is_known_to_be(
        model: str, replays: dict[tuple[str, int], Replay]) -> None:
    """Swin's engine for every batch took 131 s without its graph; the other models make it 55."""
    assert replays[model, 300].seconds <= 300 + 55


@pytest.mark.parametrize("model", MODELS)
def test_pytorchs_package_is_not_what_the_time_goes_into_first(
        model: str, replays: dict[tuple[str, int], Replay]) -> None:
    assert replays[model, 300].tried[0].startswith("tensorrt ")

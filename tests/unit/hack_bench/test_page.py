"""The benchmark's figures and page, from a made-up result."""

from __future__ import annotations

from typing import Any

import pytest

from bench import cells, page


def candidate(ms: float, *, passes: bool = True, ships: bool = True) -> dict[str, Any]:
    return {"ms": ms, "ms_low": ms * 0.99, "ms_high": ms * 1.01, "accuracy": 0.999, "passes": passes, "ships": ships}


def cell(batch: int, shipped: str, **candidates: dict[str, Any]) -> dict[str, Any]:
    return {"model": "resnet50", "batch": batch, "shipped": shipped,
            "candidates": {name.replace("_", "-"): one for name, one in candidates.items()}}


@pytest.fixture
def part() -> dict[str, Any]:
    rows = [cell(1, "fast", fast=candidate(1.0), slow=candidate(2.0), wrong=candidate(0.5, passes=False),
                 eager_fp32=candidate(4.0, ships=False), compile_fp16_graphs=candidate(0.9, ships=False)),
            cell(8, "slow", fast=candidate(1.0), slow=candidate(1.5), eager_fp32=candidate(24.0, ships=False))]
    return {"hardware": {"gpu": "GPU", "memory": "1 MiB", "driver": "1", "cpu": "CPU"}, "versions": {"torch": "2"},
            "command": "make bench-gpu MODELS=resnet50", "cells": rows, "failed": [], "serving": [
                {"model": "resnet50", "batch": 1, "candidate": "fast", "device_ms": 1.0, "bare_ms": 2.0,
                 "triton_ms": 3.0, "layers": {"queue_ms": 0.25}}],
            "builds": [{"model": "resnet50", "candidate": "fast", "graph_s": 9.0, "builder_s": 5.0,
                        "cold_s": 30.0, "warm_s": 1.0, "alone_s": 7.0}],
            "models": [{"model": "resnet50", "weights": "random",
                        "refused": [{"candidate": "wrong", "verdict": "AccuracyRefused", "reason": "0.5 < 0.99"}]}]}


def test_regret_is_against_the_best_that_passes_and_can_ship(part: dict[str, Any]) -> None:
    assert [cells.regret(row) for row in part["cells"]] == [1.0, 1.5]


def test_the_goals_figures(part: dict[str, Any]) -> None:
    found = page.summary(page.merge([part]))
    assert found["within_3_percent"] == 0.5
    assert found["worst_regret"] == 1.5
    assert found["over_eager_fp32"] == pytest.approx((4.0 * 16.0) ** 0.5)
    assert found["over_compile_fp16_graphs"] == pytest.approx(0.9)
    assert found["rebuild_cold_over_warm"] == 30.0


def test_the_page_marks_what_ships_and_what_was_refused(part: dict[str, Any]) -> None:
    text = page.page(page.merge([part]))
    assert "| fast | 0.9990 | **1.000 (0.990–1.010)** | 1.000 (0.990–1.010) |" in text
    assert "~~0.500 (0.495–0.505)~~" in text
    assert "*eager-fp32*" in text
    assert "- wrong: AccuracyRefused: 0.5 < 0.99" in text
    assert "| 1.50× | queue 0.250 |" in text
    assert "| 30.0 | 1.00 | 30.0× | 7.00 | 5.0× |" in text


def test_the_page_says_how_each_part_is_made_again(part: dict[str, Any]) -> None:
    other = {**part, "command": "make bench-gpu MODELS=vit-b16"}
    assert page.merge([part, other])["command"] == "make bench-gpu MODELS=resnet50; make bench-gpu MODELS=vit-b16"


def test_parts_of_other_hardware_are_not_merged(part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="parts differ in hardware"):
        page.merge([part, {**part, "hardware": {**part["hardware"], "gpu": "other"}}])


def test_the_interval_holds_the_median() -> None:
    found = cells.figures(tuple(float(value) for value in range(1, 100)))
    assert found["ms_low"] <= found["ms"] == 50.0 <= found["ms_high"]

"""Outcome and progress among whatever else a builder's pod prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.observe.reports import newest
from enginewright_builder.contract import Outcome, Progress, dumps

GOOD = Outcome(kind="build", ok=True, fingerprint="f" * 64)
HALF = Progress(step="sweep", fraction=0.5, detail="batch 8")


def test_outcome_of_a_termination_message() -> None:
    assert newest(Outcome, "outcome", [GOOD.to_termination_message()]) == GOOD


@pytest.mark.parametrize(
    "line",
    ["", "Traceback: outcome unknown", '{"event": "outcome"}', '{"event": "outcome", "kind": "build", "ok": tr',
     dumps(HALF), GOOD.to_json().replace('"version":1', '"version":2')],
)
def test_what_is_no_outcome(line: str) -> None:
    assert newest(Outcome, "outcome", [line]) is None


def test_the_newest_progress_line_wins_among_other_output() -> None:
    older = dumps(Progress(step="export", fraction=0.2))
    log = [older, "UserWarning: something", dumps(HALF), '{"event": "progress", "step": "cut o']
    assert newest(Progress, "progress", reversed(log)) == HALF


@given(st.lists(st.text(max_size=60), max_size=5))
def test_any_output_is_survived(lines: list[str]) -> None:
    assert newest(Progress, "progress", [*lines, "progress"]) is None

"""Outcome and progress among whatever else a builder's pod prints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.observe.reports import newest, outcome_of
from enginewright_builder.contract import Outcome, Progress, dumps

GOOD = Outcome(kind="build", ok=True, fingerprint="f" * 64)
HALF = Progress(step="sweep", fraction=0.5, detail="batch 8")


def test_outcome_of_a_termination_message() -> None:
    assert newest(Outcome, "outcome", [GOOD.to_termination_message()]) == GOOD


SIDECAR = {"name": "server", "restartPolicy": "Always"}


@pytest.mark.parametrize(("state", "sidecars", "told"), [
    ({"terminated": {"exitCode": 0, "message": GOOD.to_termination_message()}}, [], GOOD),
    ({"terminated": {"exitCode": 3, "message": GOOD.to_termination_message()}}, [], None),
    ({"terminated": {"exitCode": 0, "message": GOOD.to_termination_message()}}, [SIDECAR], None),
    ({"running": {}}, [], None),
], ids=["well", "badly", "beside a sidecar", "not yet"])
def test_a_container_that_has_ended_well_is_not_waited_for(state: dict[str, Any], sidecars: list[dict[str, Any]],
                                                           told: Outcome | None) -> None:
    """The kubelet calls the pod running for another second, until its network is gone."""
    pod = {"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"initContainers": sidecars},
           "status": {"phase": "Running", "containerStatuses": [{"name": "resolve", "state": state}]}}
    assert outcome_of([pod]) == told


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

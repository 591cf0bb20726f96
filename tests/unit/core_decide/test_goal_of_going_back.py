"""Which revision is gone back to when nobody names one, from status alone."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import ConditionStatus, RevisionStatus, RolloutStatus, Status
from enginewright.core.way_back import good_ones, way_back

TIME = "2026-11-21T12:00:00Z"
DRIFTED = Reason.QUALITY_DRIFTED


def entry(text: str, **fields: Any) -> RevisionStatus:
    """``name/engine/outcome``; outcomes by their first letters."""
    name, engine, short = text.split("/")
    outcome = {"S": "Serving", "O": "Superseded", "R": "RolledBack"}[short]
    return RevisionStatus.model_validate(
        {"revision": name, "fingerprint": engine, "outcome": outcome, "promotionTime": TIME, **fields})


def status(*revisions: RevisionStatus, candidate: str | None = None, drifted: bool = False) -> Status:
    told = ConditionStatus(type=Condition.QUALITY_HELD, status="False" if drifted else "True", reason="Said",
                           message="Told.", observed_generation=1, last_transition_time=TIME)
    return Status(conditions=(told,), revisions=revisions,
                  rollout=RolloutStatus(stable=revisions[0].revision if revisions else None, candidate=candidate))


@pytest.mark.parametrize(("known", "ways"), [
    (status(), []),
    (status(entry("c/x/S")), []),
    (status(entry("c/x/S"), entry("b/y/O"), entry("a/z/O")), ["b", "a"]),
    (status(entry("c/x/S"), entry("b/x/O"), entry("a/z/O")), ["b", "a"]),
    # Given up, or never promoted.
    (status(entry("d/w/R"), entry("c/x/S"), entry("b/y/O")), ["b"]),
    (status(entry("d/w/O", promotionTime=None), entry("c/x/S"), entry("b/y/O")), ["b"]),
    # The engine that drifts now answers alike in other pods.
    (status(entry("c/x/S"), entry("b/x/O"), entry("a/z/O"), drifted=True), ["a"]),
    (status(entry("c/x/S"), entry("b/x/O"), drifted=True), []),
    # One that has drifted before, and whose place another took since.
    (status(entry("d/x/R", reason=DRIFTED), entry("c/y/S"), entry("b/x/O"), entry("a/z/O")), ["a"]),
    (status(entry("d/x/R", reason="Crashing"), entry("c/y/S"), entry("b/x/O"), entry("a/z/O")), ["b", "a"]),
    # In the middle of a rollout it is the new revision that is left.
    (status(entry("c/x/S"), entry("b/y/O"), candidate="d"), ["c", "b"]),
    (status(entry("c/x/S"), entry("b/y/O"), candidate="d", drifted=True), ["b"]),
    (status(entry("c/x/S"), entry("b/y/O"), entry("a/z/O"), candidate="b"), ["c", "a"]),
    (status(entry("c/x/S"), entry("b/y/O"), candidate="c"), ["b"]),
])
def test_the_best_comes_first(known: Status, ways: list[str]) -> None:
    assert [found.revision for found in way_back(known)] == ways


def test_what_served_last_comes_before_what_was_promoted_later() -> None:
    """One that was given up may stand before the one that serves."""
    kept = (entry("d/w/O"), entry("c/x/S"), entry("b/y/R"))
    assert [found.revision for found in good_ones(kept, "e")] == ["c", "d"]

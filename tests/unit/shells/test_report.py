"""Status as it is compared and written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from enginewright.act.report import difference, plain, refused
from enginewright.core.observed import ObjectView
from enginewright.core.reasons import Reason
from enginewright_builder.contract import Progress

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BEFORE = "2026-11-21T11:00:00Z"


def view(status: dict[str, Any]) -> ObjectView:
    return ObjectView(name="m", namespace="ns", uid="u", generation=3, resource_version="9", deleting=False,
                      annotations={}, spec={}, status=status)


def condition(kind: str, status: str, reason: str = "R") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "observedGeneration": 3,
            "lastTransitionTime": BEFORE}


def test_plain_is_what_comes_back_from_the_apiserver() -> None:
    status = {"a": None, "b": (1, {"c": None, "d": Reason.BUILT}), "e": Progress(step="s", fraction=0.5), "f": 0}
    assert plain(status) == {
        "b": [1, {"d": "Built"}], "e": {"step": "s", "fraction": 0.5, "detail": "", "event": "progress"}, "f": 0
    }
    assert type(plain(Reason.BUILT)) is str


def test_a_refused_action_makes_the_object_not_ready_and_leaves_the_rest() -> None:
    status = {"replicas": 2, "summary": {"reason": "Serving", "engine": "onnxruntime"},
              "conditions": [condition(kind, "True") for kind in ("Available", "Ready", "Last")]}
    told = refused(view({}), status, Reason.API_REFUSED, "no quota", NOW)
    assert [entry["type"] for entry in told["conditions"]] == ["Available", "Ready", "Last"]
    ready = told["conditions"][1]
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "ApiRefused", "no quota")
    assert (ready["observedGeneration"], ready["lastTransitionTime"]) == (3, "2026-11-21T12:00:00Z")
    assert told["summary"] == {"reason": "ApiRefused", "engine": "onnxruntime"}
    assert told["replicas"] == 2


def test_telling_it_again_changes_nothing() -> None:
    """Else each retry would write status, and wake itself up by it."""
    status = {"conditions": [condition("Ready", "True")]}
    first = refused(view({}), status, Reason.API_REFUSED, "no quota", NOW)
    later = datetime(2026, 11, 21, 13, tzinfo=UTC)
    assert plain(refused(view(plain(first)), status, Reason.API_REFUSED, "no quota", later)) == plain(first)


def test_an_object_without_status_is_told_too() -> None:
    assert refused(view({}), {}, Reason.OPERATOR_ERROR, "broken", NOW)["conditions"][0]["type"] == "Ready"


def test_difference_names_the_path() -> None:
    wanted = {"a": {"b": [1, {"c": 2}]}, "z": 1}
    assert difference(wanted, {"a": {"b": [1, {"c": 3}]}, "z": 1}) == "a.b[1].c"
    assert difference(wanted, {"a": {"b": [1]}, "z": 1}) == "a.b"
    assert difference(wanted, {"a": {"b": [1, {"c": 2}]}}) == "z"

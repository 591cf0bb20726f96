"""What the report page is told of a model's scaling."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from enginewright.clients.prometheus import public
from enginewright.plugin.history import PLACE, filled, history
from enginewright.plugin.main import parser
from enginewright.plugin.measured import queries, with_gaps

NOW = datetime(2026, 11, 22, 11, 0, tzinfo=UTC)
TEN = {"time": "2026-11-22T10:10:00Z", "from": 1, "to": 3, "reason": "7 queued"}
HALF = {"time": "2026-11-22T10:30:00Z", "from": 3, "to": 2, "reason": "none queued </script>"}


def model(replicas: int | None, *decisions: dict[str, Any]) -> dict[str, Any]:
    return {"status": {"replicas": replicas, "autoscaling": {"decisions": list(decisions)}}}


def steps(found: dict[str, Any]) -> list[tuple[str, float]]:
    return [(row["time"][11:16], row["replicas"]) for row in found["datasets"]["replicas"]]


@pytest.mark.parametrize(
    ("obj", "drawn", "start", "words"),
    [
        ({}, [], "11:00", "as of 2026-11-22 11:00:00 UTC: the autoscaler has changed nothing"),
        (model(2), [], "11:00", "2 replicas as of"),
        (model(3, TEN), [("10:07", 1), ("10:10", 3), ("11:00", 3)], "10:07", "the autoscaler's last change is below"),
        (model(1, HALF, TEN), [("10:07", 1), ("10:10", 3), ("10:30", 2), ("11:00", 1)], "10:07",
         "1 replica as of 2026-11-22 11:00:00 UTC: the autoscaler's last 2 changes are below, newest first"),
        (model(None, HALF), [("10:28", 3), ("10:30", 2), ("11:00", 2)], "10:28", "last change is below"),
    ],
)
def test_replicas_follow_from_decisions(obj: dict[str, Any], drawn: list[tuple[str, float]], start: str,
                                        words: str) -> None:
    found = history(obj, NOW)
    assert steps(found) == drawn
    assert (found["from"][11:16], found["to"]) == (start, "2026-11-22T11:00:00Z")
    assert words in found["words"]
    assert "--prometheus" in found["words"]


def test_what_prometheus_has_goes_before_what_follows_from_decisions() -> None:
    at = NOW.timestamp()
    measured = {"replicas": [(at - 7200, 1.0), (at, 2.0)], "queued": [(at - 60, 4.0)], "rate": []}
    found = history(model(2, TEN), NOW, measured)
    assert steps(found) == [("09:00", 1.0), ("11:00", 2.0)]
    assert found["from"] == "2026-11-22T09:00:00Z"
    assert found["datasets"]["queued"] == [{"time": "2026-11-22T10:59:00Z", "value": 4.0}]
    assert found["datasets"]["rate"] == []
    assert "--prometheus" not in found["words"]


def test_a_value_that_is_no_number_is_none() -> None:
    at = NOW.timestamp()
    found = history(model(2), NOW, {"replicas": [(at, float("nan"))], "queued": [(at, float("inf"))], "rate": []})
    assert found["datasets"]["replicas"][0]["replicas"] is None
    assert found["datasets"]["queued"][0]["value"] is None
    assert filled(PLACE.format("null"), found)


@pytest.mark.parametrize(
    ("times", "missing"),
    [((), ()), ((0, 15, 30, 45), ()), ((0, 15, 45), (30,)), ((0, 15), (30,)), ((30, 45), ())],
)
def test_where_nothing_was_exported_there_is_a_gap(times: tuple[float, ...], missing: tuple[float, ...]) -> None:
    found = with_gaps([(at, 1.0) for at in times], 15.0, 50.0)
    assert tuple(at for at, value in found if value != value) == missing
    assert tuple(at for at, value in found if value == value) == times


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://user:secret@prometheus:9090/x@y", "http://prometheus:9090/x@y"),
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("https://token@prometheus", "https://prometheus"),
    ],
)
def test_a_password_in_the_url_is_not_said(url: str, said: str) -> None:
    assert public(url) == said


def test_a_prometheus_that_knows_nothing_leaves_the_decisions() -> None:
    found = history(model(3, TEN), NOW, {"replicas": [], "queued": [], "rate": []})
    assert steps(found) == [("10:07", 1), ("10:10", 3), ("11:00", 3)]


def test_what_it_costs_stands_beside_it() -> None:
    assert history(model(2), NOW)["money"] == ""
    engine = {"fingerprint": "f" * 64, "backend": "tensorrt", "precision": "fp16", "speedup": 2.0}
    cost = {"perMillionInferences": 0.2, "currency": "EUR", "pricePerHour": 2.5}
    assert "would cost 0.4 EUR" in history({"status": {"engine": engine, "cost": cost}}, NOW)["money"]


def test_it_stands_in_the_page_as_data() -> None:
    before = f"<p>null</p>{PLACE.format('null')}<p>null</p>"
    page = filled(before, history(model(2, HALF), NOW))
    assert page
    inner = page.removeprefix("<p>null</p>" + PLACE.split("{}")[0]).removesuffix("</script><p>null</p>")
    assert "<" not in inner
    assert json.loads(inner)["datasets"]["decisions"] == [HALF]
    assert filled(page, {}) is None, "it has one already"


def test_nothing_falls_between_two_steps() -> None:
    assert "[576s]" in queries('namespace="a"', 288.0)["rate"]
    assert "[120s]" in queries('namespace="a"', 15.0)["rate"]


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "100000"])
def test_hours_that_are_none(hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["report", "minilm", "--hours", hours])
    assert "write hours above 0" in capsys.readouterr().err

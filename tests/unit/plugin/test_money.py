"""What ``explain`` says in money."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.status import read_status
from enginewright.plugin.money import before_and_after, sentences

NOW = "2026-01-01T00:00:00Z"
SERVED = {"perSecond": 1200.0, "perMillion": 0.5787, "idleShare": 0.7, "savedPerHour": 2.5, "time": NOW}
COST = {"perMillionInferences": 0.1736, "currency": "EUR", "pricePerHour": 2.5, "throughput": 4000.0, "served": SERVED}
ENGINE = {"fingerprint": "f" * 64, "backend": "tensorrt", "precision": "fp16", "buildSeconds": 300.0}
FP16 = {"backend": "tensorrt", "precision": "fp16", "batch": 8, "throughput": 4000.0, "verdict": "Shipped",
        "serves": [8]}
INT8 = {"backend": "tensorrt", "precision": "int8", "batch": 8, "throughput": 6000.0, "verdict": "AccuracyRefused"}


def said(**status: Any) -> str:
    return "\n".join(sentences(read_status({"replicas": 1, "engine": ENGINE, "cost": COST, **status})))


def test_without_a_price_nothing_is_said() -> None:
    assert said(cost=None) == ""


def test_of_live_traffic_the_build_and_one_replica_more() -> None:
    assert said().splitlines() == [
        "Cost: 0.1736 EUR for a million inferences at the objective.",
        "Served: 1200 inferences a second in the last minute, which cost 0.5787 EUR a million; 70% of what the "
        "replicas can answer was idle.",
        "Build: 5m of its device for 0.208 EUR. At this traffic replicas of the source model would cost 2.5 EUR an "
        "hour more: it pays for itself in 5m.",
        "One replica more costs 2.5 EUR an hour and answers up to 4000 inferences a second more. What is idle "
        "costs 1.75 EUR an hour: lower autoscaling.minReplicas, or place the model on a smaller device."]


def test_a_build_that_never_pays_for_itself() -> None:
    found = said(cost={**COST, "served": {**SERVED, "savedPerHour": 0.0}})
    assert "never pays for itself in money" in found


@pytest.mark.parametrize("changed", [{"engine": {**ENGINE, "cacheHit": True}}, {"cost": {
    **COST, "served": {key: value for key, value in SERVED.items() if key != "savedPerHour"}}}])
def test_of_a_build_that_nobody_paid_or_compared_nothing_is_said(changed: dict[str, Any]) -> None:
    assert "Build:" not in said(**changed)


def test_what_accuracy_alone_keeps_from_serving() -> None:
    assert "tensorrt int8 was 1.50 times as fast" in said(candidates=[FP16, INT8])
    assert "about 0.116 EUR" in said(candidates=[FP16, INT8])
    assert "refused" not in said(candidates=[FP16, {**INT8, "throughput": 3000.0}])
    assert "refused" not in said(candidates=[FP16, {**INT8, "batch": 1}])


def test_which_class_is_the_cheapest() -> None:
    classes = [{"name": name, "model": name, "ready": "True", "reason": "Serving", "perMillionInferences": price}
               for name, price in (("h100", 0.4), ("l4", 0.2))]
    assert said(cost=None, engine=None, classes=classes) == (
        "Cheapest class at the objective: l4; a million inferences cost 2 times as much on h100.")
    assert said(cost=None, engine=None, classes=classes[:1]) == ""


def test_of_a_language_model_in_tokens() -> None:
    engine = {**ENGINE, "tokens": {"outputRate": 900.0}}
    cost = {"perMillionTokens": 0.8, "currency": "EUR", "pricePerHour": 2.5}
    assert said(engine=engine, cost=cost).splitlines() == [
        "Cost: 0.8 EUR for a million tokens at the objective.",
        "One replica more costs 2.5 EUR an hour and answers up to 900 tokens a second more."]


def test_before_and_after_in_one_sentence() -> None:
    found = before_and_after(read_status({"engine": {**ENGINE, "speedup": 4.1}, "cost": COST}))
    assert found == (
        "Before, with the source model, a million inferences would cost 0.7118 EUR, by the speed-up of 4.10 that the "
        "build measured; with this engine they cost 0.1736 EUR at the objective. One replica costs 2.5 EUR an hour.")


@pytest.mark.parametrize("status", [
    {}, {"cost": COST}, {"engine": ENGINE, "cost": COST}, {"engine": {**ENGINE, "speedup": 4.1}},
    {"engine": {**ENGINE, "speedup": 4.1}, "cost": {"perMillionTokens": 2.0, "currency": "EUR", "pricePerHour": 2.5}},
], ids=["nothing", "no engine", "not compared", "no price", "a language model"])
def test_without_a_price_or_a_comparison_there_is_no_before(status: dict[str, Any]) -> None:
    assert before_and_after(read_status(status)) == ""

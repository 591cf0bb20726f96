"""Series of the objects' statuses."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from enginewright.observe.keys import Key
from enginewright.reconcile.exposed import Exposed

KEY = Key("prod", "minilm")
OF_IT = {"namespace": "prod", "optimisedmodel": "minilm"}


def status(value: str, reason: str) -> dict[str, object]:
    return {"conditions": [{"type": "Ready", "status": value, "reason": reason, "message": "…"}],
            "cost": {"perMillionInferences": 1.5, "currency": "EUR"}}


def ready(registry: CollectorRegistry, value: str, reason: str) -> float | None:
    return registry.get_sample_value(
        "enginewright_condition", {**OF_IT, "type": "Ready", "status": value, "reason": reason})


def cost(registry: CollectorRegistry) -> float | None:
    return registry.get_sample_value("enginewright_cost_per_million_inferences", {**OF_IT, "currency": "EUR"})


def test_the_newest_status_and_nothing_of_what_is_gone() -> None:
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)
    exposed.remember(KEY, status("False", "Building"), {})
    assert (ready(registry, "False", "Building"), cost(registry)) == (1, 1.5)
    exposed.remember(KEY, status("True", "Serving"), {})
    assert (ready(registry, "False", "Building"), ready(registry, "True", "Serving")) == (None, 1)
    exposed.forget(KEY)
    assert (ready(registry, "True", "Serving"), cost(registry)) == (None, None)
    exposed.forget(KEY)


def test_what_live_traffic_costs() -> None:
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)
    told = status("True", "Serving")
    served = {"perSecond": 5.0, "perMillion": 4.5, "idleShare": 0.75, "time": "2026-01-01T00:00:00Z"}

    def seen() -> tuple[float | None, float | None]:
        return (registry.get_sample_value("enginewright_cost_per_million_served", {**OF_IT, "currency": "EUR"}),
                registry.get_sample_value("enginewright_idle_share", OF_IT))

    exposed.remember(KEY, {**told, "cost": {"perMillionInferences": 1.5, "currency": "EUR", "served": served}}, {})
    assert seen() == (4.5, 0.75)
    none = {"perSecond": 0.0, "idleShare": 1.0, "time": "2026-01-01T00:00:00Z"}
    exposed.remember(KEY, {**told, "cost": {"perMillionInferences": 1.5, "currency": "EUR", "served": none}}, {})
    assert seen() == (None, 1.0)
    exposed.remember(KEY, told, {})
    assert seen() == (None, None)


def test_how_far_live_answers_agree() -> None:
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)
    told = {"agreement": 0.995, "low": 0.99, "high": 0.999, "required": 0.98, "samples": 700}
    exposed.remember(KEY, {**status("True", "Serving"), "quality": told}, {})
    found = {bound: registry.get_sample_value("enginewright_quality_agreement", {**OF_IT, "bound": bound})
             for bound in ("mean", "low", "high", "required")}
    assert found == {"mean": 0.995, "low": 0.99, "high": 0.999, "required": 0.98}
    assert registry.get_sample_value("enginewright_quality_samples", OF_IT) == 700
    exposed.remember(KEY, {**status("True", "Serving"), "quality": {**told, "agreement": 0.0, "samples": 0}}, {})
    assert registry.get_sample_value("enginewright_quality_agreement", {**OF_IT, "bound": "mean"}) is None
    exposed.remember(KEY, status("True", "Serving"), {})
    assert registry.get_sample_value("enginewright_quality_samples", OF_IT) is None


def test_what_has_no_conditions_yet_has_no_series() -> None:
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)
    exposed.remember(KEY, {}, {})
    assert [sample for metric in registry.collect() for sample in metric.samples] == []


def test_inferences_a_joule_of_the_build_where_its_power_was_measured() -> None:
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)

    def rate() -> float | None:
        return registry.get_sample_value("enginewright_engine_inferences_per_joule", OF_IT)

    exposed.remember(KEY, {"engine": {"throughput": 900.0, "powerWatts": 300.0}}, {})
    assert rate() == 3.0
    exposed.remember(KEY, {"engine": {"throughput": 900.0}}, {})
    assert rate() is None


def series(spec: dict[str, object], status: dict[str, object] | None = None) -> dict[tuple[str, str], float]:
    """By name and quantile."""
    registry, exposed = CollectorRegistry(), Exposed()
    registry.register(exposed)
    exposed.remember(KEY, status or {}, spec)
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    assert all({name: sample.labels[name] for name in OF_IT} == OF_IT for sample in samples)
    return {(sample.name, sample.labels["quantile"]): sample.value for sample in samples}


OBJECTIVE, LIVE = "enginewright_objective_latency_seconds", "enginewright_live_latency_seconds"


@pytest.mark.parametrize(("latency", "quantile"), [
    ({"milliseconds": 20}, "0.99"), ({"milliseconds": 20, "percentile": 99}, "0.99"),
    ({"milliseconds": 20, "percentile": 99.9}, "0.999"), ({"milliseconds": 20.0, "percentile": 50}, "0.5"),
    ({"milliseconds": 20, "percentile": 99.99}, "0.9999"),
])
def test_the_objective_has_its_quantile_as_triton_writes_it(latency: dict[str, object], quantile: str) -> None:
    assert series({"objective": {"latency": latency}}) == {(OBJECTIVE, quantile): 0.02}


def test_an_objective_of_tokens_has_a_series_for_each_of_its_times() -> None:
    first, further = "enginewright_objective_first_token_seconds", "enginewright_objective_token_seconds"
    asked: dict[str, object] = {"ttftMilliseconds": 400, "tpotMilliseconds": 50, "percentile": 95}
    assert series({"objective": {"tokens": asked}}) == {(first, "0.95"): 0.4, (further, "0.95"): 0.05}
    assert series({"objective": {"tokens": {"ttftMilliseconds": 400}}}) == {(first, "0.99"): 0.4}


@pytest.mark.parametrize("spec", [
    {"objective": {"tokens": {"tpotMilliseconds": 50}}}, {"objective": {"tokens": {"ttftMilliseconds": "400"}}},
    {"objective": {"tokens": {"ttftMilliseconds": 400, "percentile": True}}}, {"objective": {"tokens": 5}},
    {}, {"objective": {"throughput": 5}}, {"objective": "fast"}, {"objective": {"latency": 20}},
    {"objective": {"latency": {"milliseconds": "20"}}}, {"objective": {"latency": {"milliseconds": True}}},
    {"objective": {"latency": {"milliseconds": 20, "percentile": "99"}}},
])
def test_without_an_objective_there_is_no_series(spec: dict[str, object]) -> None:
    assert series(spec) == {}


def test_the_live_p99_is_that_of_the_status() -> None:
    assert series({}, {"autoscaling": {"p99Milliseconds": 31.5}}) == {(LIVE, "0.99"): 0.0315}
    assert series({}, {"autoscaling": {"queueDepth": 3}}) == {}

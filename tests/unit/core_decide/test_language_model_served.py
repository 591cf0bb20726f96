"""From the record of a published language model to replicas that serve it, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.conditions import unknown
from enginewright.core.config import OperatorConfig, Prices
from enginewright.core.decide.conditions.evidence import objective
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.manifests import engine_record, read_record
from enginewright.core.manifests.record import OUTCOME_FILE
from enginewright.core.observed import ClaimView
from enginewright.core.plan import Apply
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import Spec
from enginewright.reconcile.targets import target_of
from enginewright_builder.contract import Outcome, TokenWork
from support.cluster import SPEC, Cluster, resolved
from support.published_language_model import built_language_model, language_model

H100 = "NVIDIA-H100-80GB-HBM3"
STORE = "pvc://enginewright-store"


def served(config: OperatorConfig | None = None, spec: dict[str, Any] | None = None, **changes: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, **(spec or {})}, config=config or OperatorConfig())
    finish(cluster, built_language_model(built_at=cluster.now, **changes))
    cluster.settle()
    return cluster


def finish(cluster: Cluster, outcome: Outcome) -> None:
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(outcome, of="build")


def test_what_a_build_published_is_served() -> None:
    cluster = served()
    assert cluster.says("Ready").startswith("True/")
    assert cluster.says("EngineBuilt") == "True/Built"
    assert "the vllm bf16 language model" in cluster.condition("EngineBuilt")["message"]
    assert cluster.says("ObjectiveMet") == "True/NoObjective"
    first_token = cluster.status["engine"]["tokens"]["ttftP99Milliseconds"]
    assert cluster.status["summary"]["p99"] == f"{first_token:.1f} ms"
    (record,) = cluster.records.values()
    assert record.outcome.generate == language_model()


def test_without_an_objective_it_says_what_could_be_asked_for() -> None:
    spec = Spec.model_validate({**SPEC, "task": "generate"})
    engine = EngineResult(verdict=unknown(Condition.ENGINE_BUILT, Reason.WAITING_FOR_SOURCE, ""))
    assert objective(spec, engine).message == "spec.objective asks for no times of tokens."


@pytest.mark.parametrize(("changes", "told", "said"), [
    ({"requests": 640}, "True/Met", "640 tokens a second, by 640 requests after it was chosen."),
    ({}, "True/Met", "640 tokens a second."),
    ({"objective_met": False, "requests": 40, "requests_to_show": 150}, "Unknown/ObjectiveUnknown",
     "met takes 150 requests, and the build measured 40); give engine.buildBudgetSeconds more and rebuild, or"),
    ({"objective_met": False, "requests": 640}, "False/NotMet", "the best configuration that was found misses it"),
], ids=["enough requests", "an older builder's record", "too few requests", "missed"])
def test_its_objective_is_met_by_requests_that_did_not_choose_it(changes: dict[str, Any], told: str,
                                                                 said: str) -> None:
    cluster = served(spec={"objective": {"latency": {"milliseconds": 100}}}, **changes)
    assert cluster.says("ObjectiveMet") == told
    assert said in cluster.condition("ObjectiveMet")["message"]


def test_its_accuracy_is_told_in_next_tokens() -> None:
    """With what the user wrote, and with what the unquantised model itself chooses otherwise."""
    told = served(noise_floor=0.015).condition("AccuracyVerified")
    assert (told["status"], told["reason"]) == ("True", "Verified")
    assert "0.9980 of the next tokens after 120 prompts" in told["message"]
    assert "at least 0.9955" in told["message"]
    assert ("0.9750 is needed: maxLoss is 0.01, and that model itself chooses 0.0150 otherwise" in told["message"])


def test_it_runs_vllm_behind_a_service_of_its_one_port() -> None:
    cluster = Cluster()
    finish(cluster, built_language_model(built_at=cluster.now))
    made: dict[str, Any] = {}
    for _ in range(20):
        plan = cluster.move(5)
        made |= {action.manifest["kind"]: action.manifest for action in plan.actions if isinstance(action, Apply)}
    (server,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert [*server["command"][-2:], *server["args"][:2]] == [
        "vllm", "serve", "/models/minilm", "--served-model-name=minilm"]
    assert [port["name"] for port in made["Service"]["spec"]["ports"]] == ["http"]


def test_the_service_stays_as_it_is_when_the_record_has_gone() -> None:
    """Which server runs is read from the record, where it is there."""
    cluster = served()
    before, engine = dict(cluster.applied), cluster.status["engine"]
    cluster.step()
    assert cluster.applied == before
    cluster.records.clear()
    cluster.operate()
    assert cluster.status["engine"] == engine


def test_the_store_has_it_already() -> None:
    first = served()
    other = Cluster(records=first.records, name="other", uid="u-2")
    other.operate()
    other.finish(resolved())
    other.settle()
    assert other.says("EngineBuilt") == "True/CacheHit"
    assert other.says("Ready").startswith("True/")
    assert not [job for job in other.jobs.values() if job.step == "build"]


def test_its_record_is_written_and_read() -> None:
    outcome = built_language_model("f" * 64)
    manifest = engine_record("prod", ClaimView(name="c", uid="u", phase="Bound"), STORE, outcome)
    record = read_record({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": "1"}})
    assert record is not None
    assert record.outcome == outcome
    nothing = replace(outcome, generate=None)
    assert read_record({**manifest, "data": {OUTCOME_FILE: nothing.to_json()}}) is None


def test_status_has_its_figures() -> None:
    cluster = served()
    engine = cluster.status["engine"]
    assert (engine["backend"], engine["precision"], engine["ships"], engine["speedup"]) == (
        "vllm", "bf16", "vllm bf16, n-grams", 1.5)
    assert engine["tokens"] == {
        "ttftP50Milliseconds": 61.5, "ttftP99Milliseconds": 98.25, "tpotP50Milliseconds": 11.0,
        "tpotP99Milliseconds": 14.5, "outputRate": 640.0, "goodput": 9.75, "concurrency": 8}
    assert not {"p99Milliseconds", "throughput", "tritonBackend"} & engine.keys()
    summary = cluster.status["summary"]
    assert (summary["engine"], summary["precision"], summary["speedup"]) == ("vllm", "bf16", "1.5x")
    assert [one["tokens"]["outputRate"] for one in cluster.status["candidates"] if "tokens" in one] == [640.0, 640.0]
    assert "batching" not in cluster.status


def test_history_keeps_it_and_going_back_needs_no_build() -> None:
    cluster = served()
    (entry,) = cluster.status["revisions"]
    assert (entry["backend"], entry["precision"], entry["speedup"], entry["accuracyLow"]) == (
        "vllm", "bf16", 1.5, 0.9955)
    assert "p99Milliseconds" not in entry
    (kept,) = cluster.kept.values()
    assert kept.outcome.generate == language_model()


@pytest.mark.parametrize(("changes", "price"), [
    ({}, 0.15625),  # 0.36 an hour, 640 tokens a second
    ({"objective_met": False}, None),
    ({"objective_met": False, "requests": 40, "requests_to_show": 150}, 0.15625),
    ({"device_class": "NVIDIA-L4"}, None),
])
def test_a_million_tokens_cost_what_their_hours_cost(changes: dict[str, Any], price: float | None) -> None:
    config = OperatorConfig(prices=Prices(currency="EUR", per_hour={"cpu": 0.36}))
    cluster = served(config, **changes)
    if price is None:
        assert "cost" not in cluster.status
    else:
        assert cluster.status["cost"] == {"perMillionTokens": pytest.approx(price, rel=1e-3), "currency": "EUR",
                                          "pricePerHour": 0.36}
        assert cluster.status["summary"]["cost"] == "0.1562 EUR"


def test_a_ceiling_of_cost_knows_its_device() -> None:
    config = OperatorConfig(prices=Prices(currency="EUR", per_hour={"cpu": 0.36}))
    scaled = {"autoscaling": {"minReplicas": 1, "maxReplicas": 9, "costCeilingPerHour": 0.8}}
    assert served(config, scaled).status["autoscaling"]["maxReplicas"] == 2
    unpriced = served(None, scaled).condition("ScalingActive")
    assert unpriced["reason"] == "PriceUnknown"
    assert "no price of cpu is known" in unpriced["message"]


@pytest.mark.parametrize("algorithm", ["measured", "queue"])
def test_its_load_scales_it_by_work_or_as_the_user_asks_by_its_queue_alone(algorithm: str) -> None:
    work = TokenWork(input_tokens=50.0, output_tokens=64.0, input_seconds=0.0004, output_seconds=0.00125)
    cluster = served(spec={"autoscaling": {"minReplicas": 1, "maxReplicas": 4, "algorithm": algorithm}}, work=work)
    cluster.queue(200.0, seconds=10)
    plan = cluster.operate()
    assert cluster.status["autoscaling"]["desiredReplicas"] > 1
    capacity = target_of(cluster.view(), cluster.observe(), plan).capacity
    assert (capacity.work if capacity else None) == (work if algorithm == "measured" else None)


def test_while_none_runs_the_activator_asks_after_vllms_own_health() -> None:
    cluster = served()
    cluster.edit(autoscaling={"minReplicas": 0, "maxReplicas": 4})
    written = {(one.manifest["kind"], one.manifest["metadata"]["name"]): one.manifest
               for _ in range(4) for one in cluster.step().actions if isinstance(one, Apply)}
    (container,) = written["Deployment", "minilm-activator"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][3:] == ["--live-path=/health", "--ready-path=/health"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"
    assert [port["name"] for port in written["Service", "minilm-replicas"]["spec"]["ports"]] == ["http"]


def test_one_that_misses_its_objective_is_not_served_where_the_spec_requires_it() -> None:
    asked = {"rollout": {"requireObjective": True}, "objective": {"latency": {"milliseconds": 5}}}
    cluster = served(spec=asked, objective_met=False)
    told = cluster.condition("RolloutComplete")
    assert told["reason"] == "ObjectiveMissed"
    assert "p99 98.2 ms until the first token" in told["message"]
    assert "spec.objective.tokens" in told["message"]
    assert cluster.says("ObjectiveMet") == "False/NotMet"
    assert not cluster.pods


def test_two_of_them_are_compared_by_what_servers_count_and_not_by_their_answers() -> None:
    """A second revision of the same source: of engines, outputs would be compared."""
    cluster = served(spec={"rollout": {"analysis": {"seconds": 60}}})
    before = cluster.status["rollout"]["stable"]
    built_again(cluster)
    asked = None
    for _ in range(12):
        plan = cluster.step()
        asked = asked or plan.question
    assert asked is not None
    assert (asked.generates, asked.limits.similarity, asked.mirror) == (True, None, False)
    cluster.settle()
    assert cluster.says("Ready").startswith("True/")
    assert cluster.status["rollout"]["stable"] != before


def built_again(cluster: Cluster) -> None:
    cluster.edit(engine={"precision": "fp32"})
    cluster.operate()
    cluster.finish(built_language_model(built_at=cluster.now, precision="fp32"), of="build")


def test_one_with_slower_tokens_is_rolled_back_and_both_figures_are_said() -> None:
    cluster = served(spec={"rollout": {"analysis": {"seconds": 60}}})
    before = cluster.status["rollout"]["stable"]
    built_again(cluster)
    asked = None
    for _ in range(60):
        cluster.slower = {name: 2.0 for name in cluster.replicas() if name != before}
        plan = cluster.step()
        asked = asked or plan.question
        if cluster.says("RolloutComplete") == "False/RolledBack":
            break
    assert asked is not None
    assert asked.limits.alike
    told = cluster.condition("RolloutComplete")
    assert "By its time per token it is slower than the stable revision" in told["message"]
    assert "time per token 60 ms against 30 ms, ratio 2.00" in told["message"]
    assert "raise spec.rollout.analysis.maxSlowdown" in told["message"]
    found = cluster.status["rollout"]["analysis"]
    assert (found["measure"], found["ratio"]) == ("time per token", 2.0)


def test_a_slice_that_misses_the_objective_is_followed_by_a_larger_one() -> None:
    cluster = Cluster(spec={**SPEC, "placement": {"gpu": {"product": H100}, "mig": {"profile": "auto"}}})
    finish(cluster, built_language_model(built_at=cluster.now, objective_met=False, device_class=f"{H100}/1g.10gb"))
    for _ in range(6):
        cluster.step()
    (tried,) = cluster.status["placement"]["tried"]
    assert tried["reason"] == "NotMet"
    assert "640 tokens a second" in tried["message"]


def test_a_slice_on_which_too_few_requests_kept_the_objective_will_do() -> None:
    cluster = Cluster(spec={**SPEC, "placement": {"gpu": {"product": H100}, "mig": {"profile": "auto"}}})
    finish(cluster, built_language_model(built_at=cluster.now, objective_met=False, requests=40, requests_to_show=150,
                                         device_class=f"{H100}/1g.10gb"))
    for _ in range(6):
        cluster.step()
    assert not cluster.status["placement"].get("tried")


def test_what_the_server_takes_of_the_hosts_memory_makes_no_slice_too_small() -> None:
    cluster = Cluster(spec={**SPEC, "placement": {"gpu": {"product": H100}, "mig": {"profile": "auto"}}})
    finish(cluster, built_language_model(built_at=cluster.now, memory_bytes=12 << 30, device_class=f"{H100}/1g.10gb"))
    for _ in range(6):
        cluster.step()
    assert cluster.status["placement"]["migProfile"] == "1g.10gb"
    assert not cluster.status["placement"].get("tried")

"""What status says: the schema's shape, times that move only with status, and nothing at all in a quiet world."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import status
from enginewright.core.conditions import bad, find, good, merge, parse_timestamp, timestamp
from enginewright.core.decide import decide
from enginewright.core.events import NOTE_LIMIT, shorten, transitions
from enginewright.core.plan import Event
from enginewright.core.reasons import Condition
from enginewright.core.status import Status
from enginewright_builder.contract import GroupsSummary, TaskFigure, printable
from support.cluster import SPEC, START, Cluster, built, engine, resolved


def strictly(raw: object, model: type[status.StatusModel] = Status) -> None:
    """Every key of ``raw`` is one that the model, and so the CRD, knows."""
    assert isinstance(raw, dict)
    for key, value in raw.items():
        field = next((f for name, f in model.model_fields.items() if (f.alias or name) == key), None)
        assert field is not None, f"{model.__name__}.{key}"
        inner = [kind for kind in vars(status).values()
                 if isinstance(kind, type) and kind.__name__ in re.findall(r"\w+", str(field.annotation))]
        if inner and isinstance(value, dict):
            strictly(value, inner[0])
        for item in value if inner and isinstance(value, list) else ():
            strictly(item, inner[0])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"autoscaling": {"maxReplicas": 4}},
        {"objective": {"latency": {"milliseconds": 20}}},
    ],
)
def test_status_has_the_shape_of_the_crd_all_the_way(spec: dict[str, Any]) -> None:
    cluster = Cluster(spec={**SPEC, **spec})
    for _ in range(8):
        cluster.operate()
        strictly(cluster.status)
        assert Status.model_validate(cluster.status).observed_generation == 1
        cluster.settle_jobs()
        cluster.queue(20, seconds=1)
        cluster.controllers()


def test_every_condition_is_there_and_carries_the_generation() -> None:
    cluster = Cluster(generation=7)
    cluster.operate()
    conditions = cluster.status["conditions"]
    assert [entry["type"] for entry in conditions] == [
        str(kind)
        for kind in (
            Condition.READY,
            Condition.AVAILABLE,
            Condition.SOURCE_RESOLVED,
            Condition.ENGINE_BUILT,
            Condition.ACCURACY_VERIFIED,
            Condition.OBJECTIVE_MET,
            Condition.ROLLOUT_COMPLETE,
            Condition.SCALING_ACTIVE,
        )
    ]
    assert {entry["observedGeneration"] for entry in conditions} == {7}


def test_transition_time_moves_only_with_status() -> None:
    cluster = Cluster()
    cluster.settle()
    since = cluster.condition("Ready")["lastTransitionTime"]
    cluster.wait(3600)
    cluster.edit(rollout={"analysis": {"seconds": 1}})
    cluster.settle()
    assert cluster.condition("Ready")["observedGeneration"] == 2
    assert cluster.condition("Ready")["lastTransitionTime"] == since


@pytest.mark.parametrize("spec", [{}, {"autoscaling": {"maxReplicas": 4}}, {"replicas": 3}])
def test_quiet_world_changes_nothing(spec: dict[str, Any]) -> None:
    cluster = Cluster(spec={**SPEC, **spec})
    cluster.settle()
    cluster.queue(0)
    cluster.operate()
    written = cluster.status
    for _ in range(5):
        cluster.queue(0)
        plan = cluster.plan()
        assert json.loads(json.dumps(plan.status)) == written
        assert not plan.actions
        assert not plan.events


@pytest.mark.parametrize(
    ("spec", "summary", "told"),
    [
        ({}, {}, "True/NoObjective"),
        ({"objective": {"latency": {"milliseconds": 20}, "throughput": 500}}, {"objective_met": True}, "True/Met"),
        ({"objective": {"latency": {"milliseconds": 5}}}, {"objective_met": False}, "False/NotMet"),
    ],
)
def test_objective(spec: dict[str, Any], summary: dict[str, Any], told: str) -> None:
    cluster = Cluster(spec={**SPEC, **spec})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(**summary))
    cluster.operate()
    assert cluster.says("ObjectiveMet") == told
    if spec:
        message = cluster.condition("ObjectiveMet")["message"]
        assert f"{engine().p99_ms:.1f} ms" in message
        assert f"{spec['objective']['latency']['milliseconds']} ms allowed" in message


def test_too_few_requests_that_kept_the_objective_are_no_miss() -> None:
    cluster = Cluster(spec={**SPEC, "objective": {"latency": {"milliseconds": 20}}})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(objective_met=False, requests=120, requests_to_show=205))
    cluster.operate()
    assert cluster.says("ObjectiveMet") == "Unknown/ObjectiveUnknown"
    assert cluster.condition("ObjectiveMet")["message"] == (
        "p99 9.0 ms of p99 20 ms allowed (to say that it is met takes 205 requests, and the build measured 120); give "
        "engine.buildBudgetSeconds more and rebuild, or use a faster device.")


@pytest.mark.parametrize(
    ("summary", "figures"),
    [
        ({"p999_ms": 18.26, "requests": 4000}, "p99.9 18.3 ms of p99.9 20 ms allowed."),
        ({"requests": 640},
         "p99 9.0 ms of p99.9 20 ms allowed (p99.9 takes 1000 requests, and the build measured 640)."),
        ({}, "p99 9.0 ms of p99.9 20 ms allowed."),
    ],
)
def test_p999_is_told_or_that_the_requests_were_too_few(summary: dict[str, Any], figures: str) -> None:
    cluster = Cluster(spec={**SPEC, "objective": {"latency": {"milliseconds": 20, "percentile": 99.9}}})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(**summary))
    cluster.operate()
    assert cluster.condition("ObjectiveMet")["message"] == figures
    assert cluster.status["engine"].get("p999Milliseconds") == summary.get("p999_ms")


@pytest.mark.parametrize(
    ("evaluation", "told"),
    [
        ("held-out", "True/Verified"),
        ("synthetic", "True/VerifiedOnSyntheticData"),
    ],
)
def test_accuracy(evaluation: str, told: str) -> None:
    cluster = Cluster()
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(evaluation=evaluation))
    cluster.operate()
    assert cluster.says("AccuracyVerified") == told
    for figure in ("0.9960", "0.9950", "0.99 "):
        assert figure in cluster.condition("AccuracyVerified")["message"]


def test_accuracy_on_labels_and_in_groups() -> None:
    labels = {"evaluation": {"uri": "pvc://models/e.npz"}, "task": {"metric": "f1-macro"}, "groupBy": "country"}
    cluster = Cluster(spec={**SPEC, "accuracy": labels})
    cluster.operate()
    outcome = resolved()
    assert outcome.source is not None
    cluster.finish(replace(outcome, source=replace(outcome.source, evaluation_digest="sha256:" + "e" * 64)))
    cluster.operate()
    task = TaskFigure(metric="f1-macro", source=0.91237, value=0.91011, loss=0.00226, loss_high=0.00512, max_loss=0.01)
    groups = GroupsSummary(by="country", judged=3, too_small=("li", "mc"), too_small_count=2, worst="lu")
    cluster.finish(built(task=task, groups=groups))
    cluster.operate()
    assert cluster.says("AccuracyVerified") == "True/Verified"
    message = cluster.condition("AccuracyVerified")["message"]
    assert message.endswith(
        " on held-out data; f1-macro on the labels 0.9101, the source's 0.9124 (a loss of at most 0.0051 with 95 % "
        "confidence; 0.01 is allowed); held in 3 groups by country, 2 more had too few samples.")
    assert cluster.status["engine"]["task"] == {
        "metric": "f1-macro", "value": 0.91011, "source": 0.91237, "lossHigh": 0.00512}
    assert cluster.status["engine"]["groups"] == {
        "by": "country", "judged": 3, "tooSmall": 2, "tooSmallNames": ["li", "mc"], "worst": "lu"}


def test_bad_spec_is_refused_with_field_value_and_remedy_and_leaves_the_rest_alone() -> None:
    cluster = Cluster()
    cluster.settle()
    before = cluster.status
    cluster.edit(engine={"precision": "fp8"})
    cluster.wait(5)
    plan = cluster.operate()
    assert not plan.actions
    assert cluster.says("Ready") == "False/InvalidSpec"
    assert "spec.engine.precision" in cluster.condition("Ready")["message"]
    assert "fp8" in cluster.condition("Ready")["message"]
    assert cluster.says("Available") == "True/Serving"
    assert cluster.status["observedGeneration"] == 2
    assert cluster.status["engine"] == before["engine"]
    assert [entry["type"] for entry in cluster.status["conditions"]] == [
        entry["type"] for entry in before["conditions"]
    ]
    assert cluster.plan().events == ()
    assert json.loads(json.dumps(cluster.plan().status)) == cluster.status
    cluster.edit(engine=None)
    cluster.operate()
    assert cluster.says("Ready") == "True/Serving"


def test_bad_spec_from_the_start() -> None:
    cluster = Cluster(spec={"source": {"uri": "ftp://models"}})
    plan = cluster.operate()
    assert not plan.actions
    assert cluster.says("Ready") == "False/InvalidSpec"
    assert "spec.source.uri" in cluster.condition("Ready")["message"]


def test_hardware_that_does_not_exist_is_refused_before_anything_runs() -> None:
    placement = {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "9g.99gb"}}
    cluster = Cluster(spec={**SPEC, "placement": placement})
    assert not cluster.operate().actions
    assert cluster.says("Ready") == "False/InvalidSpec"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_any_rubbish_in_status_is_survived(rubbish: Any) -> None:
    keys = ("conditions", "source", "build", "engine", "rollout", "autoscaling", "candidates", "summary")
    cluster = Cluster(status=dict.fromkeys(keys, rubbish))
    cluster.operate()
    assert len(cluster.status["conditions"]) == 8
    cluster.spec = {}
    cluster.operate()
    assert cluster.says("Ready") == "False/InvalidSpec"


def test_events_tell_the_story_once() -> None:
    cluster = Cluster()
    cluster.settle()
    assert cluster.log == ["Normal Resolving", "Normal Resolved", "Normal Built", "Normal Serving"]


def test_one_event_of_a_pass_has_all_good_news_with_its_reasons() -> None:
    """A model whose engine is in the store is a matter of two passes, so of two events."""
    cluster = Cluster()
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built())
    (told,) = cluster.operate().events
    said = {reason: cluster.condition(kind)["message"] for kind, reason in (
        ("EngineBuilt", "Built"), ("AccuracyVerified", "Verified"), ("RolloutComplete", "Progressing"))}
    assert told == Event(type="Normal", reason="Built", action="Build", note=(
        f"{said['Built']} Verified: {said['Verified']} Progressing: {said['Progressing']}"))


def test_events_of_a_rollout_do_not_repeat_who_answers() -> None:
    cluster = Cluster(spec={**SPEC, "replicas": 4, "rollout": {"analysis": {"seconds": 20}, "steps": [{"weight": 50}]}})
    cluster.settle()
    cluster.log.clear()
    cluster.edit(serving={"image": "example/triton:2"})
    cluster.settle()
    assert [entry for entry in cluster.log if "Built" not in entry] == [
        "Normal Analysing",
        "Normal Progressing",
        "Normal Draining",
        "Normal Serving",
    ]


def test_that_nobody_answers_any_more_is_told_and_that_somebody_does_again() -> None:
    cluster = Cluster()
    cluster.settle()
    cluster.log.clear()
    cluster.pods = {}
    cluster.endpoints = ()
    cluster.operate()
    cluster.settle()
    assert cluster.log == ["Warning NoReplica", "Normal Serving"]


def test_a_deleting_object_is_left_to_its_owner_references() -> None:
    cluster = Cluster()
    cluster.settle()
    plan = decide(replace(cluster.view(), deleting=True, generation=9), cluster.observe(), cluster.config)
    assert not plan.actions
    assert plan.status == cluster.status


def test_merge_keeps_and_moves_times() -> None:
    first = merge(None, [good(Condition.READY, "Serving", "a")], 1, START)
    later = START + timedelta(hours=1)
    same = merge(first, [good(Condition.READY, "Other", "b")], 2, later)[0]
    assert (same["lastTransitionTime"], same["reason"], same["observedGeneration"]) == (timestamp(START), "Other", 2)
    assert merge(first, [bad(Condition.READY, "No", "c")], 2, later)[0]["lastTransitionTime"] == timestamp(later)
    assert merge([{"type": "Old", "status": "True"}], [], 1, START) == []


@pytest.mark.parametrize("text", [None, 7, "", "yesterday", "2026-13-01T00:00:00Z"])
def test_no_time_is_no_time(text: object) -> None:
    assert parse_timestamp(text) is None


def test_find_survives_nonsense() -> None:
    assert find(["x", None, {"type": "Ready", "status": "True"}], "Ready")["status"] == "True"
    assert find({"type": "Ready"}, "Ready") == {}


@given(st.text(max_size=3000))
def test_notes_fit_and_are_whole_characters(note: str) -> None:
    short = shorten(note)
    assert len(short.encode()) <= NOTE_LIMIT
    assert short == printable(note) or short.endswith("…")


def test_warning_only_for_what_is_wrong() -> None:
    told = transitions(
        None,
        [
            bad(Condition.ENGINE_BUILT, "Building", "It builds."),
            bad(Condition.ROLLOUT_COMPLETE, "RolledBack", "It was slower."),
            bad(Condition.ACCURACY_VERIFIED, "AccuracyNotReached", "It loses too much."),
            good(Condition.SOURCE_RESOLVED, "Resolved", "It was found."),
            bad(Condition.AVAILABLE, "NoReplica", "Nothing answers."),
        ],
    )
    assert [(event.type, event.reason, event.note) for event in told] == [
        ("Normal", "Building", "It builds. Resolved: It was found."),
        ("Warning", "RolledBack", "It was slower."),
        ("Warning", "AccuracyNotReached", "It loses too much."),
    ]
    lost = transitions(
        [{"type": "Available", "status": "True", "reason": "Serving"}], [bad(Condition.AVAILABLE, "NoReplica", "")]
    )
    assert [event.type for event in lost] == ["Warning"]

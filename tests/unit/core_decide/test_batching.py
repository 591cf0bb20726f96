"""Condition BatchingAdaptive, and which pods have a batcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from enginewright.core.config import OperatorConfig
from enginewright_builder.contract import BatchTime
from support.cluster import SPEC, Cluster, built, resolved

CURVE = (BatchTime(batch=1, p50_ms=4.0), BatchTime(batch=8, p50_ms=6.0), BatchTime(batch=32, p50_ms=15.0))
ADAPTIVE: dict[str, Any] = {"batching": {"adaptive": True}}


class Measured(Cluster):
    """Its builds say what batches take, and what memory a server does."""

    curve: Sequence[BatchTime] = CURVE

    def settle_jobs(self) -> None:
        self.finish(resolved(), of="resolve")
        self.finish(built(built_at=self.now, service_curve=self.curve, memory_bytes=300 << 20), of="build")


def serving(curve: Sequence[BatchTime] = CURVE, **spec: Any) -> Cluster:
    cluster = Measured(spec={**SPEC, "replicas": 1, **spec})
    cluster.curve = curve
    cluster.settle()
    return cluster


def test_off_it_is_nowhere_to_be_seen() -> None:
    cluster = serving()
    assert "BatchingAdaptive" not in {entry["type"] for entry in cluster.status["conditions"]}


def test_it_waits_for_the_engine() -> None:
    cluster = Measured(spec={**SPEC, **ADAPTIVE})
    cluster.step()
    assert cluster.says("BatchingAdaptive") == "Unknown/WaitingForEngine"


def test_each_replica_begins_with_what_the_build_chose() -> None:
    cluster = serving(**ADAPTIVE)
    assert cluster.says("BatchingAdaptive") == "True/Following"
    assert "500 µs, preferred 8, 16" in cluster.condition("BatchingAdaptive")["message"]


@pytest.mark.parametrize(("curve", "spec", "reason", "words"), [
    ((), {}, "BatchesNotMeasured", "has no latency of batches"),
    (CURVE, {"serving": {"resources": {"limits": {"memory": "512Mi"}}}}, "NoRoomForTwo", "twice 0.3 GiB"),
])
def test_where_it_cannot_be_done_the_model_serves_as_it_was_built(
    curve: Sequence[BatchTime], spec: dict[str, Any], reason: str, words: str
) -> None:
    cluster = serving(curve, **ADAPTIVE, **spec)
    assert cluster.says("BatchingAdaptive") == f"False/{reason}"
    assert words in cluster.condition("BatchingAdaptive")["message"]
    assert cluster.says("Ready") == "True/Serving"


def test_to_ask_for_it_is_a_revision_of_its_own_and_no_build() -> None:
    cluster = serving(rollout={"analysis": {"seconds": 0}})
    first, builds = cluster.revision, len(cluster.jobs)
    cluster.edit(**ADAPTIVE)
    cluster.settle()
    assert cluster.revision != first
    assert len(cluster.jobs) == builds
    assert cluster.says("BatchingAdaptive") == "True/Following"


TAKEN = OperatorConfig(server_args=("--model-control-mode=poll",))


def test_pods_that_were_made_without_a_batcher_are_not_said_to_follow() -> None:
    """Whatever the installation's settings became since: a Deployment that is there stays as it is."""
    cluster = Measured(spec={**SPEC, "rollout": {"analysis": {"seconds": 0}}, "replicas": 1, **ADAPTIVE}, config=TAKEN)
    cluster.settle()
    assert cluster.says("BatchingAdaptive") == "False/ModelControlTaken"
    first, cluster.config = cluster.revision, OperatorConfig()
    cluster.settle()
    assert (cluster.revision, cluster.says("BatchingAdaptive")) == (first, "False/MadeWithoutBatcher")
    assert "another annotation in spec.serving.podTemplate" in cluster.condition("BatchingAdaptive")["message"]
    assert cluster.says("Ready") == "True/Serving"
    builds = len(cluster.jobs)
    cluster.edit(serving={"podTemplate": {"metadata": {"annotations": {"made": "anew"}}}})
    cluster.settle()
    assert (cluster.says("BatchingAdaptive"), len(cluster.jobs)) == ("True/Following", builds), "what it said to do"


def test_pods_that_have_a_batcher_follow_though_new_ones_would_not() -> None:
    cluster = serving(**ADAPTIVE)
    cluster.config = TAKEN
    cluster.settle()
    assert cluster.says("BatchingAdaptive") == "True/Following"
    assert "New ones would not: --model-control-mode=poll" in cluster.condition("BatchingAdaptive")["message"]


def test_until_the_rollout_is_done_what_serves_is_told() -> None:
    cluster = serving()
    first = cluster.revision
    cluster.edit(**ADAPTIVE)
    cluster.step()
    assert cluster.says("BatchingAdaptive") == "False/MadeWithoutBatcher"
    message = cluster.condition("BatchingAdaptive")["message"]
    assert f"of revision {first}, which serves" in message
    assert "are made with it" in message


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_candidate_is_told_that_the_stable_revision_may_have_adapted(adaptive: bool) -> None:
    """By what the stable one's pods have, whatever the candidate's will."""
    cluster = serving(batching={"adaptive": adaptive})
    cluster.edit(serving={"podTemplate": {"metadata": {"annotations": {"made": "anew"}}}},
                 batching={"adaptive": not adaptive})
    asked = []
    for _ in range(20):
        plan = cluster.plan()
        asked.extend([plan.question.adapted] if plan.question else [])
        cluster.step()
    assert asked
    assert set(asked) == {adaptive}

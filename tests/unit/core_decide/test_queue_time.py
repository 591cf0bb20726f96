"""A queue that would reject what it could answer is refused before it has a replica."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.signals import Sample, SignalWindow
from support.cluster import SPEC, Cluster

# The build of a test chooses a queue delay of 500 microseconds.
TOO_SHORT = [
    {"defaultTimeoutMicroseconds": 500},
    {"priorityLevels": 2, "priorityQueuePolicy": [{"level": 2, "defaultTimeoutMicroseconds": 20}]},
]


def serving(queue: dict[str, Any] | None = None, **more: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, **more, **({"serving": {"queue": queue}} if queue else {})})
    cluster.settle()
    return cluster


@pytest.mark.parametrize("queue", TOO_SHORT)
def test_it_does_not_start(queue: dict[str, Any]) -> None:
    cluster = serving(queue)
    assert cluster.replicas() == {}
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/QueueTimeoutTooShort"
    message = cluster.condition("RolloutComplete")["message"]
    assert "is not more than the queue delay of 500 microseconds that the build chose" in message
    assert "spec.serving.queue" in message


@pytest.mark.parametrize("queue", TOO_SHORT)
def test_what_serves_goes_on(queue: dict[str, Any]) -> None:
    cluster = serving()
    old = cluster.revision
    cluster.edit(serving={"queue": queue})
    cluster.settle()
    assert cluster.replicas() == {old: 1}
    assert f"revision {old} goes on serving" in cluster.condition("RolloutComplete")["message"]


@pytest.mark.parametrize("queue", [
    {"defaultTimeoutMicroseconds": 501}, {"maxQueueSize": 4},
    {"defaultTimeoutMicroseconds": 20, "timeoutAction": "continue"},
])
def test_others_are_revisions_of_the_same_engine(queue: dict[str, Any]) -> None:
    cluster = serving()
    old, engine, jobs = cluster.revision, cluster.status["fingerprint"], len(cluster.jobs)
    cluster.edit(serving={"queue": queue})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.revision != old
    assert (cluster.status["fingerprint"], len(cluster.jobs)) == (engine, jobs), "nothing is built"


def test_what_timeouts_reject_is_in_status_apart_from_the_queue() -> None:
    cluster = serving({"defaultTimeoutMicroseconds": 50_000}, autoscaling={"maxReplicas": 2})
    cluster.queue(0.0)
    assert "rejected" not in cluster.status["autoscaling"] or not cluster.status["autoscaling"]["rejected"]
    now = cluster.monotonic
    window = cluster.signals or SignalWindow(started=now)
    samples = tuple(Sample(time=now - age, ready=1, rejected=count) for age, count in ((70, 5), (50, 3), (1, 4)))
    cluster.signals = SignalWindow(started=window.started, samples=samples)
    cluster.operate()
    assert cluster.status["autoscaling"]["rejected"] == 7
    cluster.edit(serving={})
    cluster.operate()
    assert "rejected" not in cluster.status["autoscaling"]


@pytest.mark.parametrize(("queue", "rejected", "says"), [
    ({"defaultTimeoutMicroseconds": 50_000, "priorityLevels": 2}, 4, True), ({"maxQueueSize": 900}, 4, True),
    ({"defaultTimeoutMicroseconds": 50_000}, 0, False), (None, 4, False),
])
def test_at_the_most_replicas_it_is_told_that_load_is_shed(queue: dict[str, Any] | None, rejected: int,
                                                            says: bool) -> None:
    cluster = serving(queue, autoscaling={"maxReplicas": 1, "algorithm": "queue", "targetQueueDepth": 2})
    cluster.wait(60)
    cluster.queue(800.0)
    assert cluster.signals
    samples = cluster.signals.samples
    cluster.signals = replace(cluster.signals, samples=(*samples[:-1], replace(samples[-1], rejected=rejected)))
    cluster.operate()
    assert cluster.says("ScalingActive") == "True/AtLimit"
    message = cluster.condition("ScalingActive")["message"]
    assert ("Load is shed meanwhile: spec.serving.queue rejects" in message) is says
    assert ("low priority" in message) is bool(says and queue and queue.get("priorityLevels"))

"""Low findings: a list that took too long counted as the user's fault, edits of the Service stayed, clock skew skipped
``scaleDownDelaySeconds``, and anybody's pod with the right label spoke for a Job."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from enginewright.clients.answers import failure
from enginewright.clients.errors import Family
from enginewright.core.conditions import timestamp
from enginewright.core.config import OperatorConfig
from enginewright.core.decide import decide
from enginewright.core.manifests import Owner, service
from enginewright.core.plan import Apply
from enginewright.observe.keys import Key
from enginewright.observe.reports import Report
from enginewright.observe.world import World
from support.cluster import SPEC, START, Cluster, built, resolved


def test_low_a_list_that_took_too_long_begins_again_soon() -> None:
    body = b'{"kind":"Status","reason":"Expired","message":"The provided continue parameter is too old"}'
    assert failure(410, {}, body, "list pods").family is Family.TRANSIENT


def served() -> tuple[Cluster, dict[str, Any]]:
    """With its Service as the apiserver holds it."""
    cluster = Cluster(spec=dict(SPEC))
    cluster.settle()
    live = copy.deepcopy(service(Owner.of(cluster.view()), cluster.revision)["spec"])
    live |= {"clusterIP": "10.0.0.9", "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None"}
    return cluster, live


def routes(cluster: Cluster, live: dict[str, Any]) -> list[Apply]:
    seen = replace(cluster.observe(), specs={f"Service/{cluster.name}": live})
    plan = decide(cluster.view(), seen, cluster.config)
    return [action for action in plan.actions if isinstance(action, Apply) and action.manifest["kind"] == "Service"]


def test_low_a_service_that_nobody_has_edited_is_left_alone() -> None:
    assert not routes(*served())


@pytest.mark.parametrize("edit", [
    lambda live: live.update(type="LoadBalancer"),
    lambda live: live["selector"].update(app="mine"),
    lambda live: live["ports"][0].update(targetPort=9999),
    lambda live: live.update(ports=live["ports"][1:]),
], ids=["type", "selector", "target", "port gone"])
def test_low_an_edited_service_is_put_right(edit: Any) -> None:
    cluster, live = served()
    edit(live)
    (put_right,) = routes(cluster, live)
    assert put_right.force


def test_low_a_clock_that_is_behind_skips_no_delay() -> None:
    """The leader before had a clock ten seconds ahead, and wrote the time of the switch by it."""
    delay = 30
    cluster = Cluster(spec={**SPEC, "rollout": {"strategy": "BlueGreen", "analysis": {"seconds": 0},
                                                "scaleDownDelaySeconds": delay}})
    cluster.settle()
    old = cluster.revision
    cluster.edit(engine={"maxBatchSize": 16})
    for _ in range(40):
        cluster.step()
        cluster.finish(built(built_at=cluster.now), of="build")
        if cluster.status["rollout"].get("step") == "Draining":
            break
    ahead = timestamp(cluster.now + timedelta(seconds=10))
    cluster.status = {**cluster.status, "rollout": {**cluster.status["rollout"], "stepStartTime": ahead}}
    stayed = 0
    while old in cluster.replicas():
        cluster.step()
        stayed += 1
        assert stayed <= delay + 2
    assert stayed >= delay - 1


class Reports:
    """Records which pods speak for which Job."""

    def __init__(self) -> None:
        self.asked: dict[str, list[str]] = {}

    def of(self, _key: Key, pods_of: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Report]:
        self.asked = {job: [pod["metadata"]["name"] for pod in pods] for job, pods in pods_of.items()}
        return {job: Report(outcome=resolved()) for job in pods_of}


def test_low_only_the_jobs_own_pods_speak_for_it() -> None:
    def pod(name: str, owner: str) -> dict[str, Any]:
        owners = [{"kind": "Job", "name": "minilm-build-1", "uid": owner, "controller": True}] if owner else []
        return {"metadata": {"name": name, "labels": {"batch.kubernetes.io/job-name": "minilm-build-1"},
                             "ownerReferences": owners}}

    world = World(kube=Mock(), wall=lambda: START, monotonic=lambda: 0.0, config=OperatorConfig(), logs=Mock(),
                  records=Mock())
    world._reports = reports = Reports()  # type: ignore[assignment]
    job = {"metadata": {"name": "minilm-build-1", "uid": "u-job"}}
    pods = [pod("its-own", "u-job"), pod("forged", ""), pod("of-an-earlier-job", "u-old")]
    (found,) = world._jobs(Cluster().view(), [job], pods)
    assert reports.asked == {"minilm-build-1": ["its-own"]}
    assert [one.name for one in found.pods] == ["its-own"]

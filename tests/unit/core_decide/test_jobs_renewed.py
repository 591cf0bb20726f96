"""Jobs that wait are brought to what the spec and the operator's settings say now; those that have begun are let be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.config import Resources
from enginewright.core.observed import PodView
from support.cluster import SPEC, Cluster, described, resolved

MORE: dict[str, Any] = {"resources": {"limits": {"memory": "9Gi"}}}


def pod(phase: str) -> PodView:
    return PodView(name="p", phase=phase)


def building() -> Cluster:
    cluster = Cluster(spec=SPEC)
    cluster.operate()
    cluster.finish(resolved(), of="resolve")
    cluster.operate()
    return cluster


def test_a_build_that_waits_is_recreated() -> None:
    cluster = building()
    (old,) = cluster.running("build")
    cluster.edit(engine=MORE)
    plan = cluster.operate()
    assert not cluster.running("build")
    assert old.name not in cluster.requests, "another spec may ask otherwise"
    assert "its spec changed before it started" in cluster.condition("EngineBuilt")["message"]
    assert plan.requeue_after is not None
    cluster.wait(plan.requeue_after)
    cluster.operate()
    (new,) = cluster.running("build")
    assert (new.name, new.fingerprint) == (old.name, old.fingerprint)
    assert new.manifest_hash != old.manifest_hash
    assert not described(cluster.operate())


def test_one_in_a_queue_goes_to_the_other_queue() -> None:
    cluster = building()
    cluster.edit(engine={"queueName": "gpus"})
    for _ in range(3):
        cluster.operate()
        cluster.wait(1)
    (new,) = cluster.running("build")
    assert new.suspended


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_one_that_has_begun_goes_on(phase: str) -> None:
    cluster = building()
    (job,) = cluster.running("build")
    cluster.show(job.name, pods=(pod(phase=phase),))
    cluster.edit(engine=MORE)
    cluster.operate()
    assert cluster.running("build") == [replace(job, pods=(pod(phase=phase),))]


def test_one_of_before_hashes_were_looked_at_goes_on() -> None:
    cluster = building()
    (job,) = cluster.running("build")
    cluster.show(job.name, manifest_hash="")
    cluster.edit(engine=MORE)
    cluster.operate()
    assert len(cluster.running("build")) == 1


def test_a_look_at_the_source_that_waits_is_recreated() -> None:
    cluster = Cluster(spec=SPEC)
    cluster.operate()
    (old,) = cluster.running("resolve")
    cluster.config = replace(cluster.config, resolve_resources=Resources(limits={"memory": "4Gi"}))
    plan = cluster.operate()
    assert not cluster.running("resolve")
    assert "its spec changed before it started" in cluster.condition("SourceResolved")["message"]
    assert plan.requeue_after is not None
    cluster.wait(plan.requeue_after)
    cluster.operate()
    (new,) = cluster.running("resolve")
    assert new.name == old.name
    assert new.manifest_hash != old.manifest_hash

"""A server whose memory is limited to less than the build saw it hold is refused before it has a replica."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright_builder.contract import MemoryFigures
from support.cluster import SPEC, Cluster, built, resolved

MIB = 1 << 20
FIGURES = MemoryFigures(seen="container", empty_bytes=12 * MIB, loaded_bytes=268 * MIB, peak_bytes=326 * MIB,
                        held_bytes=300 * MIB, concurrency=4)


def limited(memory: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}, **more}


def serving(**serving: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "serving": serving})
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(memory=FIGURES))
    cluster.settle()
    return cluster


def test_it_does_not_start() -> None:
    cluster = serving(**limited("256Mi"))
    assert cluster.replicas() == {}
    assert cluster.says("RolloutComplete") == cluster.says("Ready") == "False/MemoryLimitTooLow"
    assert (
        "spec.serving.resources.limits.memory 256Mi is less than the 300Mi that its server held in the build with 4 "
        "requests in flight, and the kernel would kill it. Write 640Mi, or leave the limit out"
    ) in cluster.condition("RolloutComplete")["message"]


def test_what_serves_goes_on() -> None:
    cluster = serving()
    old = cluster.revision
    cluster.edit(serving=limited("299Mi"))
    cluster.settle()
    assert cluster.replicas() == {old: 1}
    assert f"revision {old} goes on serving" in cluster.condition("RolloutComplete")["message"]
    cluster.edit(serving=limited("640Mi"))
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"


@pytest.mark.parametrize("memory", ["300Mi", "1Gi"])
def test_what_it_holds_is_enough(memory: str) -> None:
    assert serving(**limited(memory)).says("Ready") == "True/Serving"


def test_a_cache_takes_its_part() -> None:
    assert serving(**limited("340Mi", responseCache={"sizeMebibytes": 64})).says(
        "RolloutComplete") == "False/MemoryLimitTooLow"


def test_figures_and_proposal_are_in_status() -> None:
    engine = serving().status["engine"]
    assert engine["memory"] == {"seen": "container", "emptyBytes": 12 * MIB, "loadedBytes": 268 * MIB,
                                "peakBytes": 326 * MIB, "heldBytes": 300 * MIB}
    assert engine["proposedResources"] == {"requests": {"memory": "448Mi"}, "limits": {"memory": "640Mi"}}

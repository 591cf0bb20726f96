"""``mig.profile: auto`` takes the smallest slice that holds the objective, by what builds on slices measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright.core import labels, mig
from enginewright.core.observed import PodView
from support.cluster import Cluster, built, refused, resolved

PRODUCT = "NVIDIA-H100-80GB-HBM3"
SPEC: dict[str, Any] = {
    "source": {"uri": "pvc://models/minilm"},
    "objective": {"latency": {"percentile": 99, "milliseconds": 10}},
    "placement": {"gpu": {"product": PRODUCT}, "mig": {"profile": "auto"}},
    "rollout": {"analysis": {"seconds": 0}},
}
NAMES = [profile.name for profile in sorted(mig.profiles(PRODUCT), key=mig.size)]
CUDA = "the builder ran out of memory: CUDA out of memory. Tried to allocate 2.00 GiB"


def profile(cluster: Cluster) -> str:
    return str(cluster.status["placement"].get("migProfile"))


def tried(cluster: Cluster) -> dict[str, str]:
    return {row["profile"]: row["reason"] for row in cluster.status["placement"].get("tried", ())}


def live(cluster: Cluster, holds: dict[str, Any], rounds: int = 40) -> list[str]:
    """``holds`` has for each profile what a build on it tells: whether it meets the objective, or a failure. Returns
    the profiles that were built on, in order. "few": too few requests to say whether it does."""
    order: list[str] = []
    for _ in range(rounds):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        if cluster.running("-build-"):
            name = profile(cluster)
            order.append(name)
            told = holds.get(name, True)
            if told == "memory":
                cluster.finish(refused("build", "transient", "OutOfMemory", CUDA), of="build")
            elif told == "few":
                cluster.finish(built(objective_met=False, requests=120, requests_to_show=205,
                                     memory_bytes=2 * mig.GIB), of="build")
            else:
                cluster.finish(built(objective_met=told, p99_ms=5.0 if told else 30.0, memory_bytes=2 * mig.GIB),
                               of="build")
        cluster.controllers()
        cluster.wait(1)
    return order


@pytest.mark.parametrize(("holds", "expected", "built_on"), [
    ({}, "1g.10gb", ["1g.10gb"]),
    ({"1g.10gb": False}, "1g.20gb", ["1g.10gb", "1g.20gb"]),
    ({"1g.10gb": False, "1g.20gb": False}, "2g.20gb", ["1g.10gb", "1g.20gb", "2g.20gb"]),
    ({"1g.10gb": "memory"}, "1g.20gb", ["1g.10gb", "1g.20gb"]),
    # 2g.20gb has no more memory than 1g.20gb.
    ({"1g.10gb": "memory", "1g.20gb": "memory"}, "3g.40gb", ["1g.10gb", "1g.20gb", "3g.40gb"]),
    ({"1g.10gb": "memory", "1g.20gb": False}, "2g.20gb", ["1g.10gb", "1g.20gb", "2g.20gb"]),
    (dict.fromkeys(NAMES, False), "7g.80gb", NAMES),
])
def test_the_smallest_that_holds(holds: dict[str, Any], expected: str, built_on: list[str]) -> None:
    cluster = Cluster(spec=SPEC)
    order = live(cluster, holds)
    assert (order, profile(cluster)) == (built_on, expected)
    assert tried(cluster) == {name: "OutOfMemory" if holds[name] == "memory" else "NotMet" for name in built_on
                              if holds.get(name, True) is not True}
    assert cluster.says("Ready") == "True/Serving"
    assert not live(cluster, holds, 10), "nothing is built once more"
    assert len(cluster.replicas()) == 1


def test_it_is_said_with_the_figures() -> None:
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": False})
    told = cluster.condition("EngineBuilt")["message"]
    assert "MIG profile 1g.10gb does not do (NotMet: 30.0 of 10 ms): 1g.20gb is taken." in told
    assert cluster.says("ObjectiveMet") == "True/Met"
    cluster = Cluster(spec=SPEC)
    live(cluster, dict.fromkeys(NAMES, False))
    assert "No larger profile of NVIDIA-H100-80GB-HBM3 is left: 7g.80gb is taken." in (
        cluster.condition("EngineBuilt")["message"])
    assert cluster.says("ObjectiveMet") == "False/NotMet"


def test_what_misses_serves_while_the_next_one_is_built() -> None:
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": False}, 4)
    answered = False
    for _ in range(30):
        live(cluster, {"1g.10gb": False}, 1)
        ready = any(pod.ready for pod in cluster.pods.values())
        assert ready or not answered
        answered = answered or ready
        if profile(cluster) != "1g.10gb":
            assert answered, "the larger one is built when somebody serves"
    assert profile(cluster) == "1g.20gb"


def building_the_larger(**changes: Any) -> Cluster:
    """While the smaller serves."""
    cluster = Cluster(spec={**SPEC, **changes})
    for _ in range(60):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        if cluster.running("-build-") and profile(cluster) == "1g.10gb":
            cluster.finish(built(objective_met=False, p99_ms=30.0, memory_bytes=2 * mig.GIB), of="build")
        elif cluster.running("-build-"):
            return cluster
        cluster.controllers()
        cluster.wait(1)
    raise AssertionError(cluster.status)


@pytest.mark.parametrize("lost", [False, True])
def test_a_replica_that_is_not_ready_for_a_moment_ends_no_build(lost: bool) -> None:
    cluster = building_the_larger()
    (build,) = cluster.running("-build-")
    cluster.pods = {name: replace(pod, ready=False) for name, pod in cluster.pods.items()}
    cluster.deployments = {name: replace(one, available=0) for name, one in cluster.deployments.items()}
    if lost:
        cluster.status = {**cluster.status, "build": None}
    cluster.operate()
    assert [job.name for job in cluster.running("-build-")] == [build.name]
    assert profile(cluster) == "1g.20gb"


def test_a_lost_status_ends_no_build() -> None:
    cluster = building_the_larger()
    (build,) = cluster.running("-build-")
    cluster.status = {}
    for _ in range(3):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
    assert [job.name for job in cluster.running("-build-")] == [build.name]


def test_too_few_requests_that_kept_the_objective_ask_for_no_larger_slice() -> None:
    cluster = Cluster(spec=SPEC)
    assert live(cluster, {"1g.10gb": "few"}) == ["1g.10gb"]
    assert profile(cluster) == "1g.10gb"


def test_what_misses_and_cannot_start_is_not_waited_for() -> None:
    """As where no node has a slice of the smaller profile."""
    cluster = Cluster(spec=SPEC)
    for _ in range(20):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        if cluster.running("-build-") and profile(cluster) == "1g.10gb":
            cluster.finish(built(objective_met=False, p99_ms=30.0, memory_bytes=2 * mig.GIB), of="build")
        cluster.deployment_controller()
        cluster.wait(1)
    assert profile(cluster) == "1g.10gb"
    assert cluster.deployments
    cluster.deployments = {name: replace(one, progress_deadline_exceeded=True)
                           for name, one in cluster.deployments.items()}
    for _ in range(3):
        cluster.operate()
    assert cluster.running("-build-")
    assert live(cluster, {}) == ["1g.20gb"]
    assert (profile(cluster), cluster.says("Ready")) == ("1g.20gb", "True/Serving")


def test_what_missed_is_not_tried_again_when_its_engine_is_gone() -> None:
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": False})
    missed = next(row["fingerprint"] for row in cluster.status["placement"]["tried"])
    del cluster.records[missed]
    assert live(cluster, {}, 10) == []
    assert profile(cluster) == "1g.20gb"
    # A lost status is found out again from the engines that are there.
    live(cluster, {})
    kept = tried(cluster)
    cluster.status = {**cluster.status, "placement": None}
    live(cluster, {"1g.10gb": False}, 30)
    assert (profile(cluster), tried(cluster)) == ("1g.20gb", kept)


def test_what_missed_is_remembered_while_a_source_is_resolved() -> None:
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": False})
    (missed,) = cluster.status["placement"]["tried"]
    del cluster.records[missed["fingerprint"]]
    # The same content at another place.
    cluster.edit(source={"uri": "pvc://models/moved"})
    cluster.operate()
    assert cluster.says("EngineBuilt") == "Unknown/WaitingForSource"
    assert cluster.status["placement"]["tried"] == [missed]
    assert live(cluster, {}) == []
    assert profile(cluster) == "1g.20gb"


def test_another_try_is_another_try_on_the_slice_that_was_too_small() -> None:
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": "memory"})
    assert profile(cluster) == "1g.20gb"
    cluster.annotations[labels.RETRY] = "now"
    assert live(cluster, {}) == ["1g.10gb"]
    assert profile(cluster) == "1g.10gb"


def test_an_engine_for_a_smaller_slice_that_is_there_spares_the_larger() -> None:
    """As another object with a profile by name may have built it."""
    big = {**SPEC, "engine": {"maxBatchSize": 32}}
    named = {**big, "placement": {**SPEC["placement"], "mig": {"profile": "1g.10gb"}}}
    other = Cluster(spec=named)
    live(other, {})
    cluster = Cluster(spec=big, records=other.records)
    assert live(cluster, {}) == []
    assert profile(cluster) == "1g.10gb"


@pytest.mark.parametrize("text", ["Pod minilm-build-1 ran out of memory; raise it", "the builder ran out of memory"])
def test_memory_of_the_pod_is_no_memory_of_the_slice(text: str) -> None:
    cluster = Cluster(spec=SPEC)
    cluster.operate()
    cluster.finish(resolved(), of="resolve")
    cluster.operate()
    cluster.finish(refused("build", "transient", "OutOfMemory", text), of="build")
    cluster.operate()
    cluster.operate()
    assert profile(cluster) == "1g.10gb"
    assert tried(cluster) == {}


@pytest.mark.parametrize("name", ["minilm", "minilm-gpu", "cuda-bert"])
def test_a_pod_that_was_killed_for_its_own_memory_is_none_of_the_slice_whatever_its_name(name: str) -> None:
    cluster = Cluster(spec=SPEC, name=name)
    order: list[str] = []
    for _ in range(200):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        if jobs := cluster.running("-build-"):
            order.append(profile(cluster))
            killed = PodView(name=f"{jobs[0].name}-x1", phase="Failed", exit_code=137, terminated_reason="OOMKilled")
            cluster.fail(of="build", pods=(killed,))
        cluster.controllers()
        cluster.wait(20)
    assert order == ["1g.10gb"] * 3
    assert tried(cluster) == {}
    assert cluster.says("EngineBuilt") == "False/OutOfMemory"


def test_a_changed_spec_is_another_try_on_the_slice_that_was_too_small() -> None:
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": "memory"})
    cluster.edit(engine={"resources": {"limits": {"memory": "32Gi"}}})
    assert live(cluster, {}) == ["1g.10gb"]
    assert profile(cluster) == "1g.10gb"
    # What a status says that has no key for it, from before there was one, holds.
    cluster = Cluster(spec=SPEC)
    live(cluster, {"1g.10gb": "memory"})
    block = cluster.status["placement"]
    old = [{name: value for name, value in row.items() if name != "specKey"} for row in block["tried"]]
    assert old != block["tried"]
    cluster.status = {**cluster.status, "placement": {**block, "tried": old}}
    cluster.edit(engine={"resources": {"limits": {"memory": "32Gi"}}})
    assert live(cluster, {}) == []
    assert profile(cluster) == "1g.20gb"


def test_a_profile_that_is_named_stays() -> None:
    cluster = Cluster(spec={**SPEC, "placement": {**SPEC["placement"], "mig": {"profile": "1g.10gb"}}})
    assert live(cluster, {"1g.10gb": False}) == ["1g.10gb"]
    assert profile(cluster) == "1g.10gb"
    assert tried(cluster) == {}
    assert cluster.says("ObjectiveMet") == "False/NotMet"


@settings(max_examples=settings().max_examples // 4)
@given(st.fixed_dictionaries({name: st.sampled_from([True, False, "memory"]) for name in NAMES}), st.data())
def test_each_slice_is_built_on_once_at_most_and_it_ends(holds: dict[str, Any], data: st.DataObject) -> None:
    """Whatever builds tell, and whoever loses which engine of a slice that missed."""
    cluster = Cluster(spec=SPEC)
    order = live(cluster, holds, 60)
    if data.draw(st.booleans()):
        for row in cluster.status["placement"].get("tried", ()):
            cluster.records.pop(row["fingerprint"], None)
    order += live(cluster, holds, 20)
    again = order[len(set(order)):]
    assert not set(again) - {order[-1]}, order
    assert profile(cluster) == order[-1] or holds[order[-1]] is not True
    held = [name for name in NAMES if holds[name] is True]
    if held and holds[order[-1]] is True:
        skipped = NAMES[:NAMES.index(order[-1])]
        assert all(holds[name] is not True or name not in order for name in skipped)
        assert cluster.says("Ready") == "True/Serving"


def test_a_required_objective_is_not_missed_meanwhile() -> None:
    """What misses it serves nothing, so the next profile is built at once."""
    cluster = Cluster(spec={**SPEC, "rollout": {**SPEC["rollout"], "requireObjective": True}})
    order: list[str] = []
    for _ in range(30):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        if cluster.running("-build-"):
            order.append(profile(cluster))
            cluster.finish(built(objective_met=len(order) > 1, p99_ms=30.0, requests=400), of="build")
        assert len(order) > 1 or not cluster.replicas()
        cluster.controllers()
        cluster.wait(1)
    assert order == ["1g.10gb", "1g.20gb"]
    assert cluster.says("Ready") == "True/Serving"

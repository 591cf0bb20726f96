"""Without a replica to spare the classes of a fleet take turns: somebody always answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from support.cluster import refused
from support.fleet_cluster import FLEET, FleetCluster
from support.once import once

CRASH = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}
GPU, CPU = FLEET["placement"]["classes"]
SLICE = {"name": "slice", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.10gb"}}
NEW = {"maxBatchSize": 8}


class NoNode(dict[str, Any]):
    """For replicas of any revision."""

    def get(self, key: str, default: Any = None) -> Any:
        return {"phase": "Pending", "unschedulable": "0/3 nodes"}


@once
def ready(*classes: dict[str, Any], **rollout: Any) -> FleetCluster:
    fleet = FleetCluster(spec={**FLEET, "placement": {"classes": list(classes)},
                               "rollout": {"analysis": {"seconds": 0}, "maxSurge": 0, **rollout}})
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving", fleet.condition("Ready")
    return fleet


def stable(fleet: FleetCluster) -> dict[str, str]:
    return {name: str(member.status["rollout"].get("stable")) for name, member in fleet.members.items()}


def down(fleet: FleetCluster) -> set[str]:
    return {name for name, member in fleet.members.items() if not any(pod.ready for pod in member.pods.values())}


@pytest.mark.parametrize("classes", [(GPU, CPU), (GPU, CPU, SLICE), (GPU, {**CPU, "minReplicas": 2})])
def test_one_class_after_the_other_and_promoted_together(classes: tuple[dict[str, Any], ...]) -> None:
    fleet = ready(*classes)
    old = stable(fleet)
    fleet.edit(engine=NEW)
    said = set()
    for _ in range(40):
        fleet.step()
        said.add(fleet.members["cpu"].condition("RolloutComplete")["message"])
        assert len(down(fleet)) <= 1
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)
    assert fleet.fewest is not None
    assert fleet.fewest >= len(classes) - 1
    assert any("starts after that of OptimisedModel minilm-gpu: without a replica to spare" in one for one in said)
    assert {member.annotations.get(labels.AFTER) for member in fleet.members.values()} == {"minilm"}


@pytest.mark.parametrize("strategy", ["Canary", "Recreate"])
def test_an_upgrade_of_the_operator_takes_turns_as_well(strategy: str) -> None:
    """No spec changes, and all classes come to another candidate at once."""
    fleet = ready(GPU, CPU, SLICE, strategy=strategy)
    old = stable(fleet)
    images = replace(fleet.config.images, server="registry.example/server:next")
    fleet.config = replace(fleet.config, images=images)
    for member in fleet.members.values():
        member.config = fleet.config
    for member in fleet.members.values():
        member.live()
    assert stable(fleet) == old
    for _ in range(60):
        fleet.step()
        assert len(down(fleet)) <= 1
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)


@pytest.mark.parametrize("bad", ["gpu", "cpu", "slice"])
def test_a_candidate_that_crashes_takes_the_others_back_in_turn(bad: str) -> None:
    fleet = ready(GPU, CPU, SLICE)
    old = stable(fleet)
    fleet.edit(engine=NEW)
    member = fleet.members[bad]
    for _ in range(60):
        member.broken = dict.fromkeys(set(member.replicas()) - {old[bad]}, CRASH)
        fleet.step()
        # One may crash when it was proven already, and the next one's turn has come.
        assert len(down(fleet)) <= (1 if bad == "slice" else 2)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert stable(fleet) == old
    assert {name: one.replicas() for name, one in fleet.members.items()} == {name: {old[name]: 1} for name in old}


def test_the_others_wait_for_a_class_that_does_not_answer() -> None:
    fleet = ready(GPU, CPU)
    old = stable(fleet)
    gpu = fleet.members["gpu"]
    gpu.broken = {old["gpu"]: {"phase": "Running"}}
    fleet.run(3)
    gpu.building = True
    fleet.edit(engine=NEW)
    fleet.run(10)
    assert down(fleet) == {"gpu"}
    assert stable(fleet)["cpu"] == old["cpu"]
    gpu.building = False
    fleet.run(30)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)


def test_the_others_do_not_wait_for_ever() -> None:
    fleet = ready(GPU, CPU, SLICE)
    old = stable(fleet)
    fleet.members["gpu"].broken = NoNode()
    fleet.run(3)
    fleet.edit(engine=NEW)
    fleet.run(10)
    assert fleet.says("RolloutComplete") == "False/WaitingForClasses"
    assert fleet.condition("RolloutComplete")["message"].startswith(
        "cpu, slice can start, and promoted in all classes together: until 2026-11-21T")
    since = fleet.status["rollout"]["stepStartTime"]
    fleet.wait(1800)
    fleet.run(3)
    assert fleet.status["rollout"]["stepStartTime"] == since
    fleet.wait(20_000)
    fleet.run(3)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert "s after the first class began to wait. Class gpu: " in fleet.condition("RolloutComplete")["message"]
    assert stable(fleet) == old
    assert down(fleet) == {"gpu"}
    fleet.members["gpu"].broken = {}
    fleet.run(20)
    assert down(fleet) == set()
    fleet.annotations[labels.RETRY] = "with a node"
    fleet.run(40)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)


def test_a_retry_that_comes_before_the_time_is_over_is_answered_and_the_next_time_counts() -> None:
    fleet = ready(GPU, CPU, SLICE)
    fleet.members["gpu"].broken = NoNode()
    fleet.run(3)
    fleet.edit(engine=NEW)
    fleet.run(10)
    fleet.annotations[labels.RETRY] = "again"
    given_up = []
    for _ in range(2):
        assert fleet.says("RolloutComplete") == "False/WaitingForClasses"
        fleet.wait(20_000)
        for _ in range(20):
            fleet.step()
            found = fleet.status["rollout"].get("rolledBack")
            given_up += [found["retry"]] if found and found["retry"] not in given_up else []
    assert given_up == ["", "again"]
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    fleet.wait(20_000)
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/RolledBack"


def test_one_that_is_lost_does_not_keep_the_others_from_going_back() -> None:
    fleet = ready(GPU, CPU, SLICE)
    old = stable(fleet)
    fleet.members["slice"].building = True
    fleet.edit(engine=NEW)
    fleet.run(12)
    assert new_ones(fleet, old) == {"gpu", "cpu"}
    fleet.members["gpu"].broken = NoNode()
    fleet.run(3)
    fleet.wait(20_000)
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert new_ones(fleet, old) == set()
    assert down(fleet) == {"gpu"}
    assert fleet.fewest == 1
    fleet.members["gpu"].broken = {}
    fleet.run(20)
    assert down(fleet) == set()
    assert {name: one.replicas() for name, one in fleet.members.items()} == {name: {old[name]: 1} for name in old}


def test_the_only_one_that_answers_does_not_stop_to_go_back() -> None:
    fleet = ready(GPU, CPU, SLICE)
    old = stable(fleet)
    fleet.members["slice"].building = True
    fleet.edit(engine=NEW)
    fleet.run(12)
    assert new_ones(fleet, old) == {"gpu", "cpu"}
    fleet.members["gpu"].broken = fleet.members["slice"].broken = NoNode()
    fleet.run(3)
    fleet.wait(20_000)
    for _ in range(20):
        fleet.step()
        assert down(fleet) == {"gpu", "slice"}
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    fleet.members["slice"].broken = {}
    fleet.run(20)
    assert new_ones(fleet, old) == set()
    assert down(fleet) == {"gpu"}


def held_back(*, unlike: str, **rollout: Any) -> tuple[FleetCluster, dict[str, str]]:
    """A fleet whose class ``unlike`` has refused a revision; and what all classes serve."""
    fleet = ready(GPU, CPU, SLICE, **rollout)
    old = stable(fleet)
    fleet.members[unlike].building = True
    fleet.edit(engine=NEW)
    fleet.run(3)
    fleet.members[unlike].finish(refused("build", "user", "AccuracyNotReached"), of="build")
    fleet.run(10)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    return fleet, old


@pytest.mark.parametrize("rollout", [{"strategy": "Recreate"}, {}])
def test_classes_that_are_held_back_stay_when_they_are_edited(rollout: dict[str, Any]) -> None:
    """The class that refuses is not edited, and refuses on."""
    fleet, old = held_back(unlike="gpu", **rollout)
    zone = {"nodeSelector": {"zone": "a"}}
    fleet.classes(GPU, {**CPU, **zone}, {**SLICE, **zone})
    for _ in range(40):
        fleet.step()
        assert down(fleet) == set()
        assert new_ones(fleet, old) == set()
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert {fleet.wish(name, labels.ROLLBACK_TO) for name in ("cpu", "slice")} == {old["cpu"], old["slice"]}
    # Agreed at last: in turn, as ever.
    fleet.members["gpu"].building = False
    fleet.annotations[labels.RETRY] = "again"
    for _ in range(60):
        fleet.step()
        assert len(down(fleet)) <= 1
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)
    assert {fleet.wish(name, labels.HELD_BACK) for name in fleet.members} == {""}


@pytest.mark.parametrize("rollout", [{"strategy": "Recreate"}, {}])
def test_classes_that_are_held_back_stay_over_an_upgrade(rollout: dict[str, Any]) -> None:
    """Of a release that made other keys of their specs."""
    fleet, old = held_back(unlike="gpu", **rollout)
    for name in ("cpu", "slice"):
        status = fleet.members[name].status
        fleet.members[name].status = {**status, "pin": {**status["pin"], "specKey": "of an old release"}}
        del fleet.members[name].annotations[labels.HELD_BACK]
    for name in ("cpu", "slice"):
        fleet.members[name].live()
    for _ in range(20):
        fleet.step()
        assert down(fleet) == set()
        assert new_ones(fleet, old) == set()
    assert {fleet.wish(name, labels.HELD_BACK) for name in ("cpu", "slice")} == {old["cpu"], old["slice"]}


def test_a_class_that_a_user_pinned_follows_the_next_spec() -> None:
    fleet = ready(GPU, CPU)
    first = stable(fleet)
    fleet.edit(engine=NEW)
    fleet.run(40)
    second = stable(fleet)
    fleet.members["cpu"].annotations[labels.ROLLBACK_TO] = first["cpu"]
    fleet.run(40)
    assert stable(fleet) == {**second, "cpu": first["cpu"]}
    fleet.edit(engine={"maxBatchSize": 16})
    fleet.run(60)
    assert not set(stable(fleet).values()) & {*first.values(), *second.values()}


def new_ones(fleet: FleetCluster, old: dict[str, str]) -> set[str]:
    """Classes with a replica of another revision that answers."""
    return {name for name, member in fleet.members.items()
            if any(pod.ready and pod.revision != old[name] for pod in member.pods.values())}


def test_with_a_replica_to_spare_nobody_waits() -> None:
    fleet = FleetCluster()
    fleet.run(20)
    fleet.edit(engine=NEW)
    for _ in range(20):
        fleet.step()
        assert all(labels.AFTER not in member.annotations for member in fleet.members.values())
    assert fleet.says("Ready") == "True/Serving"

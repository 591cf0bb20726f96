"""Strategy Recreate over classes: one stops and starts anew after the other, so that the others serve on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.fleet import fleet_problems
from enginewright.core.spec.validate import validate
from support.cluster import refused
from support.fleet_cluster import FLEET, FleetCluster
from support.once import once

CRASH = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}
GPU, CPU = FLEET["placement"]["classes"]
SLICE = {"name": "slice", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.10gb"}}
CLASSES = (GPU, {**CPU, "minReplicas": 3}, SLICE)
NEW = {"maxBatchSize": 8}


class Crashing(dict[str, Any]):
    """Replicas of any revision but ``good``."""

    def __init__(self, good: str) -> None:
        super().__init__()
        self.good = good

    def get(self, key: str, default: Any = None) -> Any:
        return default if key == self.good else CRASH


@once
def ready(*classes: dict[str, Any]) -> FleetCluster:
    fleet = FleetCluster(spec={**FLEET, "placement": {"classes": list(classes)}, "rollout": {"strategy": "Recreate"}})
    fleet.run(25)
    assert fleet.says("Ready") == "True/Serving", fleet.condition("Ready")
    return fleet


def stable(fleet: FleetCluster) -> dict[str, str]:
    return {name: str(member.status["rollout"].get("stable")) for name, member in fleet.members.items()}


def running(fleet: FleetCluster) -> dict[str, set[str]]:
    """Revisions of pods, by class."""
    return {name: {pod.revision for pod in member.pods.values()} for name, member in fleet.members.items()}


def down(fleet: FleetCluster) -> set[str]:
    return {name for name, member in fleet.members.items() if not any(pod.ready for pod in member.pods.values())}


def test_one_class_after_the_other_while_the_others_serve() -> None:
    fleet = ready(*CLASSES)
    old, said, gaps = stable(fleet), set(), set()
    fleet.edit(engine=NEW)
    for _ in range(60):
        fleet.step()
        said.add(fleet.condition("RolloutComplete")["message"].split(":")[0])
        assert len(down(fleet)) <= 1
        assert all(len(revisions) <= 1 for revisions in running(fleet).values())
        gaps |= down(fleet)
    assert gaps == {"gpu", "cpu", "slice"}
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)
    assert "Strategy Recreate, one class after the other, gpu first" in said


@pytest.mark.parametrize("late", ["gpu", "cpu", "slice"])
def test_nobody_stops_before_every_class_has_an_engine(late: str) -> None:
    fleet = ready(*CLASSES)
    old = stable(fleet)
    fleet.members[late].building = True
    fleet.edit(engine=NEW)
    for _ in range(20):
        fleet.step()
        assert down(fleet) == set()
    assert stable(fleet) == old
    fleet.members[late].finish(refused("build", "user", "AccuracyNotReached"), of="build")
    for _ in range(20):
        fleet.step()
        assert down(fleet) == set()
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert stable(fleet) == old


def test_a_class_that_does_not_start_takes_those_back_that_are_through() -> None:
    fleet = ready(*CLASSES)
    old = stable(fleet)
    fleet.edit(engine=NEW)
    member = fleet.members["slice"]
    member.broken = Crashing(old["slice"])
    for _ in range(80):
        fleet.step()
        # The one that is on its way back by itself, and one more only when that answers again.
        assert len(down(fleet)) <= 1
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert "Class slice: " in fleet.condition("RolloutComplete")["message"]
    assert {name: set(one.replicas()) for name, one in fleet.members.items()} == {name: {old[name]} for name in old}
    member.broken = {}
    fleet.annotations[labels.RETRY] = "again"
    fleet.run(80)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet)[name] != old[name] for name in old)


def test_the_only_class_that_answers_does_not_stop() -> None:
    fleet = ready(GPU, CPU)
    old = stable(fleet)
    fleet.members["cpu"].broken = {old["cpu"]: {"phase": "Running"}}
    fleet.run(3)
    fleet.members["cpu"].building = True
    fleet.edit(engine=NEW)
    for _ in range(10):
        fleet.step()
        assert down(fleet) == {"cpu"}
    fleet.members["cpu"].building = False
    fleet.run(40)
    assert fleet.says("Ready") == "True/Serving"
    assert fleet.fewest == 1


def test_what_does_not_go_with_classes_is_refused() -> None:
    def problems(**rollout: Any) -> list[str]:
        spec = parse_spec({**FLEET, "rollout": rollout})
        assert isinstance(spec, Spec)
        return [problem.field for problem in (*validate(spec), *fleet_problems(spec, lambda one: ()))]

    assert problems(strategy="Recreate") == []
    assert set(problems(strategy="Recreate", autoPromote=False)) == {"spec.rollout.autoPromote"}
    assert set(problems(strategy="BlueGreen")) == {"spec.rollout.strategy"}


def test_a_class_does_not_stop_while_the_one_that_is_through_is_down() -> None:
    fleet = ready(GPU, CPU)
    old = stable(fleet)
    fleet.members["gpu"].broken = {old["gpu"]: {"phase": "Running"}}
    fleet.run(2)
    fleet.config = replace(fleet.config, images=replace(fleet.config.images, server="registry.example/server:next"))
    fleet.members["cpu"].config = fleet.config
    for _ in range(10):
        fleet.step()
        assert down(fleet) == {"gpu"}
    assert "starts when fleet minilm says so: with strategy Recreate" in fleet.condition("RolloutComplete")["message"]
    fleet.members["gpu"].broken = {}
    fleet.run(20)
    assert stable(fleet)["cpu"] != old["cpu"]
    assert fleet.fewest == 1

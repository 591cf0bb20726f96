"""Several classes of devices, one revision: made, proven and promoted together, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from support.cluster import built, described, refused
from support.fleet_cluster import FLEET, FleetCluster
from support.once import once

CRASH = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}
GPU, CPU = FLEET["placement"]["classes"]
SLICE = {"name": "slice", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.10gb"}}
NEW = {"maxBatchSize": 8}


@once
def ready(**spec: Any) -> FleetCluster:
    fleet = FleetCluster(spec={**FLEET, **spec})
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving", fleet.condition("Ready")
    return fleet


def stable(fleet: FleetCluster, name: str) -> str:
    return str(fleet.members[name].status["rollout"].get("stable"))


def test_one_object_for_each_class_and_one_service() -> None:
    fleet = FleetCluster()
    assert described(fleet.operate()) == [
        "Apply Service minilm", "Apply OptimisedModel minilm-gpu", "Apply OptimisedModel minilm-cpu"]
    gpu, cpu = fleet.members["gpu"].spec, fleet.members["cpu"].spec
    assert (gpu["placement"]["accelerator"], cpu["placement"]["accelerator"]) == ("gpu", "cpu")
    assert gpu["rollout"]["autoPromote"] is cpu["rollout"]["autoPromote"] is False
    assert fleet.says("Available") == "False/NoReplica"
    fleet.run(20)
    assert {kind: fleet.says(kind) for kind in ("Ready", "Available", "RolloutComplete", "SourceResolved")} == {
        "Ready": "True/Serving", "Available": "True/Serving", "RolloutComplete": "True/Complete",
        "SourceResolved": "True/Resolved"}
    assert [row["name"] for row in fleet.status["classes"]] == ["gpu", "cpu"]
    assert {row["ready"] for row in fleet.status["classes"]} == {"True"}
    assert {row["throughput"] for row in fleet.status["classes"]} == {900.0}
    assert (fleet.status["replicas"], fleet.status["readyReplicas"]) == (2, 2)
    assert fleet.status["summary"]["replicas"] == "2/2"
    assert "selector" not in fleet.status


def test_a_settled_fleet_is_left_alone() -> None:
    fleet = ready()
    before = fleet.status
    assert described(fleet.operate()) == []
    assert fleet.status == before
    assert fleet.last.requeue_after is None


def test_ready_only_when_every_class_is() -> None:
    fleet = FleetCluster()
    fleet.operate()
    fleet.members["gpu"].building = True
    fleet.run(20)
    assert fleet.says("Available") == "True/Serving"
    assert fleet.condition("Available")["message"] == "Replicas of cpu answer."
    assert fleet.says("Ready").startswith("False/")
    assert fleet.condition("Ready")["message"].startswith("Class gpu: ")
    assert {row["name"]: row["ready"] for row in fleet.status["classes"]} == {"gpu": "False", "cpu": "True"}
    fleet.members["gpu"].building = False
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"


def test_a_new_revision_waits_for_all_classes_and_takes_over_in_all() -> None:
    fleet = ready()
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine=NEW)
    fleet.members["gpu"].building = True
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/WaitingForClasses"
    assert fleet.says("Ready") == "False/BuildPending"
    assert fleet.members["cpu"].status["rollout"]["step"] == "WaitingForPromotion"
    assert "OptimisedModel minilm promotes it" in fleet.members["cpu"].condition("RolloutComplete")["message"]
    message = fleet.condition("RolloutComplete")["message"]
    assert message.startswith("Proven in cpu, and promoted in all classes together: until 2026-11-21T")
    assert "for gpu, else all go back. Class gpu: " in message
    assert {name: stable(fleet, name) for name in fleet.members} == old
    assert fleet.wish("cpu", labels.PROMOTE) == ""
    fleet.members["gpu"].building = False
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in fleet.members)
    assert fleet.status["rollout"]["stable"] in fleet.condition("RolloutComplete")["message"]
    assert {fleet.wish(name, labels.PROMOTE) for name in fleet.members} == {""}


def test_a_build_that_is_refused_promotes_nobody_and_the_others_give_their_candidates_up() -> None:
    fleet = ready()
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine=NEW)
    fleet.members["gpu"].building = True
    fleet.run(20)
    fleet.members["gpu"].finish(refused("build", "user", "AccuracyNotReached", "no candidate passed"), of="build")
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    told = fleet.condition("RolloutComplete")["message"]
    assert "was given up (AccuracyNotReached): Class gpu: " in told
    assert "No class is promoted: what served before goes on serving in cpu." in told
    assert told.count("kubectl optimisedmodel retry minilm -n prod") == 1
    assert fleet.says("Ready") == "False/AccuracyNotReached"
    assert fleet.says("Available") == "True/Serving"
    assert fleet.wish("cpu", labels.ROLLBACK_TO) == old["cpu"]
    assert fleet.members["cpu"].replicas() == {old["cpu"]: 1}
    assert fleet.members["gpu"].replicas() == {old["gpu"]: 1}
    settled = fleet.status
    fleet.run(5)
    assert fleet.status == settled, "nobody changes their mind by themselves"
    # Another try, in all classes.
    fleet.annotations[labels.RETRY] = "again"
    fleet.members["gpu"].building = False
    fleet.run(30)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in fleet.members)
    assert fleet.wish("cpu", labels.ROLLBACK_TO) == ""


def test_a_candidate_that_crashes_takes_the_others_back() -> None:
    fleet = ready()
    old = {name: stable(fleet, name) for name in fleet.members}
    gpu = fleet.members["gpu"]
    fleet.edit(engine=NEW)
    for _ in range(30):
        new = set(gpu.replicas()) - {old["gpu"]}
        gpu.broken = dict.fromkeys(new, CRASH)
        fleet.step()
    assert fleet.says("Ready") == "False/RolledBack"
    assert "Class gpu: Revision" in fleet.condition("Ready")["message"]
    assert {name: member.replicas() for name, member in fleet.members.items()} == {
        name: {old[name]: 1} for name in fleet.members}
    # A spec that mends it is tried in all classes.
    gpu.broken = {}
    fleet.edit(engine={"maxBatchSize": 16})
    fleet.run(30)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in fleet.members)


def test_a_class_that_fails_while_the_others_are_promoted_takes_them_back() -> None:
    fleet = ready(placement={"classes": [{**GPU, "minReplicas": 3}, CPU]})
    old = {name: stable(fleet, name) for name in fleet.members}
    gpu, cpu = fleet.members["gpu"], fleet.members["cpu"]
    fleet.edit(engine=NEW)
    for _ in range(40):
        fleet.step()
        if len(gpu.replicas()) == 2 and stable(fleet, "cpu") != old["cpu"]:
            break
    assert gpu.status["rollout"]["step"] == "Expanding"
    assert set(cpu.replicas()) == {stable(fleet, "cpu")}, "it has taken over"
    gpu.broken = dict.fromkeys(set(gpu.replicas()) - {old["gpu"]}, CRASH)
    fleet.run(40)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert {name: stable(fleet, name) for name in fleet.members} == old
    assert {name: set(member.replicas()) for name, member in fleet.members.items()} == {
        name: {old[name]} for name in old}
    assert fleet.says("Available") == "True/Serving"


def test_a_class_that_took_over_is_not_waited_for() -> None:
    fleet = ready(placement={"classes": [{**GPU, "minReplicas": 4}, CPU]})
    fleet.edit(engine=NEW)
    steps = []
    for _ in range(40):
        fleet.step()
        steps.append(fleet.status["rollout"]["step"])
    begun = steps[steps.index("Expanding"):]
    assert set(begun) == {"Expanding", "Complete"}
    assert begun == sorted(begun, reverse=True)


def test_nobody_waits_for_ever() -> None:
    fleet = ready(engine={"maxBatchSize": 16, "buildBudgetSeconds": 600})
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine={**NEW, "buildBudgetSeconds": 600})
    fleet.members["gpu"].building = True
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/WaitingForClasses"
    assert fleet.last.requeue_after is not None
    fleet.wait(600 + fleet.config.build_deadline_margin + 1800)
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    assert "(WaitingForClasses): No proven candidate of gpu" in fleet.condition("RolloutComplete")["message"]
    assert fleet.members["cpu"].replicas() == {old["cpu"]: 1}
    # A candidate that comes too late is not taken alone.
    fleet.members["gpu"].building = False
    fleet.run(20)
    assert {name: stable(fleet, name) for name in fleet.members} == old
    fleet.annotations[labels.RETRY] = "again"
    fleet.run(30)
    assert fleet.says("Ready") == "True/Serving"


def test_a_persons_word_does_not_hold_for_what_another_release_makes() -> None:
    fleet = ready(rollout={"analysis": {"seconds": 0}, "autoPromote": False})
    fleet.edit(engine=NEW)
    fleet.run(20)
    fleet.annotations[labels.PROMOTE] = fleet.status["rollout"]["candidate"]
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    old = {name: stable(fleet, name) for name in fleet.members}
    config = replace(fleet.config, images=replace(fleet.config.images, server="another:2"))
    fleet.config = config
    for member in fleet.members.values():
        member.config = config
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/WaitingForPromotion"
    assert {name: stable(fleet, name) for name in old} == old
    rollout = fleet.status["rollout"]
    assert rollout["candidate"] != rollout["stable"]
    said = fleet.condition("RolloutComplete")["message"]
    assert f"kubectl optimisedmodel promote minilm {rollout['candidate']} -n prod" in said
    fleet.annotations[labels.PROMOTE] = rollout["candidate"]
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in old)
    assert fleet.status["rollout"]["stable"] == rollout["stable"], "what is asked for is the same"


def test_a_person_may_have_the_last_word() -> None:
    fleet = ready(rollout={"analysis": {"seconds": 0}, "autoPromote": False})
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine=NEW)
    fleet.run(20)
    assert fleet.says("Ready") == "False/WaitingForPromotion"
    revision = fleet.status["rollout"]["candidate"]
    assert f"kubectl optimisedmodel promote minilm {revision} -n prod" in fleet.condition("Ready")["message"]
    assert {name: stable(fleet, name) for name in fleet.members} == old
    fleet.annotations[labels.PROMOTE] = revision
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in fleet.members)


def test_a_class_that_is_added_promotes_nobody_without_a_persons_word() -> None:
    fleet = ready(rollout={"analysis": {"seconds": 0}, "autoPromote": False})
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine=NEW, placement={"classes": [GPU, CPU, {**SLICE, "minReplicas": 4}]})
    fleet.run(40)
    assert fleet.says("RolloutComplete") == "False/WaitingForPromotion"
    assert sum(fleet.members["slice"].replicas().values()) == 4, "it has nothing to go back to"
    assert {name: stable(fleet, name) for name in old} == old
    fleet.annotations[labels.PROMOTE] = fleet.status["rollout"]["candidate"]
    fleet.step()
    # What has begun goes on without the annotation.
    fleet.annotations.clear()
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in old)


@pytest.mark.parametrize("key", [labels.ROLLBACK_TO, labels.RETRY])
def test_a_wish_of_the_fleet_that_somebody_took_off_a_class_is_put_back(key: str) -> None:
    fleet = ready()
    fleet.annotations[labels.RETRY] = "once"
    fleet.edit(engine=NEW)
    fleet.members["gpu"].building = True
    fleet.run(20)
    fleet.members["gpu"].finish(refused("build", "user", "AccuracyNotReached"), of="build")
    fleet.run(20)
    wish = fleet.wish("cpu", key)
    del fleet.members["cpu"].annotations[key]
    assert described(fleet.operate()) == ["Apply OptimisedModel minilm-cpu"]
    assert fleet.wish("cpu", key) == wish
    assert described(fleet.operate()) == []


def test_a_class_that_misses_a_required_objective_is_one_that_refuses() -> None:
    fleet = ready(objective={"latency": {"milliseconds": 20}})
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine=NEW, rollout={**FLEET.get("rollout", {}), "requireObjective": True})
    fleet.members["gpu"].building = True
    fleet.run(20)
    fleet.members["gpu"].finish(built(objective_met=False, p50_ms=21.0, p99_ms=34.2, requests=400), of="build")
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    message = fleet.condition("RolloutComplete")["message"]
    assert "was given up (ObjectiveMissed): Class gpu: " in message
    assert "p99 34.2 ms of p99 20 ms allowed" in message
    assert {name: fleet.members[name].replicas() for name in old} == {name: {old[name]: 1} for name in old}
    settled = fleet.status
    fleet.run(5)
    assert fleet.status == settled


def test_a_fleet_is_not_rolled_back_by_annotation_and_says_so() -> None:
    fleet = ready()
    fleet.annotations[labels.ROLLBACK_TO] = "0123abcd"
    assert described(fleet.operate()) == []
    assert fleet.says("Ready") == "False/RollbackTargetUnknown"
    assert "set it on the object of a class (minilm-gpu, minilm-cpu)" in fleet.condition("Ready")["message"]


def test_a_class_that_somebody_pinned_is_said() -> None:
    fleet = ready()
    first = stable(fleet, "cpu")
    fleet.edit(engine=NEW)
    fleet.run(20)
    fleet.members["cpu"].annotations[labels.ROLLBACK_TO] = first
    fleet.run(20)
    assert stable(fleet, "cpu") == first
    assert fleet.says("Ready") == "False/Pinned"
    assert fleet.condition("Ready")["message"].startswith("Class cpu: Annotation enginewright.io/rollback-to pins")


def test_replicas_of_a_class_are_no_new_revision() -> None:
    fleet = ready()
    revision = fleet.status["rollout"]["stable"]
    fleet.classes({**GPU, "minReplicas": 3}, CPU)
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert fleet.status["rollout"]["stable"] == revision
    assert fleet.status["summary"]["replicas"] == "4/4"


def test_what_classes_say_alike_is_said_once() -> None:
    fleet = ready()
    message = fleet.condition("SourceResolved")["message"]
    assert message.startswith("Classes gpu, cpu: huggingface, 90.0 MB")
    assert message.count("huggingface") == 1


def test_each_class_scales_by_itself_within_its_limits() -> None:
    entries = [GPU, {**CPU, "minReplicas": 2, "maxReplicas": 3}]
    fleet = ready(placement={"classes": entries}, autoscaling={"maxReplicas": 8, "algorithm": "queue"})
    assert fleet.status["summary"]["replicas"] == "3/3"
    cpu = fleet.members["cpu"]
    for _ in range(10):
        cpu.queue(400.0)
        fleet.step()
    assert sum(cpu.replicas().values()) == 3
    assert sum(fleet.members["gpu"].replicas().values()) == 1
    assert fleet.status["summary"]["replicas"] == "4/4"
    assert fleet.status["rollout"]["step"] == "Complete"


def test_a_class_goes_when_the_others_serve() -> None:
    fleet = ready(placement={"classes": [GPU, CPU, SLICE]})
    fleet.classes(GPU, SLICE)
    plan = fleet.operate()
    assert described(plan) == ["Delete OptimisedModel minilm-cpu"]
    fleet.run(5)
    assert sorted(fleet.members) == ["gpu", "slice"]
    assert fleet.says("Ready") == "True/Serving"
    assert fleet.fewest is not None
    assert fleet.fewest > 0


def test_a_class_stays_until_what_replaces_it_serves() -> None:
    fleet = ready()
    fleet.classes(GPU, SLICE)
    fleet.operate()
    fleet.members["slice"].building = True
    fleet.run(10)
    assert sorted(fleet.members) == ["cpu", "gpu", "slice"]
    assert fleet.says("Ready").startswith("False/")
    fleet.members["slice"].building = False
    fleet.run(20)
    assert sorted(fleet.members) == ["gpu", "slice"]
    assert fleet.says("Ready") == "True/Serving"


def test_the_only_class_that_serves_never_goes() -> None:
    fleet = FleetCluster(spec={**FLEET, "placement": {"classes": [GPU, CPU, SLICE]}})
    fleet.operate()
    for name in ("gpu", "slice"):
        fleet.members[name].building = True
    fleet.run(10)
    assert len(fleet.answering()) == 1
    for name in ("gpu", "slice"):
        fleet.members[name].finish(refused("build", "user", "AccuracyNotReached"), of="build")
    fleet.classes(GPU, SLICE)
    fleet.run(20)
    assert "cpu" in fleet.members
    assert fleet.says("Available") == "True/Serving"
    assert fleet.says("Ready").startswith("False/")
    assert len(fleet.answering()) == 1


def test_what_somebody_changed_in_a_member_is_put_right() -> None:
    fleet = ready()
    cpu = fleet.members["cpu"]
    cpu.edit(replicas=5)
    assert described(fleet.operate()) == ["Apply OptimisedModel minilm-cpu"]
    assert cpu.spec["replicas"] == 1
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"


def test_what_the_apiserver_fills_in_is_no_change() -> None:
    fleet = ready()
    fleet.members["cpu"].spec = {**fleet.members["cpu"].spec, "suspend": False, "engine": {"precision": "auto"}}
    assert described(fleet.operate()) == []


def test_a_field_that_the_spec_loses_is_lost_by_the_members() -> None:
    fleet = ready(engine=NEW)
    fleet.edit(engine=None)
    assert described(fleet.operate()) == ["Apply OptimisedModel minilm-gpu", "Apply OptimisedModel minilm-cpu"]


def test_a_name_that_is_taken_is_said_and_left_alone() -> None:
    fleet = FleetCluster(taken=frozenset({"minilm-cpu"}))
    assert "Apply OptimisedModel minilm-cpu" not in described(fleet.operate())
    assert fleet.says("Ready") == "False/NameTaken"
    assert fleet.condition("Ready")["message"].startswith("OptimisedModel minilm-cpu is there already")


def test_a_bad_spec_leaves_what_serves_alone() -> None:
    fleet = ready()
    fleet.edit(accuracy={"maxLoss": 0.9})
    plan = fleet.operate()
    assert described(plan) == []
    assert fleet.says("Ready") == "False/InvalidSpec"
    assert fleet.says("Available") == "True/Serving"
    assert fleet.condition("Available")["message"] == "Replicas of gpu, cpu answer."
    assert len(fleet.status["classes"]) == 2


def test_a_fleet_that_is_suspended_says_so_and_nobody_goes_back() -> None:
    fleet = ready()
    fleet.edit(engine=NEW)
    fleet.members["gpu"].building = True
    fleet.run(10)
    fleet.edit(suspend=True)
    fleet.run(5)
    fleet.wait(100_000)
    fleet.run(5)
    assert fleet.says("RolloutComplete") == "False/Suspended"
    assert fleet.wish("cpu", labels.ROLLBACK_TO) == ""


def test_a_class_that_cannot_go_back_is_not_said_to_have_done_so() -> None:
    fleet = ready()
    fleet.edit(engine=NEW)
    fleet.members["gpu"].building = True
    fleet.run(15)
    del fleet.members["cpu"]  # by hand: it comes again, with what is asked for now
    fleet.run(10)
    fleet.members["gpu"].finish(refused("build", "user", "AccuracyNotReached"), of="build")
    fleet.run(20)
    assert fleet.says("RolloutComplete") == "False/RolledBack"
    said = fleet.condition("RolloutComplete")["message"]
    assert "goes on serving" not in said
    assert f"Class cpu: Annotation {labels.ROLLBACK_TO}=" in said


def test_nobody_is_promoted_while_a_fleet_is_suspended() -> None:
    fleet = ready(rollout={"analysis": {"seconds": 0}, "autoPromote": False})
    old = {name: stable(fleet, name) for name in fleet.members}
    fleet.edit(engine=NEW)
    fleet.run(20)
    assert fleet.says("Ready") == "False/WaitingForPromotion"
    fleet.annotations[labels.PROMOTE] = fleet.status["rollout"]["candidate"]
    fleet.edit(suspend=True)
    fleet.run(10)
    assert fleet.says("RolloutComplete") == "False/Suspended"
    assert {fleet.wish(name, labels.PROMOTE) for name in old} == {""}
    assert {name: stable(fleet, name) for name in old} == old
    fleet.edit(suspend=None)
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert all(stable(fleet, name) != old[name] for name in old)


def test_no_class_goes_from_a_fleet_that_is_suspended() -> None:
    fleet = ready(placement={"classes": [GPU, CPU, SLICE]})
    fleet.edit(suspend=True, placement={"classes": [GPU, CPU]})
    fleet.run(5)
    assert len(fleet.answering()) == 3
    assert fleet.says("Ready") == "False/Draining"
    said = "Not in the spec any more: Class slice serves on while spec.suspend is true."
    assert fleet.condition("Ready")["message"] == said
    fleet.edit(suspend=None)
    fleet.run(5)
    assert sorted(fleet.members) == ["cpu", "gpu"]
    assert fleet.says("Ready") == "True/Serving"


@pytest.mark.parametrize("status", [{}, {"rollout": 3, "classes": "x", "conditions": None}])
def test_a_status_that_is_lost_is_found_out_again(status: dict[str, Any]) -> None:
    fleet = ready()
    before = {kind: fleet.says(kind) for kind in ("Ready", "Available", "RolloutComplete")}
    fleet.status = status
    assert described(fleet.operate()) == []
    assert {kind: fleet.says(kind) for kind in before} == before

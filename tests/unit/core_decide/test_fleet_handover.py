"""What a class that leaves has carried is made up for by the others before it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import labels
from enginewright.core.config import OperatorConfig, Prices
from enginewright.core.fleet.departure import _grow, _Remaining
from support.cluster import Cluster, built, described, resolved
from support.fleet_cluster import FLEET, FleetCluster
from support.once import once

GPU, CPU = FLEET["placement"]["classes"]
SLICE = {"name": "slice", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "1g.10gb"}}
SCALED = {"autoscaling": {"maxReplicas": 8, "algorithm": "queue"}}
GATEWAY = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
ROUTED = {"analysis": {"seconds": 0}, "gateway": GATEWAY}
# Inferences a second of one replica.
SPEEDS = {"gpu": 900.0, "cpu": 100.0, "slice": 300.0}
PRICED = OperatorConfig(prices=Prices(currency="EUR", per_hour={"cpu": 5.0}))


@once
def ready(*classes: Mapping[str, Any], speeds: Mapping[str, float] = SPEEDS, **spec: Any) -> FleetCluster:
    fleet = FleetCluster(spec={**FLEET, **SCALED, "placement": {"classes": list(classes)}, **spec})
    fleet.operate()
    for name, member in fleet.members.items():
        member.operate()
        member.finish(resolved(), of="resolve")
        member.operate()
        member.config = PRICED
        member.finish(built(throughput=speeds[name], device_class="cpu"), of="build")
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving", fleet.condition("Ready")
    return fleet


def counts(fleet: FleetCluster) -> dict[str, int]:
    return {name: len([pod for pod in member.pods.values() if pod.ready]) for name, member in fleet.members.items()}


def least(fleet: FleetCluster) -> dict[str, str]:
    return {name: member.annotations.get(labels.LEAST_REPLICAS, "") for name, member in fleet.members.items()}


@pytest.mark.parametrize(("classes", "leaves", "gateway", "expected"), [
    # Behind the Service a replica had no more than the slowest can do: 3 x 100, which 2 x 300 are more than.
    ([GPU, SLICE, CPU], "cpu", False, {"gpu": 1, "slice": 1}),
    # 3 x 100, with the slowest still there.
    ([GPU, SLICE, CPU], "gpu", False, {"slice": 2, "cpu": 1}),
    # 9 x 100, in replicas that do 300 at least.
    ([GPU, SLICE, {**CPU, "minReplicas": 7}], "cpu", False, {"gpu": 2, "slice": 1}),
    # 5 x 100; the larger class takes it.
    ([{**SLICE, "minReplicas": 3}, CPU, GPU], "gpu", False, {"slice": 4, "cpu": 1}),
    # A Gateway gave 900 to the GPU.
    ([GPU, SLICE, CPU], "gpu", True, {"slice": 4, "cpu": 3}),
    # Twice 300, which one GPU more does.
    ([GPU, {**SLICE, "minReplicas": 2}, CPU], "slice", True, {"gpu": 2, "cpu": 1}),
])
def test_the_others_have_replicas_enough_before_it_goes(
    classes: list[Mapping[str, Any]], leaves: str, gateway: bool, expected: dict[str, int]
) -> None:
    rollout = ROUTED if gateway else {"analysis": {"seconds": 0}}
    fleet = ready(*classes, rollout=rollout)
    fleet.classes(*(entry for entry in classes if entry["name"] != leaves))
    before: dict[str, int] = {}
    for _ in range(20):
        if leaves in fleet.members:
            before = counts(fleet)
            fleet.operate()
            for member in fleet.members.values():
                member.live()
    assert before == {**expected, leaves: counts_of(classes, leaves)}, "they were there while it was"
    fleet.run(5)
    assert counts(fleet) == expected
    assert fleet.says("Ready") == "True/Serving"


def counts_of(classes: list[Mapping[str, Any]], name: str) -> int:
    return next(int(entry.get("minReplicas", 1)) for entry in classes if entry["name"] == name)


def test_it_is_said_and_ends_when_the_load_has_been_watched() -> None:
    fleet = ready(GPU, CPU)
    fleet.classes(CPU, SLICE)
    fleet.operate()
    coming = fleet.members["slice"]
    coming.building = True
    fleet.run(3)
    assert least(fleet) == {"gpu": "", "cpu": "", "slice": ""}, "nothing begins before all that come serve"
    coming.finish(resolved(), of="resolve")
    fleet.run(1)
    coming.finish(built(throughput=300.0), of="build")
    said = set()
    for _ in range(20):
        if "gpu" in fleet.members:
            fleet.step()
            said.add(fleet.condition("Ready")["message"])
    assert "gpu" not in fleet.members, said
    assert "handover" in fleet.status
    assert any("Class gpu serves on until the others have replicas enough to carry its load: " in one for one in said)
    assert {row["name"]: row["leastReplicas"] for row in fleet.status["classes"]} == {"cpu": 2, "slice": 1}
    fleet.run(3)
    assert fleet.says("Ready") == "True/Serving", "for what is kept is no fault"
    assert least(fleet) == {"cpu": "2", "slice": "1"}
    assert fleet.last.requeue_after is not None
    assert 290 <= fleet.last.requeue_after <= 300
    fleet.wait(301)
    assert described(fleet.operate()) == ["Apply OptimisedModel minilm-cpu", "Apply OptimisedModel minilm-slice"]
    assert least(fleet) == {"cpu": "", "slice": ""}
    assert "handover" not in fleet.status
    assert all("leastReplicas" not in row for row in fleet.status["classes"])
    assert fleet.says("Ready") == "True/Serving"


def test_what_the_others_may_not_carry_stays_and_is_said() -> None:
    fleet = ready(GPU, {**CPU, "maxReplicas": 4}, SLICE,
                  rollout=ROUTED, autoscaling={"maxReplicas": 1})
    fleet.classes({**CPU, "maxReplicas": 4}, SLICE)
    fleet.run(20)
    assert counts(fleet) == {"gpu": 1, "cpu": 4, "slice": 1}
    assert fleet.says("Ready") == "False/Draining"
    assert fleet.condition("Ready")["message"] == (
        "Not in the spec any more: Class gpu serves on because the others cannot make up for it: with their "
        "maxReplicas (cpu 4, slice 1) they carry 700 of the 1300 inferences/s that all carry together. Raise "
        "maxReplicas, or kubectl delete om minilm-gpu -n prod to do without.")
    settled = fleet.status
    fleet.run(3)
    assert fleet.status == settled
    # What it says helps.
    fleet.classes({**CPU, "maxReplicas": 10}, SLICE)
    fleet.run(20)
    assert counts(fleet) == {"cpu": 10, "slice": 1}
    assert fleet.says("Ready") == "True/Serving"


@pytest.mark.parametrize(("limit", "most"), [
    ({"schedules": [{"name": "always", "start": "0 0 1 1 *", "end": "59 23 31 12 *", "maxReplicas": 3}]}, 3),
    ({"costCeilingPerHour": 10}, 2),
])
def test_no_more_is_counted_on_than_schedules_and_prices_allow(limit: dict[str, Any], most: int) -> None:
    fleet = ready(GPU, CPU, SLICE, rollout=ROUTED, autoscaling={"maxReplicas": 20, "algorithm": "queue", **limit})
    assert {one.status["autoscaling"]["maxReplicas"] for one in fleet.members.values()} == {most}
    fleet.classes(CPU, SLICE)
    fleet.run(20)
    assert counts(fleet) == {"gpu": 1, "cpu": most, "slice": most}
    assert fleet.condition("Ready")["message"] == (
        f"Not in the spec any more: Class gpu serves on because the others cannot make up for it: with their "
        f"maxReplicas (cpu {most}, slice {most}) they carry {400 * most} of the 1300 inferences/s that all carry "
        f"together. Raise maxReplicas, autoscaling.schedules or costCeilingPerHour, whichever limits them, or kubectl "
        f"delete om minilm-gpu -n prod to do without.")
    settled = fleet.status
    fleet.wait(3600)
    fleet.run(3)
    assert fleet.status == settled
    # What it says helps.
    fleet.edit(autoscaling={"maxReplicas": 20, "algorithm": "queue"})
    fleet.run(20)
    assert "gpu" not in fleet.members
    assert fleet.says("Ready") == "True/Serving"


def test_without_a_price_nobody_grows_for_a_class_that_leaves() -> None:
    """More replicas might cost more than the ceiling: it serves on, and the fleet says what would help."""
    fleet = ready(GPU, CPU, SLICE, rollout=ROUTED, autoscaling={"maxReplicas": 20, "costCeilingPerHour": 1000})
    for member in fleet.members.values():
        member.config = OperatorConfig()
    fleet.run(3)
    fleet.classes(CPU, SLICE)
    fleet.run(20)
    assert counts(fleet) == {"gpu": 1, "cpu": 1, "slice": 1}
    assert fleet.members["cpu"].says("ScalingActive") == "False/PriceUnknown"
    assert fleet.condition("Ready")["message"] == (
        "Not in the spec any more: Class gpu serves on because the others cannot make up for it: with their "
        "maxReplicas (cpu 1, slice 1) they carry 400 of the 1300 inferences/s that all carry together. Add the price "
        "of cpu, slice to config.prices.perHour, raise maxReplicas, autoscaling.schedules or costCeilingPerHour, "
        "whichever limits them, or kubectl delete om minilm-gpu -n prod to do without.")
    settled = fleet.status
    fleet.run(3)
    assert fleet.status == settled
    for member in fleet.members.values():
        member.config = PRICED
    fleet.run(20)
    assert "gpu" not in fleet.members
    assert fleet.says("Ready") == "True/Serving"


def test_a_price_that_goes_keeps_what_a_handover_has_begun() -> None:
    fleet = ready(GPU, CPU, SLICE, rollout=ROUTED, autoscaling={"maxReplicas": 20, "costCeilingPerHour": 1000})
    fleet.classes(CPU, SLICE)
    before = counts(fleet)
    while sum(counts(fleet).values()) == sum(before.values()):
        fleet.step()
    for member in fleet.members.values():
        member.config = OperatorConfig()
    begun = {name: member.status["autoscaling"]["desiredReplicas"] for name, member in fleet.members.items()}
    fleet.run(20)
    assert (begun["cpu"], begun["slice"]) == (4, 3)
    assert {**counts(fleet), "gpu": 1} == {**begun, "gpu": 1}



def test_deleted_by_hand_it_is_gone_and_the_others_keep_what_they_have() -> None:
    fleet = ready(GPU, CPU, SLICE, rollout=ROUTED, autoscaling={"maxReplicas": 2})
    fleet.classes(CPU, SLICE)
    fleet.run(5)
    assert "gpu" in fleet.members
    del fleet.members["gpu"]
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving"
    assert counts(fleet) == {"cpu": 2, "slice": 2}


def test_a_second_one_that_leaves_takes_nothing_twice() -> None:
    arm = {**CPU, "name": "arm"}
    fleet = ready(GPU, SLICE, CPU, arm, rollout=ROUTED, autoscaling={"maxReplicas": 20},
                  speeds={**SPEEDS, "arm": 100.0})
    fleet.classes(SLICE, CPU, arm)
    fleet.operate()
    assert fleet.status["handover"] == {"classes": ["gpu"], "inferencesPerSecond": 1400}
    fleet.run(1)
    fleet.classes(CPU, arm)
    fleet.run(30)
    assert sum(counts(fleet).values()) == 14
    assert fleet.says("Ready") == "True/Serving"


@pytest.mark.parametrize("spec", [
    {"autoscaling": None},
    {"rollout": {"analysis": {"seconds": 0}, "maxSurge": 0}},
    {"suspend": True},
])
def test_numbers_that_a_person_set_and_places_that_are_not_there_are_left_alone(spec: dict[str, Any]) -> None:
    fleet = ready(GPU, SLICE, CPU)
    fleet.edit(**spec)
    fleet.run(10)
    fleet.classes(SLICE, CPU)
    fleet.run(10)
    assert ("gpu" in fleet.members) == ("suspend" in spec)
    assert set(least(fleet).values()) == {""}
    assert "handover" not in fleet.status
    assert (counts(fleet)["slice"], counts(fleet)["cpu"]) == (1, 1)


def test_a_class_that_answers_nobody_leaves_nothing_to_make_up_for() -> None:
    fleet = ready(GPU, SLICE, CPU)
    gpu = fleet.members["gpu"]
    gpu.broken = {revision: {"phase": "Running"} for revision in gpu.replicas()}
    fleet.run(3)
    fleet.classes(SLICE, CPU)
    fleet.run(3)
    assert counts(fleet) == {"slice": 1, "cpu": 1}
    assert "handover" not in fleet.status


def test_a_peak_meanwhile_is_no_floor_when_it_is_over() -> None:
    fleet = ready(GPU, SLICE, CPU, rollout=ROUTED)
    fleet.classes(SLICE, CPU)
    fleet.operate()
    planned = least(fleet)
    assert planned == {"gpu": "", "slice": "4", "cpu": "3"}
    cpu = fleet.members["cpu"]
    cpu.live()
    cpu.queue(100)
    cpu.live()
    assert cpu.status["autoscaling"]["desiredReplicas"] == 8
    fleet.run(10)
    assert "gpu" not in fleet.members
    assert counts(fleet)["cpu"] == 8
    assert {"gpu": "", **least(fleet)} == planned


def test_one_that_is_asked_for_again_ends_it() -> None:
    few = [{**SLICE, "maxReplicas": 1}, {**CPU, "maxReplicas": 1}]
    fleet = ready(GPU, *few)
    fleet.classes(*few)
    fleet.run(3)
    assert fleet.says("Ready") == "False/Draining"
    fleet.classes(GPU, *few)
    fleet.run(5)
    assert fleet.says("Ready") == "True/Serving"
    fleet.wait(301)
    fleet.run(3)
    assert "handover" not in fleet.status
    assert set(least(fleet).values()) == {""}


def test_a_wish_that_somebody_took_off_or_a_status_that_is_lost_is_found_out_again() -> None:
    fleet = ready(GPU, SLICE, CPU)
    fleet.classes(SLICE, CPU)
    fleet.operate()
    assert least(fleet)["slice"] == "2"
    del fleet.members["slice"].annotations[labels.LEAST_REPLICAS]
    fleet.operate()
    assert least(fleet)["slice"] == "2"
    fleet.status = {}
    fleet.run(10)
    assert set(fleet.members) == {"slice", "cpu"}
    assert counts(fleet)["slice"] >= 2


def test_an_annotation_of_nonsense_is_no_wish_and_none_of_an_object_without_a_fleet() -> None:
    fleet = ready(GPU, CPU)
    cpu = fleet.members["cpu"]
    for value in ("many", "-3", "", "9" * 5000, "3.5"):
        cpu.annotations[labels.LEAST_REPLICAS] = value
        cpu.live()
        assert sum(cpu.replicas().values()) == 1
    cpu.annotations[labels.LEAST_REPLICAS] = "99"
    cpu.live()
    assert sum(cpu.replicas().values()) == 8, "no more than maxReplicas"


def test_an_object_of_no_fleet_has_its_own_limits() -> None:
    alone = Cluster(spec={"source": {"uri": "pvc://models/minilm"}, "placement": {"accelerator": "cpu"}, **SCALED},
                    annotations={labels.LEAST_REPLICAS: "5"})
    for _ in range(20):
        alone.operate()
        alone.settle_jobs()
        alone.controllers()
        alone.wait(1)
    assert sum(alone.replicas().values()) == 1


remaining = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.floats(0.01, 1e5)), min_size=1, max_size=8)


@given(remaining, st.floats(0, 1e6))
def test_no_more_than_is_needed_and_all_that_may_be(found: list[tuple[int, int, float]], load: float) -> None:
    everyone = [_Remaining(name=str(index), before=before, replicas=before, most=before + room, each=each)
                for index, (before, room, each) in enumerate(found)]
    lack = _grow(everyone, load)
    carried = sum(one.replicas * one.each for one in everyone)
    assert all(one.before <= one.replicas <= one.most for one in everyone)
    if lack:
        assert all(one.replicas == one.most for one in everyone)
        assert lack == pytest.approx(load - carried, rel=1e-4, abs=1e-4)
        return
    assert carried >= load * (1 - 1e-4) - 1e-4
    grown = [one for one in everyone if one.replicas > one.before]
    # The last one that was added was needed.
    assert not grown or any(carried - one.each < load * (1 + 1e-4) + 1e-4 for one in grown)

"""What is read from nodes and pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from enginewright.core.planner.nodes import Fleet, fleet_of
from support.fleets import H100
from support.nodes import node, pod


def read(*objects: Mapping[str, Any]) -> Fleet:
    fleet = fleet_of(objects)
    assert isinstance(fleet, Fleet), fleet
    return fleet


def layouts(fleet: Fleet) -> list[list[str]]:
    return [[f"{i.profile}@{i.start}{'*' if i.used_by else ''}" for i in gpu.instances] for gpu in fleet.gpus]


def test_boards_that_are_cut_alike() -> None:
    fleet = read(node("a", H100, count=2, **{"mig-3g.40gb": 2, "mig-1g.10gb": 6}))
    assert layouts(fleet) == [["1g.10gb@1", "1g.10gb@2", "1g.10gb@3", "3g.40gb@4"]] * 2


def test_boards_that_differ_and_one_without_mig() -> None:
    fleet = read(node("a", H100, count=3, gpu=1, **{"mig-7g.80gb": 1, "mig-1g.10gb": 3}))
    assert sorted(map(len, layouts(fleet))) == [0, 1, 3]
    assert [gpu.mig for gpu in fleet.gpus] == [True, True, False]


def test_strategy_single() -> None:
    fleet = read(node("a", f"{H100}-MIG-1g.10gb", count=14, gpu=14),
                 pod("p", "a", {"nvidia.com/gpu": 1}))
    assert layouts(fleet)[0][0] == "1g.10gb@0*"
    assert list(map(len, layouts(fleet))) == [7, 7]
    assert {gpu.product for gpu in fleet.gpus} == {H100}


def test_media_engines() -> None:
    fleet = read(node("a", H100, count=1, **{"mig-1g.10gb.me": 1, "mig-2g.20gb": 3}))
    assert [name.partition("@")[0] for name in layouts(fleet)[0]].count("1g.10gb+me") == 1


def test_who_runs_takes_the_first_and_keeps_the_board() -> None:
    fleet = read(
        node("a", H100, count=2, **{"mig-1g.10gb": 14}), node("b", H100, count=2, gpu=2),
        pod("p", "a", {"nvidia.com/mig-1g.10gb": 2}), pod("q", "b", {"nvidia.com/gpu": 1}),
        pod("ended", "b", {"nvidia.com/gpu": 1}, phase="Succeeded"),
    )
    assert [sum("*" in one for one in layout) for layout in layouts(fleet)] == [2, 0, 0, 0]
    assert [gpu.used_by for gpu in fleet.gpus] == ["", "", "q", ""]
    assert [gpu.layout for gpu in fleet.gpus] == ["kept", "proposal", "kept", "proposal"]


def test_replicas_that_run_are_counted() -> None:
    labels = {"enginewright.io/model": "m", "app.kubernetes.io/component": "server"}
    built = {"enginewright.io/model": "m", "app.kubernetes.io/component": "build"}
    fleet = read(node("a", H100, count=1, gpu=1), pod("p", "a", {}, labels=labels), pod("q", "a", {}, labels=built),
                 pod("waits", "", {}, labels=labels))
    assert fleet.running == {("default", "m"): 1}


def test_nodes_that_take_no_pods_are_left_out() -> None:
    cordoned = node("b", H100, count=1, gpu=1)
    cordoned["spec"]["unschedulable"] = True
    down = node("c", H100, count=1, gpu=1)
    down["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    fleet = read(node("a", H100, count=1, gpu=1), cordoned, down, {"kind": "Node", "metadata": {"name": "cpu"}})
    assert [gpu.node for gpu in fleet.gpus] == ["a"]
    assert fleet.notes[:2] == ("node b is left out: it is cordoned", "node c is left out: it is not ready")


@pytest.mark.parametrize(("bad", "said"), [
    (node("a", "", gpu=1),
     'node a: metadata.labels[nvidia.com/gpu.product]: is missing, so its GPUs are unknown (got ""); run GPU '
     "feature discovery (part of NVIDIA's GPU operator) on it, or set the label"),
    (node("a", H100, **{"mig-9g.10gb": 1}),
     "node a: status.allocatable[nvidia.com/mig-9g.10gb]: is not a profile of NVIDIA-H100-80GB-HBM3 (got 1); correct "
     "the "
     "label of its product"),
    (node("a", H100, count=1, **{"mig-3g.40gb": 3}),
     'node a: status.allocatable: is more than 1 boards of NVIDIA-H100-80GB-HBM3 can hold (got {"3g.40gb": 3}); '
     "correct the label nvidia.com/gpu.count"),
    (node("a", H100, count=1, gpu=2),
     'node a: metadata.labels[nvidia.com/gpu.count]: is not the number of its GPUs, 2 of which are whole (got "1"); '
     "correct the label"),
    (node("a", H100, gpu="many"),  # type: ignore[arg-type]
     'node a: status.allocatable[nvidia.com/gpu]: is not a number of devices (got "many"); write a number'),
])
def test_a_node_that_makes_no_sense_is_refused(bad: Mapping[str, Any], said: str) -> None:
    problems = fleet_of([bad])
    assert isinstance(problems, list)
    assert [str(problem) for problem in problems] == [said]

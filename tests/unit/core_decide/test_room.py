"""What stands in the way of pods that no node can take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.config import OperatorConfig
from enginewright.core.placement import Placement, place
from enginewright.core.planner.in_the_way import in_the_way
from enginewright.core.planner.objects import views_of
from enginewright.core.planner.site import LOOKED, site
from enginewright.core.spec import Spec, parse_spec
from support.cluster import Cluster, built, resolved
from support.fleets import H100
from support.nodes import node, pod

CONFIG = OperatorConfig(require_mig_config_state=False)
ONE = {"nvidia.com/mig-1g.10gb": 1}
SMALL = {"mig-1g.10gb": 7}
NO_GPUS = ("No node that it may run on has GPUs that are known (label nvidia.com/gpu.product): install NVIDIA's GPU "
           "operator, or let spec.placement name nodes that have GPUs, or accelerator: cpu.")
PROPOSAL = "This is a proposal, not carried out by the operator; enginewright plan prints it for the MIG manager."


def placed(profile: str = "", count: int = 1, **more: Any) -> Placement:
    mig = {"mig": {"profile": profile}} if profile else {}
    placement = {"accelerator": "gpu", "gpu": {"product": H100, "count": count}, **mig, **more}
    spec = parse_spec({"source": {"uri": "pvc://models/m"}, "placement": placement})
    assert isinstance(spec, Spec), spec
    found = place(spec, 0, CONFIG)
    assert isinstance(found, Placement)
    return found


def say(placement: Placement, *objects: Mapping[str, Any], replicas: int = 1, namespace: str = "default") -> str:
    there = site(placement, views_of(objects), namespace)
    assert there is not None
    return in_the_way(there, replicas)


def cut(name: str, *pods: str, **slices: int) -> list[dict[str, Any]]:
    """A node with one GPU, on which ``pods`` have a 1g.10gb each."""
    return [node(name, H100, count=1, **(slices or SMALL)), *(pod(one, name, ONE) for one in pods)]


def closed(name: str) -> dict[str, Any]:
    found = node(name, H100, count=1, **{"mig-3g.40gb": 2})
    found["spec"]["unschedulable"] = True
    return found


@pytest.mark.parametrize(("placement", "objects", "said"), [
    pytest.param(placed("1g.10gb"), cut("a", "p"), "Devices do not stand in the way: free are 6 × 1g.10gb on node a.",
                 id="something else"),
    pytest.param(placed("1g.10gb"), cut("a", *"pqrstu"),
                 "Devices do not stand in the way: free are 1 × 1g.10gb on node a.", id="just enough"),
    pytest.param(placed("1g.10gb"), cut("a", *"pqrstuv"),
                 "There is not enough: 7 of 7 × nvidia.com/mig-1g.10gb on the nodes that it may run on (1) are in use, "
                 "and other layouts of idle GPUs would not make room.", id="all in use"),
    pytest.param(placed("3g.40gb"), cut("a", *"pqrstu"),
                 "There is no nvidia.com/mig-3g.40gb on any node that it may run on, and no idle GPU to cut for it.",
                 id="too little in sum"),
    pytest.param(placed("3g.40gb"), [*cut("a", "p"), *cut("b")],
                 "With another MIG layout it would fit: GPU 0 of node b, on which nothing runs, as 4 × 1g.10gb + 1 × "
                 f"3g.40gb (now 7 × 1g.10gb). {PROPOSAL}", id="idle board"),
    pytest.param(placed("3g.40gb"), [node("a", H100, count=2, **{"mig-1g.10gb": 14}), pod("p", "a", ONE)],
                 "With another MIG layout it would fit: GPU 1 of node a, on which nothing runs, if what runs on the "
                 f"node lies on others, as 4 × 1g.10gb + 1 × 3g.40gb (now 7 × 1g.10gb). {PROPOSAL}",
                 id="idle board as far as one can tell"),
    pytest.param(placed("3g.40gb"), [*cut("a", "p"), *cut("b", "q", "r")],
                 "Only fragmentation stands in the way: free are 6 × 1g.10gb on node a and 5 × 1g.10gb on node b. "
                 "Moving p from node a to b would free a GPU that can be cut for it on a.", id="in pieces"),
    pytest.param(placed("3g.40gb"), cut("a", "p"),
                 "Only fragmentation stands in the way: free are 6 × 1g.10gb on node a. It would fit if what runs were "
                 "repacked.", id="nowhere to move to"),
    pytest.param(placed("3g.40gb"), [node("a", H100, count=2, **{"mig-1g.10gb": 14}), *cut("b", *"uvwxyz"),
                                     *(pod(one, "a", ONE) for one in "lmnopqrs")],
                 "Only fragmentation stands in the way: free are 6 × 1g.10gb on node a and 1 × 1g.10gb on node b. It "
                 "would fit if what runs were repacked.", id="who lies alone on a board is not known"),
    pytest.param(placed("3g.40gb"), [*cut("a", "p"), *cut("b", *"qrs", **{"mig-1g.10gb": 3})],
                 "Only fragmentation stands in the way: free are 6 × 1g.10gb on node a. Moving q, r and s from node b "
                 "to a would free a GPU that can be cut for it on b.", id="the one that can be emptied"),
    pytest.param(placed(count=4), [node("a", H100, count=4, gpu=4), node("b", H100, count=4, gpu=4),
                                   pod("p", "a", {"nvidia.com/gpu": 1}), pod("q", "b", {"nvidia.com/gpu": 2})],
                 "Only fragmentation stands in the way: free are 3 × GPU on node a and 2 × GPU on node b. Moving p "
                 "from node a to b would free 4 GPUs on a.", id="GPUs of several nodes"),
    pytest.param(placed(count=4), [node("a", H100, count=4, gpu=4), pod("p", "a", {"nvidia.com/gpu": 2})],
                 "There is not enough: 2 of 4 × nvidia.com/gpu on the nodes that it may run on (1) are in use.",
                 id="too few GPUs"),
    pytest.param(placed(), cut("a"),
                 "With another MIG layout it would fit: GPU 0 of node a, on which nothing runs, as MIG off (now 7 × "
                 f"1g.10gb). {PROPOSAL}", id="a whole GPU"),
    pytest.param(placed("3g.40gb"), [node("a", "NVIDIA-L4", count=1, gpu=1)],
                 "It needs 3g.40gb of NVIDIA-H100-80GB-HBM3, and the nodes that it may run on have NVIDIA-L4.",
                 id="other hardware"),
    pytest.param(placed("3g.40gb"), [node("a", "")],
                 NO_GPUS,
                 id="no hardware"),
    pytest.param(placed("3g.40gb"), [node("a", H100, count=1, gpu=2), closed("c")],
                 f"{NO_GPUS} Not counted: node c (cordoned).", id="senseless and closed"),
    pytest.param(placed("3g.40gb"), [node("a", f"{H100}-MIG-3g.40gb", count=2, gpu=2)],
                 "What it needs is free on node a, whose labels are not those asked for: another MIG strategy, or a "
                 "layout that is not finished.", id="another strategy"),
])
def test_what_is_said(placement: Placement, objects: list[Mapping[str, Any]], said: str) -> None:
    assert say(placement, *objects) == said
    assert say(placement, *reversed(objects)) == said


def test_each_part_of_what_waits_has_its_reason() -> None:
    said = say(placed("3g.40gb"), *cut("a", "p"), *cut("b"), replicas=3)
    assert said.startswith("With another MIG layout 2 of 3 pods would fit: GPU 0 of node b")
    assert "For the rest only fragmentation stands in the way: free are 6 × 1g.10gb on node a and 7 × 1g.10gb" in said
    assert "Moving" not in said  # it would have to move onto what is to be cut
    said = say(placed("3g.40gb"), *cut("b"), replicas=3)
    assert said.endswith("For the rest there is no nvidia.com/mig-3g.40gb on any node that it may run on, and no idle "
                         "GPU to cut for it.")


def test_of_many_nodes_those_with_room_are_looked_at() -> None:
    full = [one for number in range(LOOKED + 20) for one in cut(f"a{number}", *(f"p{number}-{k}" for k in range(7)))]
    said = say(placed("3g.40gb"), *full, *cut("z"))
    assert said.startswith("With another MIG layout it would fit: GPU 0 of node z")
    assert say(placed("1g.10gb"), *full).startswith(f"There is not enough: {7 * (LOOKED + 20)} of {7 * (LOOKED + 20)}")


def test_pods_of_other_namespaces_are_counted_and_not_named() -> None:
    objects = [*cut("a", "secret-project"), *cut("b", "q", "r")]
    said = say(placed("3g.40gb"), *objects, namespace="team")
    assert "Moving 1 pod of other namespaces from node a to b would free" in said
    assert "secret" not in said


def test_nodes_that_the_pod_may_not_run_on_do_not_count() -> None:
    tainted = [*cut("b")]
    tainted[0]["spec"]["taints"] = [{"key": "team", "value": "other", "effect": "NoSchedule"}]
    assert say(placed("1g.10gb"), *cut("a", *"pqrstuv"), *tainted).startswith("There is not enough: 7 of 7")


def test_nothing_is_said_of_what_nodes_do_not_count() -> None:
    views = views_of(cut("a"))
    cpu = placed(accelerator="cpu", gpu=None)
    claimed = placed("3g.40gb", mig={"profile": "3g.40gb", "dra": {"deviceClassName": "mig.nvidia.com"}})
    assert [site(one, views, "default") for one in (cpu, claimed, None)] == [None] * 3
    assert site(placed("3g.40gb"), None, "default") is None


SPEC = {"source": {"uri": "pvc://models/minilm"}, "rollout": {"analysis": {"seconds": 0}},
        "placement": {"accelerator": "gpu", "gpu": {"product": H100}, "mig": {"profile": "3g.40gb"}}}
WAITS: dict[str, Any] = {"unschedulable": "0/2 nodes are available: 2 Insufficient nvidia.com/mig-3g.40gb."}


class Observed(Cluster):
    """With nodes."""

    nodes: tuple[Any, ...] | None = None

    def observe(self) -> Any:
        return replace(super().observe(), nodes=self.nodes)


def waiting(spec: Mapping[str, Any] = SPEC, device: str = "") -> Observed:
    """Its first replica cannot be placed."""
    cluster = Observed(spec=spec, config=CONFIG)
    for _ in range(3):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        cluster.finish(built(device=device), of="build")
    (revision,) = cluster.replicas()
    cluster.broken = {revision: WAITS}
    cluster.step()
    cluster.operate()
    return cluster


def test_the_condition_says_it_after_the_schedulers_words() -> None:
    cluster = waiting()
    before = cluster.condition("RolloutComplete")
    assert before["reason"] == "Unschedulable"
    cluster.nodes = views_of([*cut("a", "p"), *cut("b", "q", "r")])
    cluster.operate()
    after = cluster.condition("RolloutComplete")
    assert after["reason"] == "Unschedulable"
    assert after["message"].startswith(f"{before['message']} Only fragmentation stands in the way: free are 6 × 1g")
    assert cluster.condition("Ready")["message"] == after["message"]


def test_free_devices_that_the_engine_was_not_proven_on_do_not_count() -> None:
    cluster = waiting({**SPEC, "placement": {"accelerator": "gpu"}}, "NVIDIA H100 80GB HBM3")
    cluster.nodes = views_of([node("a", "NVIDIA-H200", count=1, gpu=1), node("b", H100, count=1, gpu=1),
                              pod("p", "b", {"nvidia.com/gpu": 1})])
    cluster.operate()
    assert "There is not enough: 1 of 1 × nvidia.com/gpu" in cluster.condition("RolloutComplete")["message"]


def test_a_replica_that_is_added_later_says_it_too() -> None:
    cluster = Observed(spec=SPEC, config=CONFIG)
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    cluster.nodes = views_of(cut("a"))
    cluster.edit(replicas=2)
    cluster.operate()
    cluster.deployment_controller()
    (new,) = (pod for pod in cluster.pods.values() if not pod.ready)
    cluster.pods[new.name] = replace(new, **WAITS)
    plan = cluster.operate()
    assert cluster.says("RolloutComplete") == "True/Complete"
    assert cluster.says("Ready") == "False/ReplicasNotReady"
    assert "With another MIG layout it would fit: GPU 0 of node a" in cluster.condition("Ready")["message"]
    assert plan.requeue_after == 30.0

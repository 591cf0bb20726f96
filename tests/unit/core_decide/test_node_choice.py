"""New revisions prefer nodes on which they break up the least; no plan rolls a pod, and none binds one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from enginewright.core.config import OperatorConfig
from enginewright.core.observed import NodeView, Observed
from enginewright.core.plan import Action, Apply
from enginewright.core.planner.objects import views_of
from enginewright.core.planner.site import LOOKED
from support.cluster import Cluster, built, deeds, resolved
from support.fleets import H100
from support.nodes import node, pod

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ONE = {"nvidia.com/mig-1g.10gb": 1}
TWO_GPUS = {"nvidia.com/gpu": 2}


def seven(name: str, *pods: str) -> list[dict[str, Any]]:
    return [node(name, H100, count=1, **{"mig-1g.10gb": 7}), *(pod(one, name, ONE) for one in pods)]


@dataclass
class Fleet(Cluster):
    """With nodes; keeps what is applied."""

    nodes: tuple[NodeView, ...] | None = None
    manifest: Mapping[str, Any] | None = None

    def observe(self) -> Observed:
        return replace(super().observe(), nodes=self.nodes)

    def act(self, action: Action) -> None:
        if isinstance(action, Apply) and action.manifest["kind"] == "Deployment":
            self.manifest = action.manifest
        super().act(action)


def started(nodes: tuple[NodeView, ...] | None, *, device: str = "NVIDIA H100 80GB HBM3", profile: str = "1g.10gb",
            product: str = H100, serving: Mapping[str, Any] | None = None,
            **gpu: Any) -> Fleet:
    placement = {"accelerator": "gpu", "gpu": {"product": product, **gpu},
                 **({"mig": {"profile": profile}} if profile else {})}
    cluster = Fleet(spec={"source": {"uri": "pvc://models/minilm"}, "placement": placement, "serving": serving or {},
                          "rollout": {"analysis": {"seconds": 0}}},
                    config=OperatorConfig(require_mig_config_state=False), nodes=nodes)
    for _ in range(4):
        cluster.operate()
        cluster.finish(resolved(), of="resolve")
        cluster.finish(built(device=f"{device} {profile}".strip()), of="build")
    assert cluster.manifest is not None
    return cluster


def affinity(cluster: Fleet) -> Mapping[str, Any]:
    assert cluster.manifest is not None
    found: Mapping[str, Any] = cluster.manifest["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    return found


def hosts(cluster: Fleet) -> list[str]:
    terms = sorted(affinity(cluster).get(PREFERRED, ()), key=lambda term: -term["weight"])
    assert len({term["weight"] for term in terms}) == len(terms)
    assert all(1 <= term["weight"] <= 100 for term in terms)
    return [value for term in terms for one in term["preference"]["matchExpressions"] for value in one["values"]]


@pytest.mark.parametrize(("objects", "wants", "best"), [
    pytest.param([*seven("a"), *seven("b", "p"), *seven("c", *"qrstuvw")], {}, ["b", "a"],
                 id="slices beside others first, full nodes not at all"),
    pytest.param([*seven("a", "p"), *seven("b", "q", "r")], {}, ["b", "a"], id="of equals the fuller"),
    pytest.param([node("a", H100, count=4, gpu=4), node("b", H100, count=4, gpu=4), pod("p", "b", TWO_GPUS)],
                 {"profile": ""}, ["b", "a"], id="whole GPUs where the fewest are left"),
    pytest.param([node("a", H100, count=8, gpu=8), node("b", H100, count=4, gpu=4), node("c", H100, count=2, gpu=2)],
                 {"profile": "", "count": 4}, ["b", "a"], id="several GPUs where they fit best"),
    pytest.param([node("a", "NVIDIA-H200", count=1, gpu=1), node("b", H100, count=1, gpu=1), node("c", H100, gpu=2)],
                 {"profile": "", "product": ""}, ["b", "c"], id="only what the engine was proven on"),
    pytest.param(seven("a", "p"), {}, [], id="nothing to choose"),
])
def test_the_best_nodes_are_preferred(objects: list[Mapping[str, Any]], wants: dict[str, Any], best: list[str]) -> None:
    nodes = views_of(objects)
    assert hosts(started(nodes, **wants)) == best
    assert hosts(started(nodes[::-1], **wants)) == best


def test_a_few_nodes_of_many_are_ranked() -> None:
    nodes = views_of([one for number in range(20) for one in seven(f"n{number:02}", "p")])
    assert hosts(started(nodes)) == [f"n{number:02}" for number in range(8)]


def test_full_nodes_take_no_place_among_those_that_are_looked_at() -> None:
    full = [one for number in range(LOOKED) for one in seven(f"a{number}", *(f"p{number}-{k}" for k in range(7)))]
    assert hosts(started(views_of([*full, *seven("y"), *seven("z", "p")]))) == ["z", "y"]


def test_without_nodes_nothing_is_preferred() -> None:
    assert affinity(started(None)) == {}


def test_a_revision_keeps_its_pods_whatever_becomes_of_the_plan() -> None:
    cluster = started(views_of([*seven("a"), *seven("b", "p")]))
    assert hosts(cluster) == ["b", "a"]
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    cluster.nodes = views_of([*seven("a", "p", "q"), *seven("b")])
    assert not [deed for deed in deeds(cluster.operate()) if "Deployment" in deed]
    assert hosts(cluster) == ["b", "a"]


def test_the_same_revision_whatever_nodes_there_are() -> None:
    found = [set(started(nodes).replicas()) for nodes in (None, views_of([*seven("a"), *seven("b", "p")]))]
    assert found[0] == found[1]


def test_what_the_user_prefers_stands_alone() -> None:
    mine = [{"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}}]
    cluster = started(views_of([*seven("a"), *seven("b", "p")]), serving=serving({PREFERRED: mine}))
    assert affinity(cluster) == {PREFERRED: mine}
    zones = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]}}
    cluster = started(views_of([*seven("a"), *seven("b", "p")]), serving=serving(zones))
    assert hosts(cluster) == ["b", "a"]
    assert zones.items() <= affinity(cluster).items()


def serving(node_affinity: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"podTemplate": {"spec": {"affinity": {"nodeAffinity": node_affinity}}}}

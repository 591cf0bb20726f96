"""Traffic through a Gateway: exact shares in routes, never to a revision that cannot answer, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from enginewright.core.decide import decide
from enginewright.core.plan import Apply, Delete
from enginewright.core.routing import GatewayView
from support.cluster import SPEC, Cluster, built, described
from support.once import once

GATEWAY: dict[str, Any] = {
    "parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["grpc.a.example"]}
NEW = {"engine": {"precision": "fp32"}}


@once
def serving(*, replicas: int = 3, gateway: dict[str, Any] | None = GATEWAY, **rollout: Any) -> Cluster:
    """A cluster whose first revision serves."""
    asked = {"analysis": {"seconds": 20}, **rollout, **({"gateway": gateway} if gateway else {})}
    cluster = Cluster(spec={**SPEC, "replicas": replicas, "rollout": asked})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def changed(cluster: Cluster) -> str:
    """A new spec whose engine has just been built; gives the name of its revision."""
    old = set(cluster.replicas())
    cluster.edit(**NEW)
    step(cluster)
    cluster.finish(built(built_at=cluster.now), of="build")
    until(cluster, lambda: set(cluster.replicas()) > old)
    return next(iter(set(cluster.replicas()) - old))


def step(cluster: Cluster) -> None:
    """A second of everything, during which routes kept what they promise."""
    plan = cluster.operate()
    promised(cluster, plan.actions)
    cluster.controllers()
    cluster.wait(1)


def promised(cluster: Cluster, actions: tuple[Any, ...]) -> None:
    """Shares of a hundred; none to a revision that nobody answers for while somebody answers for another."""
    stopped = {action.name for action in actions if isinstance(action, Delete) and action.kind == "Deployment"}
    for weights in cluster.routes.values():
        assert sum(weights.values()) == 100
        if any(cluster.slices.values()):
            assert all(cluster.slices.get(revision) for revision in weights), (weights, cluster.slices)
        assert not stopped & {f"minilm-{revision}" for revision in weights}, "stopped while it got traffic"
    if len(cluster.routes) == 2:
        assert cluster.routes["HTTPRoute"] == cluster.routes["GRPCRoute"]


def until(cluster: Cluster, done: Callable[[], bool], rounds: int = 200) -> None:
    for _ in range(rounds):
        if done():
            return
        step(cluster)
    raise AssertionError(f"never happened; rollout says {cluster.condition('RolloutComplete')}")


def phase(cluster: Cluster) -> str:
    return str(cluster.status.get("rollout", {}).get("step"))


def complete(cluster: Cluster) -> bool:
    return phase(cluster) == "Complete" and cluster.says("Ready") == "True/Serving"


def weights(cluster: Cluster) -> dict[str, int]:
    return dict(cluster.routes["HTTPRoute"])


def services(cluster: Cluster) -> set[str]:
    return {key.removeprefix("Service/") for key in cluster.applied if key.startswith("Service/")}


def test_what_is_settled_gets_everything() -> None:
    cluster = serving()
    revision = cluster.revision
    assert cluster.routes == {"HTTPRoute": {revision: 100}, "GRPCRoute": {revision: 100}}
    assert services(cluster) == {"minilm", f"minilm-{revision}"}
    assert cluster.plan().actions == ()


def test_a_canary_gets_exactly_its_steps_and_the_service_stays_with_the_stable_revision() -> None:
    cluster = serving(replicas=2, steps=[{"weight": 5}, {"weight": 40}, {"weight": 100}])
    old, new = cluster.revision, changed(cluster)
    seen: list[dict[str, int]] = []

    def note() -> bool:
        if not seen or seen[-1] != weights(cluster):
            seen.append(weights(cluster))
        if phase(cluster) in ("Starting", "Analysing"):
            assert cluster.revision == old
        return complete(cluster)

    until(cluster, note)
    shares = [entry.get(new, 0) for entry in seen]
    assert shares[:3] == [0, 5, 40]
    assert shares == sorted(shares)
    assert weights(cluster) == {new: 100}
    assert cluster.revision == new
    assert services(cluster) == {"minilm", f"minilm-{new}"}


def test_what_is_said_of_a_step_is_its_exact_share() -> None:
    cluster = serving(replicas=2, steps=[{"weight": 5}])
    changed(cluster)
    until(cluster, lambda: phase(cluster) == "Analysing")
    assert "(step 1 of 1, 5 % of what comes through the Gateway)" in cluster.condition("RolloutComplete")["message"]


def test_without_steps_a_canary_gets_its_part_of_the_replicas() -> None:
    cluster = serving(replicas=3)
    old, new = cluster.revision, changed(cluster)
    until(cluster, lambda: phase(cluster) == "Analysing")
    assert weights(cluster) == {old: 75, new: 25}


@pytest.mark.parametrize("surge", [0, 1, 2])
@pytest.mark.parametrize("replicas", [1, 2, 5])
@pytest.mark.parametrize("steps", [[], [{"weight": 20}, {"weight": 70}]])
def test_every_size_of_canary_comes_through(surge: int, replicas: int, steps: list[dict[str, int]]) -> None:
    cluster = serving(replicas=replicas, maxSurge=surge, steps=steps)
    new = changed(cluster)
    until(cluster, lambda: complete(cluster))
    assert weights(cluster) == {new: 100}
    assert cluster.replicas() == {new: replicas}


def test_blue_and_green_switch_at_once() -> None:
    cluster = serving(strategy="BlueGreen")
    old, new = cluster.revision, changed(cluster)
    seen = set()

    def note() -> bool:
        seen.add(tuple(weights(cluster).items()))
        return complete(cluster)

    until(cluster, note)
    assert seen == {((old, 100),), ((new, 100),)}


def test_recreate_ends_with_the_new_one() -> None:
    cluster = serving(strategy="Recreate")
    cluster.edit(**NEW)
    cluster.settle()
    assert weights(cluster) == {cluster.revision: 100}
    assert services(cluster) == {"minilm", f"minilm-{cluster.revision}"}


@pytest.mark.parametrize("at", ["Analysing", "Expanding"])
def test_a_rollback_takes_the_traffic_away_before_the_replicas(at: str) -> None:
    cluster = serving(replicas=4, steps=[{"weight": 30}])
    old, new = cluster.revision, changed(cluster)
    until(cluster, lambda: phase(cluster) == at and new in weights(cluster))
    cluster.failing = {new: 0.5}
    until(cluster, lambda: cluster.says("RolloutComplete") == "False/RolledBack")
    assert weights(cluster) == {old: 100}
    assert new in cluster.replicas(), "stopped in the pass that takes its traffic away"
    assert cluster.last.requeue_after == 1
    step(cluster)
    assert new not in cluster.replicas()
    cluster.settle()
    assert services(cluster) == {"minilm", f"minilm-{old}"}


def test_a_revision_whose_replicas_are_all_down_gets_no_traffic() -> None:
    cluster = serving(replicas=2, steps=[{"weight": 30}])
    old, new = cluster.revision, changed(cluster)
    until(cluster, lambda: phase(cluster) == "Analysing")
    assert weights(cluster) == {old: 70, new: 30}
    for name, pod in cluster.pods.items():
        cluster.pods[name] = replace(pod, ready=pod.revision != new)
    cluster.endpoint_controller()
    step(cluster)
    assert weights(cluster) == {old: 100}


@dataclass
class OneByOne(Cluster):
    """One replica gets ready in each step."""

    def kubelet(self) -> None:
        waiting = sorted(name for name, pod in self.pods.items() if not pod.ready)[1:]
        held = {name: self.pods[name] for name in waiting}
        super().kubelet()
        self.pods |= held


def test_a_share_grows_with_the_replicas_that_can_carry_it() -> None:
    """Up to a step's weight before its analysis, and on to everything after promotion."""
    spec = {**SPEC, "replicas": 4, "rollout": {
        "analysis": {"seconds": 20}, "steps": [{"weight": 50}], "gateway": GATEWAY}}
    cluster = OneByOne(spec=spec)
    cluster.settle()
    old, new = cluster.revision, changed(cluster)
    shares: dict[str, list[int]] = {}

    def note() -> bool:
        share = weights(cluster).get(new, 0)
        shares.setdefault(phase(cluster), []).append(share)
        ready = cluster.slices.get(new, 0), cluster.slices.get(old, 0)
        if phase(cluster) == "Starting" and all(ready):
            assert share <= 100 * ready[0] // sum(ready)
        return complete(cluster)

    until(cluster, note)
    assert any(0 < share < 50 for share in shares["Starting"])
    assert set(shares["Analysing"]) == {50}
    assert any(50 < share < 100 for share in shares["Expanding"])


def test_routes_that_lead_back_after_the_switch_are_put_right() -> None:
    """What serves decides, not what the routes said before."""
    cluster = serving(replicas=2)
    old, new = cluster.revision, changed(cluster)
    until(cluster, lambda: cluster.revision == new)
    assert old in cluster.replicas()
    cluster.routes = {kind: {old: 100} for kind in cluster.routes}
    cluster.endpoint_controller()
    cluster.operate()
    assert weights(cluster) == {new: 100}


def test_weights_that_somebody_edited_are_put_right() -> None:
    cluster = serving()
    cluster.routes["GRPCRoute"] = {cluster.revision: 10, "other": 90}
    assert described(cluster.operate()) == ["Apply GRPCRoute minilm"]
    assert cluster.says("Ready") == "False/Progressing"
    assert cluster.routes["GRPCRoute"] == {cluster.revision: 100}


def test_a_gateway_that_is_asked_for_later() -> None:
    cluster = serving(gateway=None)
    assert cluster.routes == {}
    assert services(cluster) == {"minilm"}
    cluster.edit(rollout={"gateway": GATEWAY})
    step(cluster)
    step(cluster)
    assert weights(cluster) == {cluster.revision: 100}
    assert cluster.says("Ready") == "False/Progressing", "the routes were not seen yet"
    step(cluster)
    assert cluster.says("Ready") == "True/Serving"


def test_no_route_before_the_services_behind_it_are_known() -> None:
    """Else a revision whose Service is a moment younger would lose its share."""
    cluster = serving(gateway=None)
    cluster.edit(rollout={"gateway": GATEWAY})
    assert described(cluster.operate()) == [f"Apply Service minilm-{cluster.revision}"]
    cluster.endpoint_controller()
    assert described(cluster.operate()) == ["Apply HTTPRoute minilm", "Apply GRPCRoute minilm"]


def test_no_route_to_a_revision_that_is_on_its_way_out_and_never_had_a_service() -> None:
    cluster = serving(gateway=None)
    cluster.edit(rollout={"gateway": GATEWAY})
    cluster.act_delete_deployment(f"minilm-{cluster.revision}")
    cluster.pods = {}
    assert not [text for text in described(cluster.plan()) if "Route" in text]
    cluster.settle()
    assert weights(cluster) == {cluster.revision: 100}


def test_a_gateway_that_is_not_asked_for_any_more_leaves_nothing_behind() -> None:
    cluster = serving()
    revision = cluster.revision
    cluster.edit(rollout={})
    assert described(cluster.operate()) == ["Delete GRPCRoute minilm", "Delete HTTPRoute minilm"]
    assert described(cluster.operate()) == [f"Delete Service minilm-{revision}"]
    assert cluster.operate().actions == ()
    assert cluster.observe().gateway == GatewayView()
    assert cluster.says("Ready") == "True/Serving"


def test_grpc_host_names_that_are_taken_away_take_the_route_along() -> None:
    cluster = serving()
    cluster.edit(rollout={"gateway": {key: GATEWAY[key] for key in ("parentRefs", "hostnames")}})
    assert described(cluster.operate()) == ["Delete GRPCRoute minilm"]
    assert cluster.operate().actions == ()


def test_what_a_gateway_has_against_a_route_is_in_the_condition() -> None:
    cluster = serving()
    seen = cluster.observe()
    said = "Gateway public does not take HTTPRoute minilm (NoMatchingParent: no such listener)."
    plan = decide(cluster.view(), replace(seen, gateway=replace(seen.gateway, refused=(said,))), cluster.config)
    (condition,) = [entry for entry in plan.status["conditions"] if entry["type"] == "RolloutComplete"]
    assert (condition["status"], condition["message"].endswith(f". {said}")) == ("True", True)


def test_a_route_of_somebody_else_is_not_taken_over() -> None:
    cluster = Cluster(spec={**SPEC, "rollout": {"gateway": GATEWAY}})
    cluster.settle()
    cluster.routes, cluster.applied = {}, {k: v for k, v in cluster.applied.items() if "Route" not in k}
    forced = {action.manifest["kind"]: action.force for action in cluster.plan().actions if isinstance(action, Apply)}
    assert forced == {"HTTPRoute": False, "GRPCRoute": False}


@pytest.mark.parametrize(("kinds", "named", "remove"), [
    (set(), "HTTPRoute and GRPCRoute", "spec.rollout.gateway."),
    ({"GRPCRoute"}, "HTTPRoute", "spec.rollout.gateway."),
    ({"HTTPRoute"}, "GRPCRoute", "spec.rollout.gateway.grpcHostnames."),
])
def test_asked_for_and_not_installed(kinds: set[str], named: str, remove: str) -> None:
    cluster = serving(gateway=None)
    old = cluster.revision
    cluster.kinds = kinds
    cluster.edit(rollout={"gateway": GATEWAY}, **NEW)
    cluster.settle()
    said = cluster.condition("RolloutComplete")
    assert (said["status"], said["reason"]) == ("False", "GatewayNotInstalled")
    assert f"needs {named} of gateway.networking.k8s.io/v1" in said["message"]
    assert f"or remove {remove}" in said["message"]
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.says("Ready") == "False/GatewayNotInstalled"
    assert cluster.replicas() == {old: 3}
    cluster.kinds = {"HTTPRoute", "GRPCRoute"}
    until(cluster, lambda: complete(cluster))
    assert cluster.revision != old
    assert weights(cluster) == {cluster.revision: 100}


def test_not_installed_does_not_stop_scaling() -> None:
    cluster = serving(gateway=None, replicas=1)
    cluster.kinds = set()
    cluster.edit(rollout={"gateway": GATEWAY}, replicas=4)
    cluster.settle()
    assert cluster.replicas() == {cluster.revision: 4}
    cluster.edit(rollout={})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"

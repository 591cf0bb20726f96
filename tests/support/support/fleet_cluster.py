"""A fleet in a cluster that can be held in the head: its own passes, and a :class:`Cluster` for each class's object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from enginewright.core import labels
from enginewright.core.config import OperatorConfig
from enginewright.core.decide import decide
from enginewright.core.observed import EndpointView, FleetView, MemberView, ObjectView, Observed, ServiceView
from enginewright.core.plan import Action, Apply, Delete, Plan
from enginewright.core.routing import GRPC_ROUTE, HTTP_ROUTE, GatewayView
from enginewright.observe.routes import route_weights
from support.cluster import START, Cluster, built, resolved, writes_of

FLEET: Mapping[str, Any] = {
    "source": {"uri": "pvc://models/minilm"},
    "placement": {"classes": [
        {"name": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}, {"name": "cpu", "accelerator": "cpu"}]},
    "rollout": {"analysis": {"seconds": 0}},
}


@dataclass
class MemberCluster(Cluster):
    """``class_name`` is what the object's label says; ``hash`` and ``own`` are of the manifest that was last applied;
    while ``building`` its Jobs do not end."""

    fleet: str = ""
    class_name: str = ""
    hash: str = ""
    own: frozenset[str] = frozenset()
    building: bool = False

    def view(self) -> ObjectView:
        return replace(super().view(), fleet=self.fleet)

    def member(self) -> MemberView:
        return MemberView(name=self.name, uid=self.uid, class_name=self.class_name, generation=self.generation,
                          hash=self.hash, annotations=dict(self.annotations), spec=self.spec, status=self.status)

    def take(self, manifest: Mapping[str, Any]) -> None:
        """Server-side apply: what we said before and do not say now goes, what others wrote stays."""
        metadata = manifest["metadata"]
        kept = {key: value for key, value in self.annotations.items() if key not in self.own}
        self.annotations = {**kept, **metadata["annotations"]}
        self.own, self.hash = frozenset(metadata["annotations"]), metadata["annotations"][labels.MANIFEST_HASH]
        if manifest["spec"] != self.spec:
            self.spec, self.generation = manifest["spec"], self.generation + 1

    def live(self) -> None:
        """A pass, and what its controllers and Jobs do meanwhile."""
        self.operate()
        if not self.building:
            self.settle_jobs()
        self.controllers()
        self.wait(1)


@dataclass
class FleetCluster:
    """``members`` are by class, also those that the spec does not name any more; ``fewest`` is the least number of
    replicas that ever answered since the first did. ``kinds`` are those of the Gateway API that the cluster has,
    ``routes`` the weights in routes."""

    spec: Mapping[str, Any] = field(default_factory=lambda: dict(FLEET))
    name: str = "minilm"
    config: OperatorConfig = field(default_factory=OperatorConfig)
    annotations: dict[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 1
    now: datetime = START
    members: dict[str, MemberCluster] = field(default_factory=dict)
    service: str | None = None
    taken: frozenset[str] = frozenset()
    kinds: set[str] = field(default_factory=lambda: {HTTP_ROUTE, GRPC_ROUTE})
    routes: dict[str, Mapping[str, int]] = field(default_factory=dict)
    applied: dict[str, str] = field(default_factory=dict)
    fewest: int | None = None
    last: Plan = field(default_factory=Plan)

    def plan(self) -> Plan:
        view = ObjectView(name=self.name, namespace="prod", uid="f-1", generation=self.generation, resource_version="1",
                          deleting=False, annotations=dict(self.annotations), spec=self.spec, status=self.status)
        return decide(view, self.observe(), self.config)

    def observe(self) -> Observed:
        return Observed(
            now=self.now,
            fleet=FleetView(members=tuple(member.member() for member in self.members.values()), taken=self.taken),
            service=ServiceView(name=self.name, revision="") if self.service else None,
            endpoints=tuple(EndpointView(pod=pod, revision="", ready=True) for pod in self.answering()),
            applied={**self.applied, **({f"Service/{self.name}": self.service} if self.service else {})},
            gateway=GatewayView(weights=dict(self.routes), missing=tuple(sorted(self._asked() - self.kinds))),
        )

    def _asked(self) -> set[str]:
        asked = (self.spec.get("rollout") or {}).get("gateway") or {}
        return {HTTP_ROUTE, *([GRPC_ROUTE] if asked.get("grpcHostnames") else [])} if asked else set()

    def answering(self) -> list[str]:
        if not self.service:
            return []
        return [pod.name for member in self.members.values() for pod in member.pods.values() if pod.ready]

    def operate(self, *, writes: int | None = None) -> Plan:
        """One pass. ``writes`` is after how many writes the operator is killed (None: it is not)."""
        plan = self.plan()
        for number, write in enumerate(writes_of(plan, self.status)):
            if number == writes:
                break
            if isinstance(write, Mapping):
                self.status = write
            else:
                self.act(write)
        self.last = plan
        return plan

    def act(self, action: Action) -> None:
        match action:
            case Apply(manifest=manifest) if manifest["kind"] == "Service":
                assert manifest["spec"]["selector"] == labels.fleet_selector(self.name)
                self.service = manifest["metadata"]["annotations"][labels.MANIFEST_HASH]
            case Apply(manifest=manifest) if manifest["kind"] in (HTTP_ROUTE, GRPC_ROUTE):
                assert manifest["kind"] in self.kinds, "there is no such kind"
                self.routes[manifest["kind"]] = route_weights(manifest, self.name)
                hashed = manifest["metadata"]["annotations"][labels.MANIFEST_HASH]
                self.applied[f"{manifest['kind']}/{self.name}"] = hashed
            case Delete(kind=kind) if kind in self.routes:
                del self.routes[kind], self.applied[f"{kind}/{self.name}"]
            case Apply(manifest=manifest):
                name = manifest["metadata"]["labels"][labels.CLASS]
                if name not in self.members:
                    self.members[name] = MemberCluster(
                        name=manifest["metadata"]["name"], uid=f"u-{name}", spec=manifest["spec"], now=self.now,
                        fleet=manifest["metadata"]["labels"][labels.FLEET], class_name=name)
                self.members[name].take(manifest)
            case Delete(kind=labels.KIND, name=name):
                del self.members[name.removeprefix(f"{self.name}-")]
            case _:
                raise AssertionError(action)

    def step(self) -> None:
        """A pass of the fleet, and one of every class's object with all that follows."""
        self.operate()
        for member in list(self.members.values()):
            member.live()
        self.now += timedelta(seconds=1)
        for member in self.members.values():
            member.now = self.now
        behind = len(self.answering())
        if behind or self.fewest is not None:
            self.fewest = behind if self.fewest is None else min(self.fewest, behind)

    def run(self, rounds: int = 60) -> None:
        for _ in range(rounds):
            self.step()

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        for member in self.members.values():
            member.now = self.now

    def edit(self, **changes: Any) -> None:
        """Top-level fields replaced, those set to None removed."""
        merged = {**self.spec, **changes}
        self.spec = {key: value for key, value in merged.items() if value is not None}
        self.generation += 1

    def classes(self, *entries: Mapping[str, Any]) -> None:
        self.edit(placement={"classes": list(entries)})

    def condition(self, kind: str) -> Mapping[str, Any]:
        return next(entry for entry in self.status["conditions"] if entry["type"] == kind)

    def says(self, kind: str) -> str:
        entry = self.condition(kind)
        return f"{entry['status']}/{entry['reason']}"

    def wish(self, name: str, key: str) -> str:
        return self.members[name].annotations.get(key, "")


__all__ = ["FLEET", "FleetCluster", "MemberCluster", "built", "resolved"]


def unequal(**rollout: Any) -> FleetCluster:
    """Ready, and its GPU does nine times what its CPU does."""
    fleet = FleetCluster(spec={**FLEET, "rollout": {"analysis": {"seconds": 0}, **rollout}})
    fleet.operate()
    for name, member in fleet.members.items():
        member.operate()
        member.finish(resolved(), of="resolve")
        member.operate()
        member.finish(built(throughput=900.0 if name == "gpu" else 100.0), of="build")
    fleet.run(20)
    assert fleet.says("Ready") == "True/Serving", fleet.condition("Ready")
    return fleet

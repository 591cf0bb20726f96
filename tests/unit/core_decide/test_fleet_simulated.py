"""Whatever happens to a fleet in whatever order: no class is promoted alone, the Service always leads to somebody,
and once it is over every class serves what the spec asks for.

Passes of the fleet and of its classes' objects come late, out of step, or are cut short; status is lost; builds end or
are refused, and replicas crash; people edit, add and remove classes, ask for routes, and try again.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from enginewright.core import labels
from enginewright.core.manifests import member_key
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.fleet import as_raw, classes_of, member_spec
from support.cluster import refused
from support.fleet_cluster import FLEET, FleetCluster, MemberCluster

H100 = {"gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
ENTRIES: dict[str, dict[str, Any]] = {
    "gpu": {"name": "gpu", **H100},
    "cpu": {"name": "cpu", "accelerator": "cpu", "minReplicas": 2},
    "slice": {"name": "slice", **H100, "mig": {"profile": "1g.10gb"}},
}
CHOICES = (("gpu", "cpu"), ("cpu", "slice"), ("gpu", "cpu", "slice"))
CRASH = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server", "terminated_reason": "Error"}
GATEWAY = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
SCALED = {"autoscaling": {"maxReplicas": 6, "algorithm": "queue"}}
ENGINES = (None, {"maxBatchSize": 8}, {"maxBatchSize": 16})
names = st.sampled_from(sorted(ENTRIES))
# Of rounds: within so many it has come right, and has been so for so many.
MOST, STAYS = 140, 8


class SimulatedFleet(RuleBasedStateMachine):
    """``asked`` has for every spec that the fleet ever had the key of each class's spec, ``proven`` the keys at which a
    class had a proven candidate or served, ``tried`` those at which an object's revision was its candidate, ``served``
    the revisions that an object has served."""

    @initialize(slow=st.sets(st.sampled_from(["gpu", "cpu"]), max_size=1), scaled=st.booleans(),
                how=st.sampled_from([{"maxSurge": 1}, {"maxSurge": 0}, {"strategy": "Recreate"}]))
    def start(self, slow: set[str], scaled: bool, how: dict[str, Any]) -> None:
        self.rollout = {"analysis": {"seconds": 0}, **how}
        self.fleet = FleetCluster(spec={**FLEET, **(SCALED if scaled else {}), "rollout": self.rollout})
        self.asked: list[dict[str, str]] = []
        self.proven: dict[str, set[str]] = {name: set() for name in ENTRIES}
        self.served: dict[str, set[str]] = {}
        self.tried: dict[tuple[str, str], set[str]] = {}
        self.answered = False
        self.note()
        self.fleet.operate()
        for name in slow:
            self.fleet.members[name].building = True
        self.fleet.run(12)
        self.look()

    def note(self) -> None:
        spec = parse_spec(self.fleet.spec)
        assert isinstance(spec, Spec)
        self.asked.append({entry.name: member_key(as_raw(member_spec(spec, entry))) for entry in classes_of(spec)})

    @rule(engine=st.sampled_from(ENGINES))
    def ask_for_another_engine(self, engine: dict[str, Any] | None) -> None:
        self.fleet.edit(engine=engine)
        self.note()

    @rule(chosen=st.sampled_from(CHOICES), replicas=st.integers(1, 3))
    def choose_classes(self, chosen: tuple[str, ...], replicas: int) -> None:
        entries = [ENTRIES[name] for name in chosen]
        self.fleet.classes({**entries[0], "minReplicas": replicas}, *entries[1:])
        self.note()

    @rule()
    def try_again(self) -> None:
        self.fleet.annotations[labels.RETRY] = f"{self.fleet.now}"

    @rule(asked=st.booleans())
    def ask_for_routes(self, asked: bool) -> None:
        self.fleet.edit(rollout={**self.rollout, **({"gateway": GATEWAY} if asked else {})})
        self.note()

    @rule(value=st.sampled_from([True, None]))
    def suspend(self, value: bool | None) -> None:
        self.fleet.edit(suspend=value)
        self.note()

    @rule(writes=st.none() | st.integers(0, 4))
    def pass_of_the_fleet(self, writes: int | None) -> None:
        """Killed after so many ``writes``; None: not at all."""
        self.fleet.operate(writes=writes)

    @rule(name=names, rounds=st.integers(1, 4))
    def passes_of_a_class(self, name: str, rounds: int) -> None:
        if name in self.fleet.members:
            for _ in range(rounds):
                self.fleet.members[name].live()
                self.look()

    @rule(name=names, building=st.booleans())
    def builds_take_long(self, name: str, building: bool) -> None:
        if name in self.fleet.members:
            self.fleet.members[name].building = building

    @rule(name=names)
    def a_build_is_refused(self, name: str) -> None:
        if name in self.fleet.members:
            self.fleet.members[name].finish(refused("build", "user", "AccuracyNotReached"), of="build")

    @rule(name=names)
    def replicas_that_start_crash(self, name: str) -> None:
        """Those of revisions that have none that is ready."""
        if name not in self.fleet.members:
            return
        member = self.fleet.members[name]
        ready = {pod.revision for pod in member.pods.values() if pod.ready}
        member.broken |= dict.fromkeys(member.replicas().keys() - ready, CRASH)

    @rule(name=names)
    def what_crashed_is_mended(self, name: str) -> None:
        if name in self.fleet.members:
            self.fleet.members[name].broken = {}

    @rule(name=names)
    @precondition(lambda self: self.fleet.members)
    def somebody_edits_an_object_of_a_class(self, name: str) -> None:
        if name in self.fleet.members:
            self.fleet.members[name].edit(replicas=1)

    @rule(rounds=st.integers(1, 6))
    def time_goes_on(self, rounds: int) -> None:
        for _ in range(rounds):
            self.fleet.step()
            self.look()

    @rule(seconds=st.sampled_from([60, 10_000]))
    def nothing_happens_for_long(self, seconds: int) -> None:
        self.fleet.wait(seconds)

    @rule()
    def status_is_lost(self) -> None:
        self.fleet.status = {}

    @invariant()
    def look(self) -> None:
        if not hasattr(self, "fleet"):
            return
        for name, member in self.fleet.members.items():
            key = member.annotations.get(labels.MEMBER_KEY, "")
            rollout = member.status.get("rollout") or {}
            current = member.status.get("observedGeneration") == member.generation
            if current and (rollout.get("step") in ("WaitingForPromotion", "Complete") or self.may_stop(member)):
                self.proven[name].add(key)
            if current:
                self.tried.setdefault((member.uid, str(rollout.get("candidate"))), set()).add(key)
            self.promoted(name, member.uid, str(rollout.get("stable") or ""))
        for weights in self.fleet.routes.values():
            assert weights.keys() <= self.fleet.members.keys(), "a route leads to nobody"
        if self.answered:
            assert self.fleet.answering(), "the Service has lost everybody"
        self.answered = self.answered or bool(self.fleet.answering())

    def may_stop(self, member: MemberCluster) -> bool:
        """With Recreate, which proves nothing beside what serves, a class waits for the engines of the others."""
        return self.rollout.get("strategy") == "Recreate" and member.says("EngineBuilt").startswith("True/")

    def promoted(self, name: str, uid: str, revision: str) -> None:
        """A revision that a class has not served before takes over only where all classes of some spec could."""
        known = self.served.setdefault(uid, set())
        if not revision or revision in known:
            return
        first = not known
        known.add(revision)
        keys = self.tried.get((uid, revision), set())
        together = [asked for asked in self.asked if asked.get(name) in keys]
        assert first or any(
            all(other in self.proven[one] for one, other in asked.items() if one != name) for asked in together
        ), f"{name} was promoted alone"

    def comes_right(self) -> None:
        right = 0
        for _ in range(MOST):
            self.live_well(1)
            serves = self.fleet.says("Ready") == "True/Serving" and not self.fleet.plan().actions
            right = right + 1 if serves else 0
            if right == STAYS:
                break

    def live_well(self, rounds: int) -> None:
        for _ in range(rounds):
            for member in self.fleet.members.values():
                member.building, member.broken = False, {}
            self.fleet.step()
            self.look()

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        fleet = self.fleet
        fleet.edit(suspend=None)
        self.note()
        self.live_well(10)
        # Not before what failed is known to have failed.
        fleet.annotations[labels.RETRY] = "at last"
        self.comes_right()
        # What the others were given for a class that left goes in the end.
        fleet.wait(301)
        self.live_well(3)
        assert "handover" not in fleet.status
        assert all(labels.LEAST_REPLICAS not in member.annotations for member in fleet.members.values())
        assert fleet.says("Ready") == "True/Serving", fleet.condition("Ready")
        assert not fleet.plan().actions
        wanted = {entry["name"] for entry in fleet.spec["placement"]["classes"]}
        assert set(fleet.members) == wanted
        assert all(set(weights) == wanted for weights in fleet.routes.values())
        assert bool(fleet.routes) == ("gateway" in fleet.spec["rollout"])
        assert {row["name"] for row in fleet.status["classes"]} == wanted


SimulatedFleet.TestCase.settings = settings(
    max_examples=settings().max_examples // 8, stateful_step_count=25, deadline=None,
    suppress_health_check=list(HealthCheck))
TestSimulatedFleet = SimulatedFleet.TestCase

"""Whatever happens in whatever order, some things always hold, and once it is over everything comes right.

The operator is killed between any two actions, its status writes get lost, passes happen late or not at all, Jobs and
replicas fail, users change their minds. Controllers move one at a time, so the operator sees every half-way state.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from enginewright.core import labels
from enginewright.core.observed import PodView
from enginewright.core.plan import Apply, Delete, Plan
from support.cluster import SPEC, Cluster, built, refused, resolved

STRATEGIES = ("Canary", "BlueGreen", "Recreate")
STEPS: tuple[list[dict[str, int]], ...] = ([], [{"weight": 50}], [{"weight": 20}, {"weight": 70}, {"weight": 100}])
GATEWAYS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]},
    {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"], "grpcHostnames": ["grpc.a.example"]},
)
EDITS: tuple[dict[str, Any], ...] = (
    {"engine": None},
    {"engine": {"precision": "fp32"}},
    {"engine": {"precision": "int8"}},
    {"serving": {"image": "example/triton:2"}},
    {"serving": None},
    {"source": {"uri": "pvc://models/other"}},
    {"source": SPEC["source"]},
    {"suspend": True},
    {"suspend": None},
    {"autoscaling": None, "replicas": 0},
    {"autoscaling": None, "replicas": 1},
    {"autoscaling": None, "replicas": 3},
    {"replicas": None, "autoscaling": {
        "maxReplicas": 4, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 20}}}},
    {"replicas": None, "autoscaling": {"minReplicas": 0, "maxReplicas": 2, "scaleToZeroAfterSeconds": 5}},
    {"engine": {"precision": "fp8"}},
)
OUTCOMES = (
    refused("build", "user", "AccuracyNotReached"),
    refused("build", "transient", "StorageUnavailable"),
    refused("build", "bug", "InternalError"),
    refused("build", "user", "OperatorUnsupported"),
)
FLAWS: tuple[dict[str, Any], ...] = (
    {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"},
    {"phase": "Pending", "unschedulable": "0/1 nodes are available"},
    {"phase": "Pending", "waiting_reason": "ImagePullBackOff"},
    {"phase": "Pending", "failed_container": "verify", "exit_code": 2, "terminated_message": "bad digest"},
)


class SimulatedCluster(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.answered: set[str] = set()

    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        seconds=st.sampled_from([0, 20]),
        surge=st.integers(0, 2),
        steps=st.sampled_from(STEPS),
        gateway=st.sampled_from(GATEWAYS),
    )
    def start(
        self, strategy: str, seconds: int, surge: int, steps: list[dict[str, int]], gateway: dict[str, Any] | None
    ) -> None:
        rollout: dict[str, Any] = {"strategy": strategy, "analysis": {"seconds": seconds}, "maxSurge": surge}
        if strategy == "BlueGreen":
            rollout["maxSurge"] = max(1, surge)
        if strategy == "Canary":
            rollout["steps"] = steps
        if gateway:
            rollout["gateway"] = gateway
        self.cluster.spec = {**SPEC, "rollout": rollout}

    # The operator.

    @rule()
    def operate(self) -> None:
        self._pass()

    @rule(rounds=st.integers(2, 8))
    def all_goes_well_for_a_while(self, rounds: int) -> None:
        for _ in range(rounds):
            self._pass()
            self.cluster.settle_jobs()
            self._deployments()
            self.cluster.kubelet()
            self.endpoints()
            self.cluster.wait(5)

    @rule(writes=st.integers(0, 6))
    def operator_is_killed(self, writes: int) -> None:
        self._pass(writes=writes)
        self.cluster.signals = None

    @rule()
    def status_is_wiped(self) -> None:
        self.cluster.status = {}

    def _pass(self, **how: Any) -> None:
        cluster = self.cluster
        answering = self._answering()
        plan = cluster.plan()
        self._routes_are_safe(plan)
        assert cluster.plan() == plan, "the same world gives the same plan"
        self._says_the_same_again(plan.status)
        ready = next(entry for entry in plan.status["conditions"] if entry["type"] == "Ready")
        if ready["status"] == "True":
            self._strictly_ready()
        cluster.operate(plan=plan, **how)
        rollout = cluster.spec["rollout"]
        gap_is_meant = rollout["strategy"] == "Recreate" or cluster.spec.get("replicas") == 0
        # What nobody asks for goes, but somebody holds what comes then.
        gap_is_meant = gap_is_meant or self._held()
        # A single replica that may not have another beside it is exchanged by going first.
        gap_is_meant = gap_is_meant or (rollout["maxSurge"] == 0 and cluster.spec.get("replicas", 1) == 1)
        if answering and not gap_is_meant:
            assert self._answering(), f"the Service selects nothing that answers after {plan.actions}"

    def _routes_are_safe(self, plan: Plan) -> None:
        """Written apart from the code under test, from the promise: whole shares, to revisions that answer; and nobody
        is stopped whom a route may still lead to, while somebody else answers."""
        cluster = self.cluster
        ready = {revision for revision, count in cluster.slices.items() if count}
        services = {key.removeprefix("Service/") for key in cluster.applied}
        routed = {revision for weights in cluster.routes.values() for revision in weights}
        for action in plan.actions:
            if isinstance(action, Apply) and action.manifest["kind"] in ("HTTPRoute", "GRPCRoute"):
                assert action.manifest["kind"] in cluster.kinds
                (rule,) = action.manifest["spec"]["rules"]
                weights = {entry["name"].removeprefix("minilm-"): entry["weight"] for entry in rule["backendRefs"]}
                assert sum(weights.values()) == 100
                assert not ready or ready >= weights.keys(), (weights, cluster.slices)
                assert services >= {f"minilm-{revision}" for revision in weights}, (weights, services)
            if isinstance(action, Apply) and action.manifest["kind"] == "Service":
                services.add(action.manifest["metadata"]["name"])
            if isinstance(action, Delete) and action.kind == "Deployment" and "gateway" in cluster.spec["rollout"]:
                revision = action.name.removeprefix("minilm-")
                meant = cluster.spec["rollout"]["strategy"] == "Recreate" or not ready - {revision}
                assert meant or revision not in routed, (action, cluster.routes)

    def _says_the_same_again(self, status: Any) -> None:
        """Were nothing of the plan carried out, the next pass would have nothing new to say."""
        cluster, written = self.cluster, self.cluster.status
        if any(entry["reason"] == "EngineLost" for entry in status["conditions"]):
            return  # counts its repairs
        if "rollout" not in written and cluster.signals is not None:
            return  # an analysis that was forgotten begins again, and may end at once: what it measured is still there
        cluster.status = json.loads(json.dumps(status))
        again = cluster.plan()
        cluster.status = written
        assert json.loads(json.dumps(again.status)) == json.loads(json.dumps(status))
        assert not again.events

    def _answering(self) -> int:
        """Ready replicas that the Service selects and that are to stay."""
        cluster = self.cluster
        if cluster.service is None:
            return 0
        selected = cluster.service.revision
        staying = {d.revision for d in cluster.deployments.values() if not d.deleting and d.spec_replicas}
        return sum(
            pod.ready for pod in cluster.pods.values() if pod.revision in staying and selected in ("", pod.revision)
        )

    def _held(self) -> bool:
        """Whether the Service selects an activator that answers."""
        cluster = self.cluster
        selected = cluster.service is not None and cluster.service.activator
        return selected and any(pod.ready for pod in cluster.activators.values())

    def _ready_to_start(self) -> bool:
        """Whether there is one engine, that of the spec, with no replica, as nobody asks."""
        cluster = self.cluster
        scaling = cluster.spec.get("autoscaling") or {}
        if scaling.get("minReplicas") != 0 or not cluster.activators:
            return False
        (deployment,) = cluster.deployments.values()
        assert deployment.fingerprint == cluster.plan().status["fingerprint"]
        return deployment.spec_replicas == 0 or cluster.plan().status["autoscaling"]["desiredReplicas"] == 0

    def _strictly_ready(self) -> None:
        """Written apart from the code under test, from the promise."""
        cluster = self.cluster
        if self._ready_to_start():
            return
        (deployment,) = cluster.deployments.values()
        assert cluster.service is not None
        assert cluster.service.revision == deployment.revision
        assert not deployment.deleting
        assert deployment.observed_generation == deployment.generation
        assert deployment.ready == deployment.available == deployment.replicas == deployment.spec_replicas >= 1
        assert {endpoint.revision for endpoint in cluster.endpoints} == {deployment.revision}
        assert sum(endpoint.ready for endpoint in cluster.endpoints) >= deployment.spec_replicas
        assert deployment.fingerprint in cluster.records
        assert deployment.fingerprint == cluster.plan().status["fingerprint"]

    # Kubernetes.

    @rule()
    def deployment_controller(self) -> None:
        self._deployments()

    def _deployments(self) -> None:
        self.cluster.deployment_controller()

    @rule()
    def kubelet(self) -> None:
        self.cluster.kubelet()

    @rule()
    def endpoints(self) -> None:
        self.cluster.endpoint_controller()

    @rule(seconds=st.sampled_from([1, 15, 70, 400]))
    def time_passes(self, seconds: int) -> None:
        self.cluster.wait(seconds)

    @precondition(lambda self: self.cluster.running())
    @rule()
    def jobs_succeed(self) -> None:
        self.cluster.finish(resolved(), of="resolve")
        self.cluster.finish(built(built_at=self.cluster.now), of="build")

    @precondition(lambda self: self.cluster.running("build"))
    @rule(outcome=st.sampled_from(OUTCOMES))
    def build_fails(self, outcome: Any) -> None:
        self.cluster.finish(outcome, of="build")

    @precondition(lambda self: self.cluster.running())
    @rule(how=st.sampled_from([{"exit_code": 137, "terminated_reason": "OOMKilled"}, {"reason": "Evicted"},
                               {"reason": "Evicted", "disrupted": True}]))
    def job_dies(self, how: dict[str, Any]) -> None:
        self.cluster.fail(pods=(replace(PodView(name="p", phase="Failed"), **how),))

    @precondition(lambda self: self.cluster.jobs)
    @rule()
    def ended_jobs_expire(self) -> None:
        running = {job.name for job in self.cluster.running()}
        self.cluster.jobs = {name: job for name, job in self.cluster.jobs.items() if name in running}

    @precondition(lambda self: self.cluster.pods)
    @rule(pick=st.integers(0, 100))
    def replica_vanishes(self, pick: int) -> None:
        names = sorted(self.cluster.pods)
        del self.cluster.pods[names[pick % len(names)]]

    @precondition(lambda self: self.cluster.deployments)
    @rule(flaw=st.sampled_from(FLAWS))
    def newest_revision_is_bad(self, flaw: dict[str, Any]) -> None:
        newest = max(self.cluster.deployments.values(), key=lambda deployment: (deployment.created, deployment.name))
        self.cluster.broken = {newest.revision: flaw}

    @precondition(lambda self: self.cluster.deployments)
    @rule(how=st.sampled_from(["slower", "failing", "similarity"]))
    def newest_revision_serves_badly(self, how: str) -> None:
        newest = max(self.cluster.deployments.values(), key=lambda deployment: (deployment.created, deployment.name))
        setattr(self.cluster, how, {newest.revision: {"slower": 3.0, "failing": 0.5, "similarity": 0.1}[how]})

    @rule(rate=st.sampled_from([0.0, 20.0]), probed=st.booleans())
    def traffic_comes_and_goes(self, rate: float, probed: bool) -> None:
        self.cluster.rate, self.cluster.probed = rate, probed

    @precondition(lambda self: self.cluster.broken)
    @rule()
    def what_was_bad_is_mended(self) -> None:
        self._mend()

    def _mend(self) -> None:
        for pod in self.cluster.pods.values():
            if pod.revision in self.cluster.broken:
                self.cluster.pods[pod.name] = replace(pod, restarts=0)
        self.cluster.broken = {}
        self.cluster.slower, self.cluster.failing, self.cluster.similarity, self.cluster.mirrored = {}, {}, {}, {}
        self.cluster.rate, self.cluster.probed = 20.0, True

    @precondition(lambda self: self.cluster.deployments)
    @rule()
    def somebody_deletes_a_deployment(self) -> None:
        self.cluster.act_delete_deployment(sorted(self.cluster.deployments)[0])

    @rule(seconds=st.sampled_from([2, 8]), held=st.sampled_from([0, 0, 3]))
    def nobody_or_somebody_asks(self, seconds: int, held: int) -> None:
        self.cluster.queue(0, seconds=seconds, arrived=0.0, held=held)

    @rule(holding=st.booleans())
    def activators_work_or_not(self, holding: bool) -> None:
        self.cluster.holding = holding

    @rule(depth=st.sampled_from([0, 3, 30]))
    def requests_queue(self, depth: int) -> None:
        self.cluster.queue(depth)

    # The user.

    @rule(edit=st.sampled_from(EDITS))
    def user_edits(self, edit: dict[str, Any]) -> None:
        self.cluster.edit(**edit)

    @rule(gateway=st.sampled_from(GATEWAYS))
    def user_asks_for_a_gateway_or_not(self, gateway: dict[str, Any] | None) -> None:
        rollout = {key: value for key, value in self.cluster.spec["rollout"].items() if key != "gateway"}
        self.cluster.edit(rollout={**rollout, "gateway": gateway} if gateway else rollout)

    @rule(asked=st.booleans(), mean=st.sampled_from([0.3, 0.999]))
    def live_requests_are_mirrored_or_not(self, asked: bool, mean: float) -> None:
        """Whatever a candidate answers, of an engine that is there as of one that is built for the monitor."""
        cluster = self.cluster
        rollout = {**cluster.spec["rollout"], "analysis": {**cluster.spec["rollout"]["analysis"], "mirror": asked}}
        cluster.edit(rollout=rollout, quality={} if asked else None)
        cluster.mirrored = {str(revision): (20, mean) for revision in cluster.replicas()} if asked else {}

    @rule(kinds=st.sampled_from([(), ("HTTPRoute",), ("HTTPRoute", "GRPCRoute")]))
    def the_gateway_api_is_installed_or_not(self, kinds: tuple[str, ...]) -> None:
        """Routes go with their definition."""
        cluster = self.cluster
        cluster.kinds = set(kinds)
        for kind in set(cluster.routes) - cluster.kinds:
            del cluster.routes[kind]
            cluster.applied.pop(f"{kind}/minilm", None)

    @rule(value=st.sampled_from(["1", "2"]))
    def user_asks_to_retry(self, value: str) -> None:
        self.cluster.annotations[labels.RETRY] = value

    # What always holds.

    @invariant()
    def never_two_builds_at_once(self) -> None:
        assert len(self.cluster.running("build")) <= 1

    @invariant()
    def nobody_is_sent_to_an_activator_that_was_never_there(self) -> None:
        cluster = self.cluster
        if cluster.service is not None and cluster.service.activator:
            assert "Deployment/minilm-activator" in cluster.applied

    @invariant()
    def only_what_has_answered_is_called_stable(self) -> None:
        self.answered |= {pod.revision for pod in self.cluster.pods.values() if pod.ready}
        stable = self.cluster.status.get("rollout", {}).get("stable")
        assert stable is None or stable in self.answered

    @invariant()
    def no_build_without_a_claim(self) -> None:
        """A job that a killed operator left may have outlived its claim, but then the next pass claims again."""
        assert {job.fingerprint for job in self.cluster.running("build")} <= set(self.cluster.leases)

    def teardown(self) -> None:
        """Everything is mended: it must come right, and then be still."""
        cluster = self.cluster
        self._mend()
        cluster.kinds = {"HTTPRoute", "GRPCRoute"}
        cluster.holding = True
        if "gateway" in cluster.spec["rollout"] and "autoscaling" in cluster.spec:
            cluster.edit(autoscaling={"maxReplicas": 4})  # none, and routes, exclude each other
        cluster.edit(suspend=None, engine=None)
        cluster.signals = None
        for value in ("what failed before", "what was only now seen to have failed"):
            cluster.annotations[labels.RETRY] = value
            cluster.wait(1000)
            cluster.settle()
        if cluster.spec.get("replicas") == 0:
            assert cluster.says("RolloutComplete") in ("True/Complete", "False/WaitingForReplicas")
            cluster.edit(replicas=1)
            cluster.settle()
        assert cluster.says("Ready") == "True/Serving", cluster.condition("Ready")
        assert not cluster.leases, "nothing is built any more"
        self._strictly_ready()
        self._routes_are_what_is_asked_for()
        written = cluster.status
        plan = cluster.plan()
        assert not plan.actions
        assert not plan.events
        assert json.loads(json.dumps(plan.status)) == written


    def _routes_are_what_is_asked_for(self) -> None:
        cluster = self.cluster
        (revision,) = cluster.replicas()
        gateway = cluster.spec["rollout"].get("gateway")
        kinds = ["HTTPRoute", *(["GRPCRoute"] if gateway.get("grpcHostnames") else [])] if gateway else []
        assert cluster.routes == {kind: {revision: 100} for kind in kinds}
        services = {key for key in cluster.applied if key.startswith("Service/")}
        services -= {"Service/minilm-replicas"} if cluster.activators else set()
        assert services == {"Service/minilm", *([f"Service/minilm-{revision}"] if gateway else [])}
        least = (cluster.spec.get("autoscaling") or {}).get("minReplicas")
        assert bool(cluster.activators) == (least == 0)


SimulatedCluster.TestCase.settings = settings(
    max_examples=settings().max_examples // 4,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSimulatedCluster = SimulatedCluster.TestCase

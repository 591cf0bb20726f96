"""Recreate where a person promotes, in whatever order things happen: no revision is started that nobody approved, none
beside another, and left alone the cluster always serves: no way back waits for anybody.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from enginewright.core import labels
from enginewright.core.plan import Apply, Plan
from support.cluster import SPEC, Cluster, refused

ASKS = {"strategy": "Recreate", "autoPromote": False}
GATEWAY = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}
SCALES: tuple[dict[str, Any], ...] = (
    {"replicas": 0, "autoscaling": None}, {"replicas": 1, "autoscaling": None}, {"replicas": 3, "autoscaling": None},
    {"replicas": None, "autoscaling": {"minReplicas": 0, "maxReplicas": 2, "scaleToZeroAfterSeconds": 5}},
    {"replicas": None, "autoscaling": {"minReplicas": 1, "maxReplicas": 2}})
# Of passes: longer than any way back takes.
ALONE = 20


class Walk:
    """A cluster, what happens to it, and what always holds. ``number`` is which of what there is to choose from."""

    def __init__(self, **rollout: Any) -> None:
        self.cluster = Cluster(spec={**SPEC, "replicas": 2, "rollout": {**ASKS, **rollout}})

    @property
    def _waits(self) -> str:
        rollout = self.cluster.status.get("rollout", {})
        return str(rollout.get("candidate", "")) if rollout.get("step") == "WaitingForPromotion" else ""

    # The operator.

    def passes(self, number: int) -> None:
        self._pass()

    def is_killed(self, number: int) -> None:
        self._pass(writes=number % 5)

    def finds_no_status(self, number: int) -> None:
        """While what served is there: else nobody could tell what that was."""
        if self.cluster.kept.keys() & self.cluster.replicas().keys():
            self.cluster.status = {}

    # Kubernetes.

    def deployments(self, number: int) -> None:
        self.cluster.deployment_controller()

    def kubelet(self, number: int) -> None:
        self.cluster.kubelet()

    def a_replica_gets_ready(self, number: int) -> None:
        """And the others do not yet."""
        cluster = self.cluster
        if late := sorted(pod.name for pod in cluster.pods.values() if not pod.ready and pod.revision not in
                          cluster.broken):
            cluster.pods[late[0]] = replace(cluster.pods[late[0]], ready=True, phase="Running")
        cluster.deployment_controller()
        cluster.endpoint_controller()

    def endpoints(self, number: int) -> None:
        self.cluster.endpoint_controller()

    def jobs_end(self, number: int) -> None:
        if number % 4 == 0:
            self.cluster.finish(refused("build", "user", "AccuracyNotReached"), of="build")
        self.cluster.settle_jobs()

    def time(self, number: int) -> None:
        self.cluster.wait((1, 15, 70, 400)[number % 4])

    def all_goes_well(self, number: int) -> None:
        for _ in range(1 + number % 6):
            self._pass()
            self.cluster.settle_jobs()
            self.cluster.controllers()
            self.cluster.wait(5)

    def what_is_new_crashes(self, number: int) -> None:
        self.cluster.broken = {name: CRASH for name in self.cluster.replicas() if name not in self.cluster.kept}

    def anything_crashes(self, number: int) -> None:
        if there := sorted(self.cluster.replicas()):
            self.cluster.broken = {there[number % len(there)]: CRASH}

    def a_replica_goes(self, number: int) -> None:
        if there := sorted(self.cluster.pods):
            del self.cluster.pods[there[number % len(there)]]

    def all_is_mended(self, number: int) -> None:
        for pod in self.cluster.pods.values():
            if pod.revision in self.cluster.broken:
                self.cluster.pods[pod.name] = replace(pod, restarts=0)
        self.cluster.broken = {}

    # People.

    def a_new_spec(self, number: int) -> None:
        self.cluster.edit(engine={"maxBatchSize": 1 + number % 12})

    def a_new_engine(self, number: int) -> None:
        self.a_new_spec(number)
        for _ in range(3):
            self._pass()
            self.cluster.settle_jobs()
        self._pass()

    def promotes(self, number: int) -> None:
        if self._waits:
            self.cluster.annotations[labels.PROMOTE] = self._waits

    def is_half_rolled_out(self, number: int) -> None:
        """One of the replicas answers, as a rule."""
        self.a_new_engine(number)
        self.promotes(number)
        for _ in range(number % 5):
            self._pass()
            self.cluster.deployment_controller()
        self.a_replica_gets_ready(number)
        self._pass()

    def promotes_another(self, number: int) -> None:
        if known := sorted(self.cluster.kept):
            self.cluster.annotations[labels.PROMOTE] = known[number % len(known)]

    def goes_back(self, number: int) -> None:
        if known := sorted(self.cluster.kept):
            self.cluster.annotations[labels.ROLLBACK_TO] = f" {known[number % len(known)]} "

    def removes_annotations(self, number: int) -> None:
        for key in (labels.PROMOTE, labels.ROLLBACK_TO)[: 1 + number % 2]:
            self.cluster.annotations.pop(key, None)

    def asks_to_retry(self, number: int) -> None:
        self.cluster.annotations[labels.RETRY] = str(number)

    def scales(self, number: int) -> None:
        self.cluster.edit(**SCALES[number % len(SCALES)])

    def suspends_or_resumes(self, number: int) -> None:
        self.cluster.edit(suspend=not self.cluster.spec.get("suspend"))

    def deletes_a_deployment(self, number: int) -> None:
        if there := sorted(self.cluster.deployments):
            self.cluster.act_delete_deployment(there[number % len(there)])

    def leaves_it_alone(self, number: int) -> None:
        """What served last is well, and everything new crashes; a replica is wanted, and nobody says anything."""
        cluster = self.cluster
        self.all_is_mended(0)
        cluster.edit(suspend=None, autoscaling=None, replicas=1 + number % 2)
        serves = ""
        for _ in range(ALONE):
            self._pass()
            serves = next((str(entry["revision"]) for entry in cluster.status.get("revisions", ())
                           if entry["outcome"] == "Serving"), "")
            cluster.settle_jobs()
            if serves:
                cluster.broken = dict.fromkeys(cluster.replicas().keys() - {serves}, CRASH)
            cluster.controllers()
            cluster.wait(20)
        if serves:
            assert str(cluster.condition("Available")["status"]) == "True", cluster.condition("RolloutComplete")
        self.all_is_mended(0)

    # What holds.

    def _pass(self, **how: Any) -> None:
        cluster, before = self.cluster, self.cluster.status.get("rollout", {}).get("approved")
        plan = cluster.plan()
        self._nothing_unapproved_starts(plan)
        approved = plan.status.get("rollout", {}).get("approved")
        assert approved in (None, before, *self._named())
        self._no_way_back_waits(plan)
        self._says_the_same_again(plan)
        cluster.operate(plan=plan, **how)

    def _named(self) -> set[str]:
        return {self.cluster.annotations.get(key, "").strip() for key in (labels.PROMOTE, labels.ROLLBACK_TO)}

    def _nothing_unapproved_starts(self, plan: Plan) -> None:
        """Written apart from the code under test, from the promise."""
        cluster, status = self.cluster, self.cluster.status
        served = {entry["revision"]: entry["outcome"] for entry in status.get("revisions", ())
                  if entry.get("promotionTime")}
        nothing_to_lose = not served and not cluster.kept.keys() & cluster.replicas().keys()
        approved = {*self._named(), status.get("rollout", {}).get("approved")}
        for action in plan.actions:
            if not isinstance(action, Apply) or action.manifest["kind"] != "Deployment":
                continue
            if (revision := action.manifest["metadata"]["labels"].get(labels.REVISION)) is None:
                continue
            assert not {pod.revision for pod in cluster.pods.values()} - {revision}, "one at a time"
            way_back = revision in served and "rolledBack" in plan.status["rollout"]
            allowed = nothing_to_lose or way_back or served.get(revision) == "Serving" or revision in approved
            assert allowed, f"{revision} starts, and nobody has approved it"

    def _no_way_back_waits(self, plan: Plan) -> None:
        rollout = plan.status.get("rollout", {})
        if plan.status["summary"]["reason"] == "WaitingForPromotion":
            serves = [entry["revision"] for entry in plan.status.get("revisions", ()) if entry["outcome"] == "Serving"]
            assert rollout["candidate"] not in (*serves, *self._named())
            assert rollout["candidate"] != rollout.get("rolledBack", {}).get("revision") or (
                rollout["rolledBack"].get("retry") != self.cluster.annotations.get(labels.RETRY, ""))

    def _says_the_same_again(self, plan: Plan) -> None:
        """Were nothing of the plan carried out, the next pass would have nothing new to say."""
        cluster, written, said = self.cluster, self.cluster.status, json.loads(json.dumps(plan.status))
        if said == written:  # of the same the same follows
            return
        cluster.status = said
        again = cluster.plan()
        cluster.status = written
        assert json.loads(json.dumps(again.status)) == said

    def comes_right(self) -> None:
        """Everything is mended, and what waits then is promoted."""
        cluster = self.cluster
        self.all_is_mended(0)
        cluster.edit(suspend=None, autoscaling=None, replicas=2, engine=None)
        for value in ("what failed before", "what was only now seen to have failed"):
            cluster.annotations = {labels.RETRY: value}
            cluster.wait(1000)
            cluster.settle()
            if self._waits:
                assert cluster.says("Available") == "True/ServingPrevious"
                self.promotes(0)
                cluster.settle()
        assert cluster.says("Ready") == "True/Serving", cluster.condition("Ready")


Step = Callable[[Walk, int], None]
# Each as often as it is to happen beside the others.
STEPS: tuple[Step, ...] = (
    *[Walk.passes] * 5, *[Walk.deployments] * 3, *[Walk.kubelet] * 2, *[Walk.endpoints] * 2, *[Walk.all_goes_well] * 3,
    *[Walk.a_new_engine] * 4, *[Walk.promotes] * 3, *[Walk.is_half_rolled_out] * 6, *[Walk.removes_annotations] * 3,
    *[Walk.leaves_it_alone] * 5, *[Walk.scales] * 2, *[Walk.deletes_a_deployment] * 2,
    *[Walk.what_is_new_crashes] * 2, *[Walk.all_is_mended] * 2, Walk.a_replica_gets_ready, Walk.is_killed,
    Walk.finds_no_status, Walk.jobs_end, Walk.time, Walk.anything_crashes,
    Walk.a_replica_goes, Walk.a_new_spec, Walk.promotes_another, Walk.goes_back, Walk.asks_to_retry,
    Walk.suspends_or_resumes,
)


@given(rollout=st.sampled_from(({}, {"maxSurge": 0}, {"gateway": GATEWAY})), first=st.booleans(),
       steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99)), min_size=8, max_size=30))
def test_whatever_happens(rollout: dict[str, Any], first: bool, steps: list[tuple[Step, int]]) -> None:
    """``first``: nothing serves before it happens."""
    walk = Walk(**rollout)
    if not first:
        walk.cluster.settle()
    for step, number in steps:
        step(walk, number)
    walk.comes_right()

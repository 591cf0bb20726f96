"""Finding 11: actions came before the status write, and the evidence was in memory only. After the Delete of a refused
revision and a crash the next operator found no reason, and started the revision again on live traffic.

Each path of the review's table is walked on the simulated cluster. The operator is killed after each write in turn, of
a child or of status, and a fresh one without any memory goes on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.decide import decide
from enginewright.core.plan import Action, Apply, Create, Plan, Replace, Scale
from support.cluster import SPEC, START, Cluster, built, writes_of
from support.once import once

QUIET = 14  # rounds of 5 s without a write: longer than any analysis here
ROUNDS = 120
CRASHES: Mapping[str, Any] = {"phase": "Running", "restarts": 7, "exit_code": 1, "waiting_reason": "CrashLoopBackOff",
                              "terminated_reason": "Error"}
STRATEGIES = ("Canary", "BlueGreen", "Recreate")


@dataclass(frozen=True)
class Moment:
    """What a walk has come to before a pass that writes."""

    cluster: Cluster
    given_up: Mapping[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()


class Walk:
    """From ``start`` on. ``killed`` is the number of the write after which the operator is killed, None: never; then
    ``moments`` are those before each pass that wrote. ``given_up`` are the reasons of refusals that were acted on, by
    revision."""

    def __init__(self, start: Moment, killed: int | None, again: Callable[[Cluster], None]) -> None:
        self.cluster = copy.deepcopy(start.cluster)
        self.killed = killed
        self.given_up = dict(start.given_up)
        self.written = list(start.written)
        self.moments: list[Moment] = []
        self._again = again

    def run(self) -> Cluster:
        quiet = 0
        for _ in range(ROUNDS):
            quiet = 0 if self._pass() else quiet + 1
            if quiet == QUIET:
                return self.cluster
            self._again(self.cluster)
            self.cluster.settle_jobs()
            self.cluster.controllers()
            self.cluster.wait(5)
        raise AssertionError(f"it never came to rest: {self.cluster.condition('RolloutComplete')}")

    def _pass(self) -> bool:
        """Whether it wrote anything."""
        cluster = self.cluster
        plan = cluster.plan()
        self._check(plan)
        writes = list(writes_of(plan, cluster.status))
        if writes and self.killed is None:
            self.moments.append(Moment(copy.deepcopy(cluster), dict(self.given_up), tuple(self.written)))
        lives = len(writes) if self.killed is None else min(len(writes), self.killed - len(self.written))
        dies = self.killed is not None and lives >= 0 and len(self.written) + lives == self.killed and bool(writes)
        if self.killed is not None and len(self.written) >= self.killed:
            lives, dies = len(writes), False
        cluster.operate(plan=plan, writes=lives if dies else None)
        self.written += [type(write).__name__ for write in writes[:lives]]
        if lives > len(plan.first + plan.keeping):
            self._remember(plan)
        if dies:
            cluster.signals, cluster.last = None, Plan()
        return bool(writes)

    def _remember(self, plan: Plan) -> None:
        given_up = (plan.status.get("rollout") or {}).get("rolledBack")
        if given_up:
            self.given_up.setdefault(given_up["revision"], given_up["reason"])

    def _check(self, plan: Plan) -> None:
        for revision, reason in self.given_up.items():
            for action in plan.actions:
                assert not starts(action, self.cluster, revision), f"{revision} was given up ({reason}): {action}"
            told = (plan.status.get("rollout") or {}).get("rolledBack")
            assert told is not None, f"the reason ({reason}) why {revision} was given up is lost"
            assert (told["revision"], told["reason"]) == (revision, reason)


def starts(action: Action, cluster: Cluster, revision: str) -> bool:
    """Whether ``action`` gives ``revision`` replicas or traffic that it does not have."""
    name, there = f"{cluster.name}-{revision}", cluster.replicas().get(revision, 0)
    match action:
        case Apply(manifest=manifest) if (manifest["kind"], manifest["metadata"]["name"]) == ("Deployment", name):
            return not there
        case Apply(manifest=manifest) if (manifest["kind"], manifest["metadata"]["name"]) == ("Service", cluster.name):
            return bool(manifest["spec"]["selector"].get(labels.REVISION) == revision)
        case Scale(deployment=deployment, replicas=replicas) if deployment == name:
            return replicas > there
    return False


def end(cluster: Cluster) -> dict[str, Any]:
    """All that must not depend on where the operator was killed."""
    rollout = cluster.status.get("rollout") or {}
    given_up = rollout.get("rolledBack") or {}
    return {
        "replicas": cluster.replicas(),
        "selected": cluster.service.revision if cluster.service else None,
        "rollout": [rollout.get("stable"), rollout.get("step"), given_up.get("revision"), given_up.get("reason")],
        "revisions": [(entry["revision"], entry["outcome"], entry.get("reason"))
                      for entry in cluster.status.get("revisions", ())],
        "decisions": [(entry["from"], entry["to"])
                      for entry in (cluster.status.get("autoscaling") or {}).get("decisions", ())],
        "conditions": {entry["type"]: (entry["status"], entry["reason"]) for entry in cluster.status["conditions"]},
        "jobs": sorted(cluster.jobs),
        "requests": sorted(name for name in cluster.requests if "-build-" in name),
        "records": sorted(cluster.records),
        "kept": sorted(cluster.kept),
        "leases": sorted(cluster.leases),
    }


def walk(cluster: Cluster, again: Callable[[Cluster], None] = lambda _: None) -> tuple[Walk, int]:
    """Kills the operator after each write in turn; gives the walk that was not disturbed, and how many were. Up to the
    pass in which it is killed a disturbed walk is the one that was not, so it begins there."""
    calm = Walk(Moment(cluster), None, again)
    wanted = end(calm.run())
    for number in range(1, len(calm.written) + 1):
        start = next(moment for moment in reversed(calm.moments) if len(moment.written) < number)
        disturbed = Walk(start, number, again)
        assert end(disturbed.run()) == wanted, f"killed after write {number} ({calm.written[number - 1]})"
    return calm, len(calm.written)


def rollout(strategy: str, **more: Any) -> dict[str, Any]:
    return {"strategy": strategy, "analysis": {"seconds": 10}, "maxSurge": 1,
            **({"scaleDownDelaySeconds": 5} if strategy == "BlueGreen" else {}), **more}


@once
def serving(strategy: str, **spec: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "replicas": 2, "rollout": rollout(strategy), **spec})
    cluster.settle()
    return cluster


@once
def begun(strategy: str, **spec: Any) -> tuple[Cluster, str]:
    """A second engine is built, and its revision is about to start; gives its name."""
    cluster = serving(strategy, **spec)
    cluster.edit(engine={"maxBatchSize": 16})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    return cluster, copy.deepcopy(cluster).plan().status["rollout"]["candidate"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_11_create(strategy: str) -> None:
    walk(Cluster(spec={**SPEC, "replicas": 2, "rollout": rollout(strategy)}))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_11_build_ends_and_promote(strategy: str) -> None:
    cluster, new = begun(strategy)
    calm, _ = walk(cluster)
    assert calm.cluster.replicas() == {new: 2}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_11_rollback_of_a_revision_that_crashes(strategy: str) -> None:
    cluster, new = begun(strategy)
    cluster.broken[new] = CRASHES
    calm, _ = walk(cluster)
    assert calm.given_up.keys() == {new}


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_11_rollback_whose_evidence_is_in_memory_only(strategy: str) -> None:
    """Requests that failed show in the signals alone, which a crash loses; and by then nothing fails any more."""
    cluster, new = begun(strategy)
    cluster.failing[new] = 0.5

    def mends(walked: Cluster) -> None:
        if (walked.status.get("rollout") or {}).get("rolledBack") or new not in walked.replicas():
            walked.failing.clear()

    for _ in range(60):
        if "rolledBack" in cluster.plan().status["rollout"]:
            break
        cluster.step()
    calm, _ = walk(cluster, mends)
    assert calm.given_up == {new: "FailedInferences"}


@pytest.mark.parametrize("strategy", ["Canary", "Recreate"])
def test_11_way_back_from_answers_that_drift(strategy: str) -> None:
    cluster = serving(strategy, quality={"rollback": True}, replicas=1)
    first = cluster.revision
    cluster.edit(engine={"maxBatchSize": 16})
    cluster.settle()
    second = cluster.revision
    cluster.scores[second] = (600, 0.5)
    calm, _ = walk(cluster, lambda walked: walked.scores.clear() if second not in walked.replicas() else None)
    assert calm.given_up == {second: "QualityDrifted"}
    assert calm.cluster.replicas() == {first: 1}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_11_a_spec_that_changes_again(strategy: str) -> None:
    cluster, new = begun(strategy)
    for _ in range(4):
        cluster.step()
    cluster.edit(engine={"maxBatchSize": 8})
    calm, _ = walk(cluster)
    assert new not in calm.cluster.replicas()


def test_11_scale() -> None:
    """The decision is on record with its figures, once."""
    cluster = serving("Canary", replicas=None, autoscaling={"maxReplicas": 8, "algorithm": "queue"})
    for _ in range(10):
        cluster.queue(64)
        if any(isinstance(action, Scale) for action in cluster.plan().actions):
            break
        cluster.operate()
    plan = cluster.plan()
    (_, scaled) = (write for write in writes_of(plan, cluster.status) if isinstance(write, Mapping | Scale))
    assert isinstance(scaled, Scale)
    cluster.operate(writes=1)
    cluster.signals = None
    assert [entry["to"] for entry in cluster.status["autoscaling"]["decisions"]] == [scaled.replicas]
    assert "requests" in cluster.status["autoscaling"]["decisions"][0]["reason"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_11_a_new_deployment_begins_with_all_replicas_that_are_wanted(strategy: str) -> None:
    """In one write: it began with the apiserver's default of one, until another pass had resized it."""
    cluster = Cluster(spec={**SPEC, "replicas": 3, "rollout": rollout(strategy)})
    for _ in range(30):
        cluster.operate()
        cluster.settle_jobs()
        if cluster.deployments:
            break
    assert list(cluster.replicas().values()) == [3]


def test_11_a_deleted_object_is_left_to_its_owner_references() -> None:
    cluster = serving("Canary")
    view = cluster.view()


    plan = decide(replace(view, deleting=True), cluster.observe(), cluster.config)
    assert not plan.actions
    assert plan.status == view.status


def test_11_a_retired_record_is_replaced_in_one_write() -> None:
    """It was deleted and made again: whoever read in between found no engine, and built one."""
    cluster = serving("Canary")
    (fingerprint,) = cluster.records
    found = cluster.records[fingerprint]
    cluster.records[fingerprint] = replace(found, unreferenced=START.replace(year=2025))
    plan = cluster.plan()
    writes = [action for action in plan.actions if isinstance(action, Create | Replace)]
    assert [type(write) for write in writes] == [Replace]
    for number in range(len(list(writes_of(plan, cluster.status))) + 1):
        killed = copy.deepcopy(cluster)
        killed.operate(writes=number)
        assert fingerprint in killed.records
    cluster.operate()
    assert cluster.records[fingerprint].unreferenced is None

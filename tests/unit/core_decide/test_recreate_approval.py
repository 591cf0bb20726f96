"""Recreate where a person promotes: what serves is not stopped before somebody has said so, and no way back waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.observed import ObjectView
from enginewright.core.way_back import needs_kept
from enginewright.plugin import wishes
from enginewright.plugin.words import explain
from support.cluster import SPEC, Cluster, built, described, refused
from support.once import once

FIRST, SECOND, THIRD = ({"engine": {"maxBatchSize": size}} for size in (8, 16, 32))
ASKS: dict[str, Any] = {"strategy": "Recreate", "autoPromote": False}
WAITS = "False/WaitingForPromotion"
CRASH: dict[str, Any] = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}


@once
def serving(replicas: int = 2, **spec: Any) -> Cluster:
    """The first rollout asks nobody."""
    cluster = Cluster(spec={**SPEC, **FIRST, "replicas": replicas, "rollout": ASKS, **spec})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def waiting(replicas: int = 2, **spec: Any) -> tuple[Cluster, str, str]:
    """What serves, and what waits."""
    cluster = serving(replicas, **spec)
    old = cluster.revision
    cluster.edit(**SECOND)
    cluster.settle()
    assert cluster.says("RolloutComplete") == WAITS
    return cluster, old, candidate(cluster)


def candidate(cluster: Cluster) -> str:
    return str(cluster.status["rollout"]["candidate"])


def move(cluster: Cluster, rounds: int = 1) -> None:
    for _ in range(rounds):
        cluster.move()


def until(cluster: Cluster, done: Callable[[], bool], rounds: int = 100) -> None:
    for _ in range(rounds):
        if done():
            return
        move(cluster)
    raise AssertionError(f"never happened; rollout says {cluster.condition('RolloutComplete')}")


def promote(cluster: Cluster) -> None:
    """As the plugin does."""
    found, _ = wishes.promote(raw(cluster))
    cluster.annotations |= {key: value for key, value in found.items() if value}


def raw(cluster: Cluster) -> dict[str, Any]:
    meta = {"name": cluster.name, "namespace": "prod", "annotations": cluster.annotations,
            "generation": cluster.generation}
    return {"metadata": meta, "spec": cluster.spec, "status": cluster.status}


def said(cluster: Cluster) -> str:
    return str(cluster.condition("RolloutComplete")["message"])


def history(cluster: Cluster) -> list[tuple[str, str]]:
    return [(entry["revision"], entry["outcome"]) for entry in cluster.status["revisions"]]


class TestWaiting:
    def test_what_serves_goes_on_until_somebody_promotes(self) -> None:
        cluster, old, new = waiting()
        assert cluster.says("EngineBuilt") == "True/Built"
        assert cluster.says("Ready") == WAITS
        assert cluster.says("Available") == "True/ServingPrevious"
        assert cluster.status["summary"]["reason"] == "WaitingForPromotion"
        for words in (f"engine of revision {new} is built", f"stops revision {old} before it starts",
                      f"kubectl optimisedmodel promote minilm {new} -n prod.",
                      f"Revision {old} goes on serving."):
            assert words in said(cluster)
        told = cluster.status["rollout"]
        assert (told["stable"], told["candidate"], told["step"]) == (old, new, "WaitingForPromotion")
        assert not cluster.plan().actions
        shown = str(explain(raw(cluster), cluster.now))
        assert f"Promote revision {new}: kubectl optimisedmodel promote minilm -n prod" in shown
        for wrong in ("", "true", old, new[:4], cluster.status["fingerprint"]):
            cluster.annotations[labels.PROMOTE] = wrong
            cluster.wait(100000)
            move(cluster, 3)
            assert (cluster.replicas(), cluster.revision) == ({old: 2}, old)
        cluster.edit(replicas=3)
        cluster.settle()
        assert cluster.replicas() == {old: 3}, "it scales meanwhile"
        promote(cluster)
        cluster.settle()
        assert cluster.replicas() == {new: 3}
        assert cluster.says("Ready") == "True/Serving"
        assert history(cluster) == [(new, "Serving"), (old, "Superseded")]
        assert "approved" not in cluster.status["rollout"]

    @pytest.mark.parametrize("wish", ["{}", " {} "])
    def test_what_began_is_ended_though_the_annotation_goes(self, wish: str) -> None:
        cluster, old, new = waiting()
        cluster.annotations[labels.PROMOTE] = wish.format(new)
        cluster.operate()
        assert cluster.status["rollout"]["approved"] == new
        del cluster.annotations[labels.PROMOTE]
        while old in {deployment.revision for deployment in cluster.deployments.values()}:
            cluster.controllers()
            cluster.operate()
        cluster.settle()
        assert cluster.replicas() == {new: 2}

    def test_its_build_is_waited_for_without_asking(self) -> None:
        cluster = serving()
        old = cluster.revision
        cluster.edit(**SECOND)
        cluster.operate()
        assert cluster.says("RolloutComplete") == "Unknown/WaitingForEngine"
        assert "candidate" not in cluster.status["rollout"]
        cluster.finish(refused("build", "user", "OperatorUnsupported"), of="build")
        move(cluster, 3)
        assert cluster.says("Ready") == "False/OperatorUnsupported"
        assert cluster.replicas() == {old: 2}

    def test_a_fleet_is_not_asked_here(self) -> None:
        """Its classes take turns: the combination is refused there."""

        class Member(Cluster):
            def view(self) -> ObjectView:
                return replace(super().view(), fleet="whole")

        cluster = Member(spec={**SPEC, **FIRST, "replicas": 2, "rollout": ASKS})
        cluster.settle()
        old = cluster.revision
        cluster.edit(**SECOND)
        cluster.settle()
        assert cluster.revision != old

    @pytest.mark.parametrize("name", ["PodDisruptionBudget/minilm", "Service/minilm"])
    def test_what_belongs_to_what_serves_is_made_again(self, name: str) -> None:
        cluster, old, _ = waiting()
        assert name in cluster.applied
        del cluster.applied[name]
        if name.startswith("Service"):
            cluster.service = None
        move(cluster, 2)
        assert name in cluster.applied
        assert cluster.revision == old

    @pytest.mark.parametrize("replicas", [0, 2])
    def test_a_deployment_that_somebody_deletes_is_no_word(self, replicas: int) -> None:
        cluster, old, new = waiting()
        cluster.edit(replicas=replicas)
        cluster.settle()
        cluster.act_delete_deployment(f"minilm-{old}")
        cluster.deployment_controller()
        assert not cluster.deployments
        told = set()
        for _ in range(20):
            move(cluster)
            told.add(cluster.says("RolloutComplete"))
            assert new not in cluster.replicas()
        assert told == {WAITS}
        assert cluster.replicas() == ({old: 2} if replicas else {})
        cluster.edit(replicas=2)
        cluster.settle()
        assert cluster.replicas() == {old: 2}
        assert cluster.says("Available") == "True/ServingPrevious"
        assert cluster.status["rollout"]["stable"] == old
        promote(cluster)
        cluster.settle()
        assert cluster.replicas() == {new: 2}

    def test_where_what_served_cannot_be_made_again_there_is_nothing_to_wait_for(self) -> None:
        cluster, old, new = waiting()
        cluster.kept = {}
        move(cluster, 3)
        assert cluster.replicas() == {old: 2}, "as long as it is there"
        cluster.act_delete_deployment(f"minilm-{old}")
        cluster.settle()
        assert cluster.replicas() == {new: 2}

    def test_an_outage_is_no_word(self) -> None:
        cluster, old, new = waiting()
        cluster.broken[old] = CRASH
        cluster.pods = {}
        move(cluster, 10)
        assert cluster.says("Available") == "False/NoReplica"
        assert cluster.says("RolloutComplete") == WAITS
        assert f"Revision {old}, which is to serve until then, has no replica that answers." in said(cluster)
        assert cluster.replicas() == {old: 2}
        promote(cluster)
        cluster.settle()
        assert cluster.replicas() == {new: 2}

    def test_the_newest_waits_in_place_of_the_one_before(self) -> None:
        cluster, old, second = waiting()
        cluster.annotations[labels.PROMOTE] = second
        cluster.edit(**THIRD)
        cluster.settle()
        assert cluster.says("RolloutComplete") == WAITS
        assert candidate(cluster) != second
        assert cluster.replicas() == {old: 2}, "approved was another"
        third = candidate(cluster)
        promote(cluster)
        cluster.settle()
        assert cluster.revision == third

    def test_put_back_to_what_serves_nothing_waits(self) -> None:
        cluster, old, _ = waiting()
        cluster.edit(**FIRST)
        cluster.settle()
        assert (cluster.replicas(), cluster.says("Ready")) == ({old: 2}, "True/Serving")
        assert "candidate" not in cluster.status["rollout"]
        with pytest.raises(wishes.WishError):
            wishes.promote(raw(cluster))

    def test_suspended_it_does_not_begin(self) -> None:
        cluster, old, new = waiting()
        cluster.edit(suspend=True)
        move(cluster, 3)
        assert cluster.says("RolloutComplete") == "False/Suspended"
        promote(cluster)
        move(cluster, 5)
        assert cluster.replicas() == {old: 2}
        del cluster.annotations[labels.PROMOTE]
        cluster.edit(suspend=None)
        cluster.settle()
        assert cluster.replicas() == {old: 2}, "withdrawn before it was used"
        promote(cluster)
        cluster.settle()
        assert cluster.replicas() == {new: 2}

    @pytest.mark.parametrize("replicas", [0, 2])
    def test_without_a_status_it_waits_on(self, replicas: int) -> None:
        cluster, old, new = waiting()
        cluster.edit(replicas=replicas)
        cluster.settle()
        cluster.status = {}
        assert needs_kept(cluster.view())
        cluster.settle()
        assert cluster.replicas() == {old: replicas}
        assert (cluster.says("RolloutComplete"), candidate(cluster)) == (WAITS, new)
        assert cluster.status["rollout"].get("stable") == (old if replicas else None), "what answers is relied on"

    def test_nor_does_anything_begin_where_the_gateway_api_is_missing(self) -> None:
        gateway = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
        cluster, old, _ = waiting(rollout={**ASKS, "gateway": gateway})
        cluster.kinds, cluster.routes = set(), {}
        cluster.settle()
        assert cluster.says("RolloutComplete") == "False/GatewayNotInstalled", "promoting it would not help"
        assert cluster.replicas() == {old: 2}

    def test_as_a_canary_it_goes(self) -> None:
        cluster, _, new = waiting()
        cluster.edit(rollout={"strategy": "Canary", "analysis": {"seconds": 5}})
        cluster.settle()
        assert (cluster.replicas(), cluster.says("Ready")) == ({new: 2}, "True/Serving")

    @pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
    def test_a_canary_that_waits_is_taken_back(self, strategy: str) -> None:
        cluster = serving(rollout={"strategy": strategy, "analysis": {"seconds": 5}, "autoPromote": False})
        old = cluster.revision
        cluster.edit(**SECOND)
        until(cluster, lambda: cluster.says("RolloutComplete") == WAITS)
        assert len(cluster.replicas()) == 2
        cluster.edit(rollout=ASKS)
        for _ in range(30):
            move(cluster)
            assert sum(endpoint.ready for endpoint in cluster.endpoints) >= 2
        assert cluster.replicas() == {old: 2}
        assert cluster.says("RolloutComplete") == WAITS

    def test_asked_for_when_it_has_begun_it_goes_on(self) -> None:
        cluster = serving(rollout={"strategy": "Recreate"})
        old = cluster.revision
        cluster.edit(**SECOND)
        until(cluster, lambda: len(cluster.replicas()) == 1 and old not in cluster.replicas())
        cluster.edit(rollout=ASKS)
        cluster.settle()
        assert cluster.revision != old
        assert cluster.says("Ready") == "True/Serving"


class TestNothingToProtect:
    @pytest.mark.parametrize("replicas", [0, 2])
    def test_the_first_rollout_asks_nobody(self, replicas: int) -> None:
        cluster = Cluster(spec={**SPEC, **FIRST, "replicas": replicas, "rollout": ASKS})
        for edit in (FIRST, SECOND):
            cluster.edit(**edit)
            cluster.settle()
            if not replicas:
                assert cluster.says("RolloutComplete") == "True/Complete"
        if replicas:
            assert cluster.says("RolloutComplete") == WAITS, "of the second, as the first serves"
            return
        cluster.edit(replicas=2)
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"

    def test_nor_does_the_one_after_a_first_that_never_started(self) -> None:
        cluster = Cluster(spec={**SPEC, **FIRST, "replicas": 2, "rollout": ASKS})
        while not cluster.replicas():
            cluster.operate()
            cluster.settle_jobs()
        (first,) = cluster.replicas()
        cluster.broken[first] = CRASH
        move(cluster, 10)
        cluster.edit(**SECOND)
        cluster.settle()
        assert cluster.says("Ready") == "True/Serving"
        assert cluster.revision != first


class TestTheWayBack:
    def test_what_was_promoted_is_not_asked_for_again(self) -> None:
        """Though somebody deletes its Deployment, and whether or not the annotation is still there."""
        cluster, _, new = waiting()
        promote(cluster)
        cluster.settle()
        for said_so in (dict(cluster.annotations), {}):
            cluster.annotations = said_so
            cluster.act_delete_deployment(f"minilm-{new}")
            for _ in range(10):
                move(cluster)
                assert cluster.says("RolloutComplete") != WAITS
                assert "approved" not in cluster.status["rollout"]
            assert cluster.replicas() == {new: 2}
            assert cluster.says("Ready") == "True/Serving"

    @pytest.mark.parametrize("annotated", [True, False])
    @pytest.mark.parametrize("answered", [0, 1])
    def test_what_crashes_is_replaced_at_once(self, answered: int, annotated: bool) -> None:
        """After one of its replicas has answered as well: it is the stable one by then, as nothing else is there."""
        cluster, old, new = waiting()
        promote(cluster)
        until(cluster, lambda: cluster.replicas() == {new: 2})
        if not annotated:
            del cluster.annotations[labels.PROMOTE]
        if answered:
            late, *_ = sorted(cluster.pods)
            cluster.pods[late] = replace(cluster.pods[late], ready=False)
            cluster.endpoint_controller()
            cluster.operate()
            assert cluster.status["rollout"]["stable"] == new
        cluster.broken[new] = CRASH
        for pod in list(cluster.pods.values()):
            cluster.pods[pod.name] = replace(pod, ready=False, **CRASH)
        said_so = set()
        for _ in range(30):
            move(cluster)
            said_so.add(cluster.says("RolloutComplete"))
        assert said_so <= {"False/RolledBack", "False/Crashing"}
        assert cluster.replicas() == {old: 2}
        assert cluster.says("Available") == "True/ServingPrevious"
        assert "approved" not in cluster.status["rollout"]
        cluster.broken = {}
        cluster.annotations[labels.RETRY] = "again"
        cluster.settle()
        if annotated:
            assert cluster.replicas() == {new: 2}, "whose approval stands"
        else:
            assert (cluster.replicas(), cluster.says("RolloutComplete")) == ({old: 2}, WAITS)

    @pytest.mark.parametrize("broken", [True, False])
    def test_a_spec_that_is_put_back_waits_unless_what_serves_is_broken(self, broken: bool) -> None:
        """As from git: nobody is asked to approve what served before, in an outage."""
        cluster, old, new = waiting()
        promote(cluster)
        cluster.settle()
        cluster.annotations = {}
        if broken:
            cluster.broken[new] = CRASH
            cluster.pods = {}
            move(cluster, 10)
            assert cluster.says("Available") == "False/NoReplica"
        cluster.edit(**FIRST)
        cluster.settle()
        assert cluster.replicas() == {old if broken else new: 2}
        assert cluster.says("RolloutComplete") == ("True/Complete" if broken else WAITS)

    def test_what_crashes_is_replaced_by_an_older_one_where_no_more_is_kept(self) -> None:
        cluster, one, two = waiting()
        promote(cluster)
        cluster.settle()
        del cluster.kept[two]
        cluster.edit(**THIRD)
        cluster.settle()
        promote(cluster)
        third = candidate(cluster)
        cluster.broken[third] = CRASH
        move(cluster, 30)
        assert cluster.replicas() == {one: 2}
        assert cluster.says("Available") == "True/ServingPrevious"

    @pytest.mark.parametrize("wish", ["{one}", " {one}\n"])
    def test_who_asks_to_go_back_has_said_so(self, wish: str) -> None:
        cluster, one, _ = waiting()
        promote(cluster)
        cluster.settle()
        two = cluster.revision
        cluster.annotations = {labels.ROLLBACK_TO: wish.format(one=one)}
        told = set()
        for _ in range(60):
            move(cluster)
            told.add(cluster.says("RolloutComplete"))
        assert WAITS not in told
        assert cluster.replicas() == {one: 2}
        cluster.annotations = {}
        cluster.settle()
        assert (cluster.replicas(), candidate(cluster)) == ({one: 2}, two), "to follow the spec again is a rollout"

    def test_to_what_the_spec_itself_asks_for(self) -> None:
        """The annotation as somebody typed it, of the revision that waits."""
        cluster, _, new = waiting()
        cluster.annotations[labels.ROLLBACK_TO] = f" {new} "
        cluster.settle()
        assert cluster.replicas() == {new: 2}

    def test_a_newer_spec_on_the_way_back_waits_when_what_served_is_back(self) -> None:
        cluster, old, new = waiting()
        promote(cluster)
        cluster.broken[new] = CRASH
        until(cluster, lambda: cluster.says("RolloutComplete") == "False/RolledBack")
        cluster.edit(**THIRD)
        cluster.settle()
        assert cluster.replicas() == {old: 2}
        assert cluster.says("RolloutComplete") == WAITS
        assert cluster.status["rollout"]["rolledBack"]["revision"] == new
        cluster.edit(**SECOND)
        cluster.settle()
        assert cluster.says("RolloutComplete") == "False/RolledBack", "nothing of it is forgotten"

    @pytest.mark.parametrize("builds", [True, False])
    def test_a_newer_spec_in_the_gap_brings_back_what_served(self, builds: bool) -> None:
        """While it is built, or if it never is, as well."""
        cluster, old, new = waiting()
        promote(cluster)
        until(cluster, lambda: new in cluster.replicas() or not cluster.deployments)
        cluster.edit(**THIRD)
        cluster.operate()
        for _ in range(10):
            cluster.controllers()
            cluster.operate()
        assert cluster.replicas() == {old: 2}
        if not builds:
            cluster.finish(refused("build", "user", "OperatorUnsupported"), of="build")
            move(cluster, 10)
        cluster.settle()
        assert cluster.replicas() == {old: 2}
        assert cluster.says("Available") == "True/ServingPrevious"

    def test_one_that_answers_serves_on_until_it_fails(self) -> None:
        """It was approved, and the spec changed before its rollout was complete."""
        cluster, old, second = waiting()
        promote(cluster)
        cluster.devices = 1
        until(cluster, lambda: second in cluster.replicas())
        cluster.controllers()
        cluster.operate()
        cluster.devices = 1000
        cluster.edit(**THIRD)
        cluster.settle()
        assert (cluster.replicas(), cluster.says("RolloutComplete")) == ({second: 2}, WAITS)
        third = candidate(cluster)
        cluster.pods = {}
        cluster.controllers()
        move(cluster, 5)
        assert cluster.replicas() == {second: 2}, "replicas that were evicted come back"
        cluster.broken[second] = CRASH
        for pod in list(cluster.pods.values()):
            cluster.pods[pod.name] = replace(pod, ready=False, **CRASH)
        move(cluster, 20)
        assert cluster.replicas() == {old: 2}
        assert cluster.says("Available") == "True/ServingPrevious"
        assert (cluster.says("RolloutComplete"), candidate(cluster)) == (WAITS, third)

    def test_what_has_drifted_is_left_though_another_waits(self) -> None:
        quality = {"rollback": True}
        cluster, one, two = waiting(1, quality=quality)
        promote(cluster)
        cluster.settle()
        cluster.edit(**THIRD)
        cluster.settle()
        assert (cluster.says("RolloutComplete"), cluster.replicas()) == (WAITS, {two: 1})
        third = candidate(cluster)
        cluster.scores[two] = (2000, 0.5)
        move(cluster, 60)
        assert cluster.replicas() == {one: 1}
        assert set(history(cluster)) == {(one, "Serving"), (two, "RolledBack")}
        assert (cluster.says("RolloutComplete"), candidate(cluster)) == (WAITS, third)
        promote(cluster)
        cluster.settle()
        assert cluster.replicas() == {third: 1}

    def test_drift_of_what_was_approved_asks_nobody(self) -> None:
        cluster, one, two = waiting(1, quality={"rollback": True})
        promote(cluster)
        cluster.settle()
        cluster.annotations = {}
        cluster.scores[two] = (2000, 0.5)
        told = set()
        for _ in range(60):
            move(cluster)
            told.add(cluster.says("RolloutComplete"))
        assert WAITS not in told
        assert cluster.replicas() == {one: 1}
        assert cluster.says("RolloutComplete") == "False/RolledBack"


class TestNoReplica:
    @pytest.mark.parametrize("first", ["spec", "zero"])
    def test_it_waits_there_too(self, first: str) -> None:
        cluster = serving()
        old = cluster.revision
        for edit in (SECOND, {"replicas": 0}) if first == "spec" else ({"replicas": 0}, SECOND):
            cluster.edit(**edit)
            cluster.settle()
        assert cluster.says("RolloutComplete") == cluster.says("Ready") == WAITS
        assert f"The spec asks for no replica; when it does, revision {old} serves until then." in said(cluster)
        assert cluster.replicas() == {old: 0}
        assert cluster.status["rollout"]["stable"] == old
        new = candidate(cluster)
        cluster.edit(replicas=2)
        cluster.settle()
        assert (cluster.replicas(), cluster.says("RolloutComplete")) == ({old: 2}, WAITS)
        cluster.edit(replicas=0)
        cluster.settle()
        promote(cluster)
        cluster.settle()
        assert cluster.says("RolloutComplete") == "True/Complete"
        assert cluster.status["rollout"]["approved"] == new
        cluster.annotations = {}
        move(cluster, 5)
        cluster.edit(replicas=2)
        seen: set[str] = set()
        for _ in range(30):
            move(cluster)
            seen |= {pod.revision for pod in cluster.pods.values()}
        assert seen == {new}
        assert cluster.says("Ready") == "True/Serving"
        assert "approved" not in cluster.status["rollout"]

    def test_what_was_approved_there_and_crashes_is_replaced(self) -> None:
        cluster, old, new = waiting()
        cluster.edit(replicas=0)
        promote(cluster)
        cluster.settle()
        cluster.annotations = {}
        cluster.broken[new] = CRASH
        cluster.edit(replicas=2)
        move(cluster, 30)
        assert cluster.replicas() == {old: 2}
        assert cluster.says("RolloutComplete") == "False/RolledBack"

    def test_another_spec_there_needs_another_word(self) -> None:
        """What serves has no Deployment by then."""
        cluster, old, second = waiting()
        cluster.edit(replicas=0)
        promote(cluster)
        cluster.settle()
        cluster.edit(**THIRD)
        cluster.settle()
        assert not cluster.deployments
        assert cluster.says("RolloutComplete") == WAITS
        assert candidate(cluster) not in (old, second)
        cluster.edit(replicas=2)
        cluster.settle()
        assert (cluster.replicas(), cluster.says("RolloutComplete")) == ({old: 2}, WAITS)

    def test_scaled_to_zero_by_itself(self) -> None:
        cluster, old, new = waiting()
        cluster.edit(replicas=None, autoscaling={"minReplicas": 0, "maxReplicas": 2, "scaleToZeroAfterSeconds": 5})
        for _ in range(20):
            move(cluster)
            cluster.queue(0, seconds=8, arrived=0.0)
        assert cluster.replicas() == {old: 0}
        assert cluster.says("RolloutComplete") == WAITS
        assert cluster.says("Available") == "True/ScaledToZero"
        for _ in range(5):
            cluster.queue(0, seconds=2, held=3)
            move(cluster)
        assert cluster.replicas()[old] > 0
        assert (set(cluster.replicas()), candidate(cluster)) == ({old}, new)


class TestContest:
    @staticmethod
    def _put_back(cluster: Cluster) -> list[str]:
        return [text for text in described(cluster.operate()) if text.startswith("Scale")]

    def test_who_writes_replicas_of_what_serves_is_not_fought_while_it_waits(self) -> None:
        cluster, old, new = waiting()
        scaled = []
        for _ in range(3):
            name = f"minilm-{old}"
            cluster.deployments[name] = replace(cluster.deployments[name], spec_replicas=5, replicas_manager="hpa")
            cluster.controllers()
            scaled.append(self._put_back(cluster))
            cluster.wait(30)
        assert scaled == [[f"Scale minilm-{old} 2"], [], []]
        assert cluster.says("ScalingActive") == "False/ReplicasContested"
        assert (cluster.says("RolloutComplete"), candidate(cluster)) == (WAITS, new)

    def test_a_rollout_that_moves_replicas_is_not_held_up(self) -> None:
        """Without a surge what serves shrinks before the candidate has a Deployment."""
        cluster = serving(rollout={"strategy": "Canary", "maxSurge": 0, "analysis": {"seconds": 0}})
        old = cluster.revision
        name = f"minilm-{old}"
        for _ in range(3):
            cluster.deployments[name] = replace(cluster.deployments[name], spec_replicas=5, replicas_manager="hpa")
            cluster.controllers()
            self._put_back(cluster)
        cluster.deployments[name] = replace(cluster.deployments[name], spec_replicas=2, replicas_manager="hpa")
        cluster.controllers()
        cluster.edit(**SECOND)
        cluster.operate()
        cluster.finish(built(built_at=cluster.now), of="build")
        assert self._put_back(cluster) == [f"Scale {name} 1"]

"""A store in a bucket is used by another Secret: the same engine, the same revision, and no replica that looks for the
Secret that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.access import ACCOUNT, SECRET
from support.cluster import SPEC, Cluster, deeds, refused

BUCKET = "s3://engines/team"


def store(secret: str, uri: str = BUCKET, **more: Any) -> dict[str, Any]:
    return {"uri": uri, "credentialsFrom": {"name": secret}, **more}


def serving(**spec: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "store": store("old"), "replicas": 2, **spec})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def rename(cluster: Cluster, **changes: Any) -> None:
    """And the old Secret goes."""
    cluster.edit(store=store("new"), **changes)
    cluster.deleted_secrets = {"old"}


def used(cluster: Cluster) -> set[str]:
    """Names of the Secrets that pods look for, and would when they are made."""
    pods = [cluster.access[name] for name in cluster.pods]
    return {dict(access or ())[SECRET] for access in (*pods, *(one.access for one in cluster.deployments.values()))}


def builds(cluster: Cluster) -> int:
    return sum("-build-" in name for name in cluster.jobs)


STRATEGIES: list[dict[str, Any]] = [
    {}, {"rollout": {"strategy": "BlueGreen"}}, {"rollout": {"strategy": "Recreate"}},
    {"rollout": {"strategy": "Recreate", "autoPromote": False}}, {"rollout": {"autoPromote": False}},
    {"rollout": {"maxSurge": 0}},
]  # fmt: skip


@pytest.mark.parametrize("spec", STRATEGIES)
def test_another_name_is_no_build_and_no_new_revision(spec: dict[str, Any]) -> None:
    cluster = serving(**spec)
    revision, history, made = cluster.revision, cluster.status["revisions"], builds(cluster)
    rename(cluster)
    for _ in range(40):
        cluster.move(5)
        assert cluster._ready(revision) > 0, "replicas are exchanged, and do not all stop"
    cluster.settle()
    assert used(cluster) == {"new"}
    assert (cluster.revision, cluster.status["revisions"]) == (revision, history)
    assert (len(cluster.deployments), len(cluster.pods), builds(cluster)) == (1, 2, made)
    assert (cluster.says("Ready"), cluster.says("RolloutComplete")) == ("True/Serving", "True/Complete")
    assert not cluster.operate().actions


def test_who_waits_for_ready_may_delete_the_old_secret() -> None:
    """No replica that is made from then on looks for it."""
    cluster, told = serving(), []
    cluster.edit(store=store("new"))
    for _ in range(40):
        before = [one.access for one in cluster.deployments.values()]
        cluster.move()
        told += [before] if cluster.says("Ready") == "True/Serving" else []
    assert told
    assert all(before == [((SECRET, "new"),)] for before in told)


def test_names_that_do_not_open_the_store_touch_no_replica() -> None:
    cluster = serving()
    cluster.edit(store=store("wrong"))
    cluster.operate()
    cluster.finish(refused("resolve", "user", "StoreAccessDenied"), of="resolve")
    for _ in range(10):
        cluster.step()
    assert cluster.says("SourceResolved") == "False/StoreAccessDenied"
    assert used(cluster) == {"old"}


def test_a_replica_that_waits_for_the_old_secret_makes_room() -> None:
    """It may hold the only device."""
    cluster = serving(replicas=1)
    cluster.deleted_secrets = {"old"}
    cluster.pods.clear()
    cluster.controllers()
    assert cluster._ready(cluster.revision) == 0
    cluster.devices = 1
    rename(cluster)
    cluster.settle()
    assert used(cluster) == {"new"}
    assert cluster.says("Ready") == "True/Serving"


def test_scaled_to_zero_the_next_replica_has_the_new_name() -> None:
    cluster = serving()
    cluster.edit(replicas=0)
    cluster.settle()
    rename(cluster)
    cluster.settle()
    cluster.edit(replicas=2)
    cluster.settle()
    assert used(cluster) == {"new"}
    assert cluster.says("Ready") == "True/Serving"


def two_revisions(**spec: Any) -> tuple[Cluster, str]:
    cluster = serving(**spec)
    first = cluster.revision
    cluster.edit(engine={"maxBatchSize": 16})
    cluster.settle()
    assert cluster.revision != first
    return cluster, first


@pytest.mark.parametrize("spec", STRATEGIES[:3])
def test_a_kept_revision_is_gone_back_to_by_the_name_of_now(spec: dict[str, Any]) -> None:
    cluster, first = two_revisions(**spec)
    rename(cluster)
    cluster.settle()
    cluster.annotations[labels.ROLLBACK_TO] = first
    cluster.settle()
    assert cluster.revision == first
    assert used(cluster) == {"new"}
    assert cluster.says("Ready") == "False/Pinned"


def test_what_is_pinned_stays_pinned_by_another_name() -> None:
    cluster, first = two_revisions()
    cluster.annotations[labels.ROLLBACK_TO] = first
    cluster.settle()
    rename(cluster)
    for _ in range(3):
        cluster.step()
    assert used(cluster) == {"old"}, "nobody has tried the new name yet"
    cluster.settle()
    assert (cluster.revision, used(cluster)) == (first, {"new"})
    assert cluster.says("Ready") == "False/Pinned"


def test_another_name_of_the_sources_secret_does_not_end_a_pin() -> None:
    cluster, first = two_revisions()
    cluster.annotations[labels.ROLLBACK_TO] = first
    cluster.settle()
    cluster.edit(source={**SPEC["source"], "credentialsFrom": {"name": "reader"}})
    cluster.settle()
    assert cluster.revision == first


def test_a_kept_revision_of_another_bucket_has_its_own_names() -> None:
    cluster, first = two_revisions()
    cluster.edit(store=store("new", "s3://elsewhere"))
    cluster.settle()
    cluster.annotations[labels.ROLLBACK_TO] = first
    cluster.settle()
    assert (cluster.revision, used(cluster)) == (first, {"old"})


@pytest.mark.parametrize("spec", STRATEGIES[:3])
def test_what_serves_on_after_a_candidate_was_given_up_has_the_new_name(spec: dict[str, Any]) -> None:
    """Changed at once: the rollout that fails would have left the old name for good."""
    cluster = serving(**spec)
    first = cluster.revision
    cluster.broken = _all_but(first)
    rename(cluster, engine={"maxBatchSize": 16})
    cluster.settle()
    assert ({one.revision for one in cluster.deployments.values()}, used(cluster)) == ({first}, {"new"})
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert cluster._ready(first) == 2


def test_beside_a_candidate_that_waits_only_what_cannot_start_is_exchanged() -> None:
    cluster = serving(rollout={"autoPromote": False, "analysisSeconds": 10})
    first = cluster.revision
    cluster.edit(engine={"maxBatchSize": 16})
    for _ in range(40):
        cluster.move(5)
    rename(cluster)
    for _ in range(40):
        cluster.move(5)
    assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    assert len(cluster.deployments) == 2
    assert cluster.deployments[f"{cluster.name}-{first}"].access == ((SECRET, "old"),)
    # A node goes, and a replica with it.
    del cluster.pods[next(name for name, pod in cluster.pods.items() if pod.revision == first)]
    for _ in range(20):
        cluster.move(5)
    assert cluster.deployments[f"{cluster.name}-{first}"].access == ((SECRET, "new"),)
    assert all(pod.ready for pod in cluster.pods.values())


def test_suspended_nothing_is_exchanged() -> None:
    cluster = serving()
    cluster.edit(store=store("new"), suspend=True)
    cluster.settle()
    assert used(cluster) == {"old"}


def test_an_identity_in_place_of_a_secret() -> None:
    cluster = serving()
    cluster.edit(store={"uri": BUCKET, "serviceAccountName": "writer"})
    cluster.settle()
    (deployed,) = cluster.deployments.values()
    assert deployed.access == ((ACCOUNT, "writer"),)
    assert cluster.says("Ready") == "True/Serving"


def test_a_deployment_that_does_not_say_as_whom_stays_as_it_is() -> None:
    """A volume is used as nobody."""
    cluster = Cluster()
    cluster.settle()
    (deployed,) = cluster.deployments.values()
    assert deployed.access is None
    assert not deeds(cluster.operate())


def _all_but(revision: str) -> Any:
    class Others(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            crash = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server",
                     "terminated_reason": "Error"}  # fmt: skip
            return default if key == revision else crash

    return Others()

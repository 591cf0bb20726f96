"""A response cache that a server image lacks, or that could give wrong answers; and what hits are to scaling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from enginewright.core.scaling.zero import quiet_since
from enginewright.core.signals import Sample, SignalWindow
from enginewright_builder.contract import EXIT_UNCACHEABLE
from support.cluster import SPEC, Cluster

CACHE = {"responseCache": {"sizeMebibytes": 256}}


def serving(**more: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, **more})
    cluster.settle()
    return cluster


def has_caches(cluster: Cluster, *names: str) -> None:
    cluster.status = {**cluster.status, "server": {**cluster.status["server"], "caches": list(names)}}


def test_what_the_server_image_lacks_is_said_before_a_replica_starts() -> None:
    cluster = serving()
    old = cluster.revision
    has_caches(cluster)
    cluster.edit(serving=CACHE)
    cluster.settle()
    assert cluster.replicas() == {old: 1}
    assert cluster.says("RolloutComplete") == "False/CacheMissing"
    message = cluster.condition("RolloutComplete")["message"]
    assert "has no cache" in message
    assert "caches/local/libtritoncache_local.so in images.server of the operator's chart" in message
    assert f"revision {old} goes on serving" in message


def test_with_an_image_that_has_it_a_cache_is_a_revision_of_the_same_engine() -> None:
    cluster = serving()
    old, engine, jobs = cluster.revision, cluster.status["fingerprint"], len(cluster.jobs)
    has_caches(cluster, "local", "redis")
    cluster.edit(serving=CACHE)
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    assert cluster.revision != old
    assert (cluster.status["fingerprint"], len(cluster.jobs)) == (engine, jobs), "nothing is built"


def test_an_engine_whose_answers_cannot_be_kept_is_refused_by_its_replica_and_not_built_again() -> None:
    cluster = serving()
    old, jobs = cluster.revision, len(cluster.jobs)
    has_caches(cluster, "local")
    cluster.edit(serving=CACHE)
    cluster.operate()
    (new,) = set(cluster.replicas()) - {old}
    words = "spec.serving.responseCache does not work for this engine, which has 2 outputs"
    cluster.broken = {new: {"phase": "Pending", "failed_container": "verify", "exit_code": EXIT_UNCACHEABLE,
                            "terminated_message": words}}
    cluster.settle()
    assert cluster.replicas().get(old) == 1
    assert (cluster.says("RolloutComplete"), len(cluster.jobs)) == ("False/RolledBack", jobs)
    message = cluster.condition("RolloutComplete")["message"]
    assert words in message


def test_the_share_of_hits_is_in_status() -> None:
    cluster = serving(serving=CACHE, autoscaling={"maxReplicas": 2})
    cluster.queue(0.0)
    now = cluster.monotonic
    window = cluster.signals or SignalWindow(started=now)
    samples = tuple(Sample(time=now - age, ready=1, hits=hits, misses=misses)
                    for age, hits, misses in ((70, 90, 0), (50, 3, 1), (1, 3, 1)))
    cluster.signals = SignalWindow(started=window.started, samples=samples)
    cluster.operate()
    assert cluster.status["autoscaling"]["cacheHitShare"] == 0.75
    cluster.edit(serving={})
    cluster.operate()
    assert "cacheHitShare" not in cluster.status["autoscaling"]


def test_replicas_that_answer_from_a_cache_alone_do_not_fall_asleep() -> None:
    quiet = tuple(Sample(time=float(time), ready=1, arrived=0.0) for time in range(10))
    assert quiet_since(quiet) == 0.0
    assert quiet_since((*quiet[:-1], replace(quiet[-1], hits=1.0))) is None

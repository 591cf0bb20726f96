"""Objects that ask for the same engine at once build it once; whoever waits says for whom and takes what is built."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright.core.plan import Plan
from support.cluster import SPEC, Cluster, LostRaceError, StaleError, built, described, refused, resolved


def pair(**spec: Any) -> tuple[Cluster, Cluster]:
    """Two objects of one namespace that ask for the same engine, their source resolved and nothing built."""
    first = Cluster(spec={**SPEC, **spec}, name="first", uid="u-1")
    second = Cluster(spec={**SPEC, **spec}, name="second", uid="u-2", leases=first.leases, records=first.records)
    for cluster in (first, second):
        cluster.operate()
        cluster.finish(resolved())
    return first, second


def builds(*clusters: Cluster) -> list[str]:
    return [job.name for cluster in clusters for job in cluster.running("build")]


def publish(cluster: Cluster) -> None:
    cluster.finish(built(), of="build")
    cluster.operate()


def test_the_second_waits_for_the_first_and_takes_its_engine() -> None:
    first, second = pair()
    first.operate()
    plan = second.operate()
    assert len(builds(first)) == 1
    assert not builds(second)
    assert not any(text.startswith(("Claim", "Create")) for text in described(plan))
    assert second.says("EngineBuilt") == "False/WaitingForEngine"
    assert "OptimisedModel first builds" in second.condition("EngineBuilt")["message"]
    assert plan.requeue_after == 10
    publish(first)
    second.operate()
    assert second.says("EngineBuilt") == "True/CacheHit"
    assert second.status["engine"]["cacheHit"] is True
    assert first.says("EngineBuilt") == "True/Built"
    assert not any("-build-" in name for name in second.jobs)
    assert first.leases == {}


def test_a_hit_starts_no_job_and_claims_nothing() -> None:
    first, second = pair()
    first.operate()
    publish(first)
    second.operate()
    assert not [text for text in described(second.last) if "Job" in text or text.startswith("Claim")]
    assert second.status["fingerprint"] == first.status["fingerprint"]


def test_the_claim_stands_before_the_job_and_falls_after_the_record() -> None:
    cluster, _ = pair()
    started = [text.split()[0:2] for text in described(cluster.operate())]
    assert [verb for verb, _ in started] == ["Claim", "MakeKey", "Create", "Create"]
    cluster.finish(built(), of="build")
    ended = [text.split()[0] + " " + text.split()[1] for text in described(cluster.operate())]
    assert ended.index("Create ConfigMap") < next(at for at, text in enumerate(ended) if text.startswith("Release"))


@pytest.mark.parametrize("queue", ["", "gpus"])
def test_a_claim_is_renewed_while_the_build_lives(queue: str) -> None:
    cluster, other = pair(**({"engine": {"queueName": queue}} if queue else {}))
    cluster.operate()
    for _ in range(12):
        plan = cluster.operate()
        assert plan.requeue_after is not None
        assert plan.requeue_after <= 40
        for one in (cluster, other):
            one.wait(plan.requeue_after)
        other.operate()
        assert other.says("EngineBuilt") == "False/WaitingForEngine"
    assert any(text.startswith("Renew") for text in described(cluster.operate())) or not queue


@pytest.mark.parametrize("end", ["failure", "new spec", "suspended"])
def test_a_claim_is_given_up_with_the_build(end: str) -> None:
    first, second = pair()
    first.operate()
    second.operate()
    if end == "failure":
        first.finish(refused("build", "user", "AccuracyNotReached"), of="build")
    else:
        first.edit(**({"suspend": True} if end == "suspended" else {"engine": {"precision": "fp32"}}))
    first.operate()
    second.operate()
    assert len(builds(second)) == 1
    assert second.says("EngineBuilt") == "False/BuildPending"


def test_a_holder_that_is_gone_is_taken_over_but_not_one_whose_job_lives() -> None:
    first, second = pair()
    first.operate()
    ((fingerprint, lease),) = first.leases.items()
    second.wait(121)
    first.leases[fingerprint] = replace(lease, building=True)
    second.operate()
    assert second.says("EngineBuilt") == "False/WaitingForEngine"
    first.leases[fingerprint] = lease
    plan = second.operate()
    assert described(plan)[0] == f"Claim {lease.name}"
    assert first.leases[fingerprint].holder == "prod/second/u-2"
    assert len(builds(second)) == 1


def test_an_object_that_was_made_again_is_another_holder() -> None:
    first, _ = pair()
    first.operate()
    again = Cluster(name="first", uid="u-3", leases=first.leases, records=first.records)
    again.operate()
    again.finish(resolved())
    again.operate()
    assert again.says("EngineBuilt") == "False/WaitingForEngine"


def test_an_operator_killed_after_its_claim_goes_on_with_it() -> None:
    cluster, _ = pair()
    cluster.operate(writes=1)
    assert cluster.leases
    assert not builds(cluster)
    plan = cluster.operate()
    assert len(builds(cluster)) == 1
    assert not any(text.startswith("Claim") for text in described(plan))


def test_the_loser_of_a_race_starts_nothing_and_says_nothing() -> None:
    first, second = pair()
    plans = [first.plan(), second.plan()]
    first.carry_out(plans[0])
    with pytest.raises(LostRaceError):
        second.carry_out(plans[1])
    assert builds(first, second) == [builds(first)[0]]
    second.operate()
    assert second.says("EngineBuilt") == "False/WaitingForEngine"


STEPS = st.tuples(st.integers(0, 1), st.sampled_from(["pass", "look", "act", "publish", "fail", "sleep", "kill"]))


@given(st.lists(STEPS, max_size=40))
@settings(max_examples=settings().max_examples * 3 // 2)
def test_never_two_builds_of_one_engine_whoever_is_slow_or_killed(steps: list[tuple[int, str]]) -> None:
    clusters = pair()
    plans: dict[int, Plan] = {}
    for who, step in steps:
        cluster = clusters[who]
        _tell_of_jobs(*clusters)
        if step == "look":
            plans[who] = cluster.plan()
        elif step == "act" and who in plans:
            _carry_out(cluster, plans.pop(who))
        elif step == "kill":
            cluster.operate(writes=1)
        elif step == "sleep":
            for one in clusters:
                one.wait(150)
            plans.clear()  # no pass takes so long
        elif step == "publish":
            cluster.finish(built(), of="build")
        elif step == "fail":
            cluster.finish(refused("build", "bug", "InternalError"), of="build")
        else:
            cluster.operate()
        assert len(builds(*clusters)) <= 1


def _carry_out(cluster: Cluster, plan: Plan) -> None:
    with contextlib.suppress(LostRaceError, StaleError):
        cluster.carry_out(plan)


def _tell_of_jobs(*clusters: Cluster) -> None:
    """As the operator looks it up."""
    leases = clusters[0].leases
    for fingerprint, lease in list(leases.items()):
        leases[fingerprint] = replace(lease, building=bool(builds(*clusters)))

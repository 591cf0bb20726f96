"""A candidate beside the stable revision: what promotes it, what gives it up, and what only says that it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.decide.strategy.analysis import least_similarity
from enginewright.core.decide.strategy.splits import Split, splits
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.rollout import RolloutSpec
from support.cluster import SPEC, Cluster, built
from support.once import once


@once
def serving(*, replicas: int = 1, **rollout: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "replicas": replicas, "rollout": {"analysis": {"seconds": 60}, **rollout}})
    cluster.settle()
    assert cluster.says("Ready") == "True/Serving"
    return cluster


def changed(cluster: Cluster, **edit: Any) -> str:
    """A new spec whose engine has just been built; gives the name of its revision."""
    old = set(cluster.replicas())
    cluster.edit(**(edit or {"engine": {"precision": "fp32"}}))
    cluster.operate()
    cluster.settle_jobs()
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    for _ in range(3):
        if found := set(cluster.replicas()) - old:
            return next(iter(found))
        cluster.operate()
        cluster.controllers()
    raise AssertionError("no candidate")


def go(cluster: Cluster, seconds: int, until: str = "") -> None:
    for _ in range(seconds):
        cluster.step()
        if until and cluster.says("RolloutComplete") == until:
            return
    assert not until, f"never happened; rollout says {cluster.condition('RolloutComplete')}"


def step(cluster: Cluster) -> str:
    return str(cluster.status["rollout"]["step"])


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_a_slower_candidate_is_rolled_back_with_figures(strategy: str) -> None:
    cluster = serving(strategy=strategy)
    old = cluster.revision
    new = changed(cluster)
    cluster.slower = {new: 2.0}
    go(cluster, 60, "False/RolledBack")
    message = cluster.condition("RolloutComplete")["message"]
    assert "Slower" in message
    assert "latency ratio 2.00 (1.9" in message
    assert "limit 1.25) over" in message
    assert "Warning RolledBack" in cluster.log
    assert cluster.status["rollout"]["analysis"]["ratio"] == 2.0
    cluster.settle()
    assert cluster.replicas() == {old: 1}


def test_how_much_slower_it_may_be_is_the_users_choice() -> None:
    cluster = serving(analysis={"maxSlowdown": 1.5})
    new = changed(cluster)
    cluster.slower = {new: 2.0}
    cluster.settle()
    assert cluster.revision == new


def test_a_good_candidate_is_promoted_with_figures() -> None:
    cluster = serving(replicas=3)
    new = changed(cluster)
    go(cluster, 60, "False/Progressing")
    go(cluster, 60, "False/Analysing")
    assert "is compared with revision" in cluster.condition("RolloutComplete")["message"]
    go(cluster, 60, "False/Progressing")
    message = cluster.condition("RolloutComplete")["message"]
    assert "It passed its analysis: latency ratio 1.00 (0.9" in message
    assert "0 failed" in message
    assert cluster.status["rollout"]["analysis"]["requests"] >= 60
    cluster.settle()
    assert cluster.revision == new


def test_figures_are_refreshed_every_ten_seconds_not_in_every_pass() -> None:
    cluster = serving(replicas=2, analysis={"seconds": 1500})
    new = changed(cluster)
    go(cluster, 60, "False/Analysing")
    written, counted = 0, []
    for _ in range(60):
        before = cluster.status
        cluster.step()
        written += cluster.status != before
        counted.append(cluster.status["rollout"]["analysis"]["requests"])
    assert written <= 7
    assert len(set(counted)) >= 6
    assert str(counted[-1]) in cluster.condition("RolloutComplete")["message"]
    cluster.failing = {new: 1.0}
    cluster.step()
    cluster.step()
    cluster.step()
    assert cluster.says("RolloutComplete") == "False/RolledBack", "what is decided does not wait"


def test_other_outputs_of_the_same_source_roll_back_though_it_is_fast() -> None:
    cluster = serving()
    new = changed(cluster)
    cluster.slower, cluster.similarity = {new: 0.5}, {new: 0.3}
    go(cluster, 60, "False/RolledBack")
    message = cluster.condition("RolloutComplete")["message"]
    assert "OutputsDiffer" in message
    assert "cosine 0.300 (median of 5, limit 0.900)" in message


def test_outputs_that_were_not_compared_are_said_after_the_promotion_too() -> None:
    cluster = serving(replicas=3, autoPromote=False)
    cluster.probed = False
    changed(cluster)
    go(cluster, 60, "False/WaitingForPromotion")
    message = cluster.condition("RolloutComplete")["message"]
    assert "; outputs were not compared: probes are not answered." in message
    assert cluster.status["rollout"]["analysis"]["uncompared"] == "probes are not answered"


@pytest.mark.parametrize(
    ("compare", "source", "kept"),
    [("auto", "a", False), ("auto", "c", True), ("always", "c", False), ("never", "a", True)],
)
def test_new_weights_are_meant_to_answer_otherwise(compare: str, source: str, kept: bool) -> None:
    """``source`` is what the stable revision was built from; the new one is of ``a``."""
    cluster = serving(analysis={"compareOutputs": compare})
    assert cluster.status["rollout"]["stableSource"] == "sha256:" + "a" * 64
    old = cluster.revision
    new = changed(cluster)
    rollout = {**cluster.status["rollout"], "stableSource": "sha256:" + source * 64}
    cluster.status = {**cluster.status, "rollout": rollout}
    cluster.similarity = {new: 0.1}
    cluster.settle()
    assert cluster.revision == (new if kept else old)


def test_time_alone_never_promotes() -> None:
    cluster = serving()
    old = cluster.revision
    changed(cluster)
    cluster.rate, cluster.probed = 0.0, False
    go(cluster, 5)
    cluster.wait(86_400)
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/WaitingForSamples"
    assert "Warning WaitingForSamples" not in cluster.log
    message = cluster.condition("RolloutComplete")["message"]
    assert "60 requests of each are needed; probes are not answered" in message
    assert "kubectl optimisedmodel promote minilm " in message
    assert old in cluster.replicas()


def test_what_cannot_be_measured_is_promoted_by_a_person() -> None:
    cluster = serving()
    new = changed(cluster)
    cluster.rate, cluster.probed = 0.0, False
    go(cluster, 60, "False/WaitingForSamples")
    cluster.annotations[labels.PROMOTE] = cluster.status["fingerprint"][:12]
    go(cluster, 5)
    assert cluster.says("RolloutComplete") == "False/WaitingForSamples"
    cluster.annotations[labels.PROMOTE] = new
    cluster.settle()
    assert cluster.revision == new


def test_what_replaces_a_revision_that_fails_always_is_promoted() -> None:
    cluster = serving(replicas=2)
    old = cluster.revision
    cluster.failing, cluster.probed = {old: 1.0}, False
    new = changed(cluster)
    go(cluster, 120, "True/Complete")
    assert cluster.revision == new


def test_a_person_ends_an_analysis_that_cannot_end() -> None:
    """Traffic will never bring so many requests."""
    cluster = serving(analysis={"minRequests": 100_000})
    new = changed(cluster)
    go(cluster, 60, "False/Analysing")
    cluster.annotations[labels.PROMOTE] = new
    go(cluster, 60)
    assert cluster.says("RolloutComplete") == "False/Analysing"
    del cluster.annotations[labels.PROMOTE]
    go(cluster, 300, "False/WaitingForSamples")
    assert "100000 requests of each are needed" in cluster.condition("RolloutComplete")["message"]
    cluster.annotations[labels.PROMOTE] = new
    cluster.settle()
    assert cluster.revision == new


def test_a_person_cannot_promote_what_is_being_measured() -> None:
    cluster = serving()
    new = changed(cluster)
    cluster.slower = {new: 2.0}
    cluster.annotations[labels.PROMOTE] = new
    go(cluster, 60, "False/RolledBack")


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_without_traffic_probes_take_its_place(strategy: str) -> None:
    cluster = serving(strategy=strategy)
    cluster.rate = 0.0
    new = changed(cluster)
    cluster.settle()
    assert cluster.revision == new


@pytest.mark.parametrize("jump", [-7 * 86_400, 7 * 86_400])
def test_a_clock_that_jumps_neither_promotes_nor_stalls(jump: int) -> None:
    """The wall clock jumps; that of the signals does not."""
    cluster = serving()
    old = cluster.revision
    new = changed(cluster)
    go(cluster, 60, "False/Analysing")
    assert cluster.signals is not None
    cluster.signals = replace(cluster.signals, rounds=())
    for _ in range(5):
        cluster.now = cluster.now.fromtimestamp(cluster.now.timestamp() + jump, cluster.now.tzinfo)
        cluster.operate()
        assert cluster.says("RolloutComplete") == "False/Analysing"
        assert old in cluster.replicas()
    go(cluster, 60, "True/Complete")
    assert cluster.revision == new


def test_a_restarted_operator_begins_the_analysis_anew() -> None:
    cluster = serving()
    new = changed(cluster)
    go(cluster, 60, "False/Analysing")
    go(cluster, 12)
    cluster.signals = None
    go(cluster, 14)
    assert cluster.says("RolloutComplete") == "False/Analysing"
    cluster.settle()
    assert cluster.revision == new


def test_while_a_person_is_waited_for_no_guess_gives_it_up() -> None:
    cluster = serving(autoPromote=False)
    new = changed(cluster)
    go(cluster, 60, "False/WaitingForPromotion")
    assert cluster.signals is not None
    cluster.signals, cluster.slower = replace(cluster.signals, rounds=()), {new: 1.2501}
    go(cluster, 350)
    assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    cluster.signals, cluster.slower = replace(cluster.signals, rounds=()), {new: 3.0}
    go(cluster, 60, "False/RolledBack")


def test_a_candidate_that_fails_after_its_promotion_is_rolled_back() -> None:
    cluster = serving(replicas=4, analysis={"seconds": 20})
    old = cluster.revision
    new = changed(cluster)
    for _ in range(90):
        cluster.step()
        if step(cluster) == "Expanding":
            break
    cluster.failing = {new: 1.0}
    cluster.operate()
    cluster.wait(5)
    cluster.operate()
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert "FailedInferences" in cluster.condition("RolloutComplete")["message"]
    cluster.settle()
    assert cluster.replicas() == {old: 4}


def test_steps_of_traffic_each_with_an_analysis() -> None:
    cluster = serving(replicas=4, steps=[{"weight": 25, "analysisSeconds": 20}, {"weight": 50}, {"weight": 100}])
    old = cluster.revision
    new = changed(cluster)
    seen: list[tuple[int, int, str]] = []
    for _ in range(200):
        cluster.step()
        counts = cluster.replicas()
        state = (counts.get(new, 0), counts.get(old, 0), step(cluster))
        if not seen or seen[-1] != state:
            seen.append(state)
        assert len(cluster.pods) <= 5
        assert sum(endpoint.ready for endpoint in cluster.endpoints) >= 4
        if cluster.says("Ready") == "True/Serving":
            break
    analysed = [state for state in seen if state[2] == "Analysing"]
    assert (1, 3, "Analysing") in analysed
    assert (2, 2, "Analysing") in analysed
    assert {state[:2] for state in analysed if state[1] <= 2} == {(2, 2)}
    assert cluster.replicas() == {new: 4}


def test_traffic_stays_shared_between_steps() -> None:
    cluster = serving(replicas=4, steps=[{"weight": 25}, {"weight": 50}])
    changed(cluster)
    go(cluster, 60, "False/Analysing")
    while "weightStep" not in cluster.status["rollout"]:
        cluster.step()
    assert cluster.service is not None
    assert cluster.service.revision == ""


def test_weights_that_do_not_fit_the_replicas_are_said() -> None:
    cluster = serving(replicas=2, steps=[{"weight": 10}])
    changed(cluster)
    go(cluster, 60, "False/Analysing")
    message = cluster.condition("RolloutComplete")["message"]
    assert "step 1 of 1, 33 % of it, the nearest to 10 % that 2 replicas allow" in message


@pytest.mark.parametrize("replicas", [2, 4])
@pytest.mark.parametrize("steps", [[], [{"weight": 50}]])
def test_without_surge_replicas_are_exchanged_one_at_a_time(replicas: int, steps: list[Any]) -> None:
    cluster = serving(replicas=replicas, maxSurge=0, analysis={"seconds": 20}, steps=steps)
    new = changed(cluster)
    for _ in range(200):
        cluster.step()
        assert len(cluster.pods) <= replicas
        assert sum(cluster.replicas().values()) <= replicas
        assert sum(endpoint.ready for endpoint in cluster.endpoints) >= replicas - 1
        if cluster.says("Ready") == "True/Serving":
            break
    assert cluster.replicas() == {new: replicas}


@pytest.mark.parametrize(
    ("when", "replicas"), [("Starting", 1), ("Starting", 3), ("Analysing", 1), ("Analysing", 3), ("Expanding", 3)]
)
def test_without_surge_the_way_back_takes_no_more_either(when: str, replicas: int) -> None:
    cluster = serving(replicas=replicas, maxSurge=0, analysis={"seconds": 20})
    old = cluster.revision
    new = changed(cluster)
    for _ in range(90):
        if step(cluster) == when:
            break
        cluster.step()
    cluster.failing = {new: 1.0}
    crash = {"phase": "Running", "restarts": 3, "exit_code": 1, "failed_container": "server"}
    cluster.broken = {new: crash} if when == "Starting" else {}
    for _ in range(40):
        cluster.step()
        assert sum(cluster.replicas().values()) <= replicas
        assert len(cluster.pods) <= replicas
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert cluster.replicas() == {old: replicas}
    assert cluster.says("Available") == "True/ServingPrevious"


@pytest.mark.parametrize(
    ("weight", "wanted", "surge", "expected"),
    [
        (10, 1, 1, (1, 1)),
        (10, 10, 0, (1, 9)),
        (10, 10, 1, (1, 9)),
        (25, 3, 1, (1, 3)),
        (50, 4, 1, (2, 2)),
        (50, 3, 1, (2, 2)),
        (90, 2, 0, (1, 1)),
        (99, 4, 0, (3, 1)),
        (1, 1000, 0, (10, 990)),
        (30, 1, 0, (1, 0)),
    ],
)
def test_nearest_number_of_replicas(weight: int, wanted: int, surge: int, expected: tuple[int, int]) -> None:
    rollout = RolloutSpec.model_validate({"maxSurge": surge, "steps": [{"weight": weight}]})
    (found,) = splits(rollout, wanted)
    assert (found.candidate, found.stable) == expected


def test_a_step_of_100_is_what_comes_after_the_analysis() -> None:
    rollout = RolloutSpec.model_validate({"steps": [{"weight": 100}], "analysis": {"seconds": 7}})
    assert splits(rollout, 3) == (Split(candidate=1, stable=3, seconds=7),)


@pytest.mark.parametrize(
    ("metric", "tolerance", "expected"),
    [("cosine", 0.01, 0.9), ("cosine", 0.1, 0.62), ("relative-error", 0.3, 0.82), ("top1", 0.01, 0.8)],
)
def test_limit_of_agreement_follows_from_the_accuracy_gate(metric: str, tolerance: float, expected: float) -> None:
    spec = parse_spec({**SPEC, "accuracy": {"metric": metric, "maxLoss": tolerance}})
    assert isinstance(spec, Spec)
    assert least_similarity(spec) == pytest.approx(expected)


def test_without_surge_replicas_that_go_down_get_no_stand_ins() -> None:
    """The old ones may grow only into room that the new ones do not take."""
    cluster = serving(replicas=4, maxSurge=0, analysis={"seconds": 20}, steps=[{"weight": 50}])
    new = changed(cluster)
    go(cluster, 60, "False/Analysing")
    assert cluster.replicas()[new] == 2
    cluster.broken = {new: {"phase": "Running"}}
    for name, pod in cluster.pods.items():
        if pod.revision == new:
            cluster.pods[name] = replace(pod, ready=False)
    for _ in range(5):
        cluster.step()
        assert sum(cluster.replicas().values()) <= 4
        assert len(cluster.pods) <= 4


@pytest.mark.parametrize("surge", [0, 1])
@pytest.mark.parametrize(("before", "after", "weight"), [(4, 2, 50), (4, 3, 50), (6, 2, 50), (8, 4, 75), (8, 3, 25)])
def test_fewer_replicas_in_mid_canary_leave_both_their_shares(surge: int, before: int, after: int, weight: int) -> None:
    """As where maxReplicas is lowered: a candidate that is not proven yet must not get what the stable one gives up."""
    steps = [{"weight": weight}]
    cluster = serving(replicas=before, maxSurge=surge, analysis={"seconds": 60}, steps=steps)
    old = cluster.revision
    new = changed(cluster)
    go(cluster, 120, "False/Analysing")
    cluster.edit(replicas=after)
    (split,) = splits(RolloutSpec.model_validate({"maxSurge": surge, "steps": steps}), after)
    cluster.step()
    while step(cluster) in ("Starting", "Analysing"):
        assert cluster.replicas()[old] >= split.stable
        assert sum(endpoint.ready for endpoint in cluster.endpoints) >= after
        if step(cluster) == "Analysing":
            assert cluster.replicas()[new] == split.candidate
        cluster.step()
    go(cluster, 200, "True/Complete")
    assert cluster.replicas() == {new: after}


@pytest.mark.parametrize(("before", "after"), [(4, 2), (4, 3), (6, 4)])
def test_fewer_replicas_while_none_of_the_new_ones_answers_leave_the_old_ones(before: int, after: int) -> None:
    cluster = serving(replicas=before, maxSurge=0, analysis={"seconds": 20}, steps=[{"weight": 50}])
    old = cluster.revision
    new = changed(cluster)
    for _ in range(120):
        if step(cluster) == "Expanding" and cluster.replicas()[new] > before // 2:
            break
        cluster.step()
    cluster.broken = {new: {"phase": "Running"}}
    cluster.pods = {name: replace(pod, ready=pod.ready and pod.revision == old) for name, pod in cluster.pods.items()}
    stood = cluster.replicas()[old]
    cluster.edit(replicas=after)
    for _ in range(10):
        cluster.step()
        assert cluster.replicas()[old] >= min(stood, after - 1)
        assert sum(cluster.replicas().values()) <= max(after, stood)


def test_restarts_of_a_replica_that_is_gone_do_not_stand_for_anothers() -> None:
    """Two had one each before the analysis. One of them is gone with the load, and the other restarts."""
    cluster = serving(replicas=4, steps=[{"weight": 50}], autoPromote=False)
    new = changed(cluster)
    while step(cluster) == "Starting":
        cluster.pods = {name: replace(pod, restarts=int(pod.revision == new)) for name, pod in cluster.pods.items()}
        cluster.step()
    assert cluster.status["rollout"]["restarts"] == 2
    cluster.edit(replicas=2)
    for _ in range(5):
        cluster.step()
    assert cluster.replicas()[new] == 1
    cluster.pods = {name: replace(pod, restarts=2 * (pod.revision == new)) for name, pod in cluster.pods.items()}
    cluster.step()
    assert cluster.says("RolloutComplete") == "False/RolledBack"
    assert "restarted 2 times" in cluster.condition("RolloutComplete")["message"]


def test_a_stable_revision_that_does_not_answer_is_said_where_it_is_waited_for() -> None:
    cluster = serving()
    old = cluster.revision
    changed(cluster)
    go(cluster, 60, "False/Analysing")
    cluster.broken = {old: {"phase": "Running"}}
    cluster.pods = {name: replace(pod, ready=pod.ready and pod.revision != old) for name, pod in cluster.pods.items()}
    cluster.rate, cluster.probed = 0.0, False
    cluster.step()
    cluster.step()
    assert f"Revision {old} has no ready replica to compare it with." in cluster.condition("RolloutComplete")["message"]


def half_mute(cluster: Cluster) -> tuple[str, str]:
    """Under analysis with two replicas, one of which answers no scrape; its revision and name."""
    new = changed(cluster)
    go(cluster, 60, "False/Progressing")
    name = max(pod.name for pod in cluster.pods.values() if pod.revision == new)
    cluster.mute = {name: cluster.monotonic}
    return new, name


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen"])
def test_a_replica_that_cannot_be_measured_holds_the_promotion_and_then_gives_it_up(strategy: str) -> None:
    cluster = serving(replicas=4, strategy=strategy, steps=[{"weight": 50}] if strategy == "Canary" else [])
    old = cluster.revision
    new, name = half_mute(cluster)
    go(cluster, 90, "False/MetricsUnreadable")
    assert f"replica {name} is ready, but its metrics have not been read for" in cluster.condition(
        "RolloutComplete")["message"]
    go(cluster, 200)
    assert cluster.says("RolloutComplete") == "False/MetricsUnreadable"
    assert new in cluster.replicas(), "it is given time"
    go(cluster, 120, "False/RolledBack")
    assert "What it does could not be measured" in cluster.condition("RolloutComplete")["message"]
    cluster.settle()
    assert cluster.replicas() == {old: 4}


def test_a_replica_that_can_be_measured_again_is_promoted() -> None:
    cluster = serving(replicas=4, steps=[{"weight": 50}])
    new, _ = half_mute(cluster)
    go(cluster, 90, "False/MetricsUnreadable")
    cluster.mute = {}
    cluster.settle()
    assert cluster.revision == new


def test_without_room_for_another_replica_it_is_said_that_nothing_was_compared() -> None:
    cluster = serving(maxSurge=0)
    old = cluster.revision
    changed(cluster)
    said = []
    for _ in range(120):
        cluster.step()
        said.append(cluster.condition("RolloutComplete")["message"])
    assert cluster.revision != old
    words = "no replica of the stable revision ran beside it"
    assert any(f"neither latency nor outputs were compared: {words}" in message for message in said)
    assert cluster.status["revisions"][0]["analysis"]["uncompared"] == words

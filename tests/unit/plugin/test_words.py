"""What people are told, of objects whose status the operator itself wrote."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from enginewright.core import build_steps, labels
from enginewright.plugin import screen, wishes
from enginewright.plugin.durations import age
from enginewright.plugin.words import Explanation, explain
from enginewright_builder.contract import BUILD_STEPS, MemoryFigures
from support.cluster import SPEC, Cluster, built, refused, resolved
from support.fleet_cluster import FleetCluster

NEW = {"engine": {"precision": "fp32"}}


def seen(cluster: Cluster) -> dict[str, Any]:
    meta = {"name": cluster.name, "namespace": "prod", "generation": cluster.generation,
            "annotations": cluster.annotations}
    return {"metadata": meta, "spec": cluster.spec, "status": cluster.status}


def told(cluster: Cluster) -> Explanation:
    return explain(seen(cluster), cluster.now)


def serving(**rollout: Any) -> Cluster:
    cluster = Cluster(spec={**SPEC, "rollout": {"analysis": {"seconds": 0}, **rollout}})
    cluster.settle()
    return cluster


def twice(**rollout: Any) -> Cluster:
    """A second revision has taken over."""
    cluster = serving(**rollout)
    cluster.edit(**NEW)
    cluster.settle()
    return cluster


def test_one_that_nobody_looks_at() -> None:
    said = explain({"metadata": {"name": "minilm", "generation": 1}, "spec": {}}, Cluster().now)
    assert said.headline == "The operator has not looked at minilm yet."
    assert "Is the operator running" in said.next[0]


def test_the_metric_on_labels_stands_beside_the_sources() -> None:
    raw = seen(serving())
    raw["status"]["engine"] |= {"task": {"metric": "accuracy", "value": 0.91, "source": 0.9123, "lossHigh": 0.005},
                                "groups": {"by": "country", "judged": 3, "tooSmall": 1}}
    said = explain(raw, Cluster().now)
    assert ("accuracy on the labels 0.91 where the source has 0.9123, held in 3 groups by country (1 more are too "
            "small to judge).") in said.facts[0]


@pytest.mark.parametrize(("figures", "words"), [
    ({"mean_ms": 12.34, "pre_ms": 2.061, "post_ms": 0.3},
     "p99 9 ms, mean 12.3 ms, of which 2.06 ms before the model (pre) and 0.3 ms after the model (post), accuracy"),
    ({"mean_ms": 12.34, "pre_ms": 2.061}, "p99 9 ms, mean 12.3 ms, of which 2.06 ms before the model (pre), accuracy"),
    ({"mean_ms": 12.34, "post_ms": 0.3}, "p99 9 ms, mean 12.3 ms, of which 0.3 ms after the model (post), accuracy"),
    ({}, "p99 9 ms, accuracy")], ids=["both", "before", "after", "neither"])
def test_what_is_done_before_and_after_the_model_is_told_where_the_build_knows_it(figures: dict[str, Any],
                                                                                  words: str) -> None:
    cluster = Cluster(spec=SPEC)
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(**figures))
    cluster.operate()
    assert words in told(cluster).facts[0]
    names = {"mean_ms": "meanMilliseconds", "pre_ms": "preMilliseconds", "post_ms": "postMilliseconds"}
    assert {name: cluster.status["engine"].get(field) for name, field in names.items()} == {
        name: figures.get(name) for name in names}


def test_one_that_was_changed_a_moment_ago_is_not_judged() -> None:
    cluster = serving()
    cluster.edit(**NEW)
    said = told(cluster)
    assert "changed a moment ago" in said.headline
    assert not said.next


def test_one_that_serves() -> None:
    said = told(serving())
    assert said.headline == "minilm serves what its spec asks for."
    assert said.facts[0].startswith("Engine: onnxruntime int8 (")
    assert "2.20 times the throughput of the source model, p99 9 ms, accuracy at least 0.995." in said.facts[0]
    assert said.facts[1] == ("Server image: enginewright-server:latest has Triton nvidia-pytriton 0.7.0, "
                             "ONNX Runtime 1.31.0, NumPy 2.4.1, Tokenizers 0.23.3, Triton backends python.")
    assert said.facts[2].endswith("1 of 1 replicas ready.")
    assert {line[0] for line in said.way} == {"✓"}
    assert not said.next


def with_new_pods(cluster: Cluster) -> Cluster:
    """A revision more of the same engine."""
    cluster.edit(serving={"podTemplate": {"metadata": {"labels": {"team": "search"}}}})
    cluster.settle()
    now, same, *_ = cluster.status["revisions"]
    assert (now["outcome"], same["outcome"]) == ("Serving", "Superseded")
    assert now["fingerprint"] == same["fingerprint"]
    return cluster


def drift(cluster: Cluster) -> None:
    cluster.scores[cluster.revision] = (500, 0.2)
    cluster.wait(60)
    cluster.step()


def test_one_that_serves_and_answers_wrongly_is_not_said_to_be_well() -> None:
    """And is sent back past the revision before, which has the very engine that drifted."""
    cluster = serving()
    cluster.edit(quality={})
    cluster.settle()
    with_new_pods(cluster)
    assert screen.rows([seen(cluster)])[0]["REASON"] == "Serving"
    drift(cluster)
    said = told(cluster)
    assert said.headline == "minilm serves, but QualityHeld is False (QualityDrifted)."
    old = cluster.status["revisions"][2]["revision"]
    command = f"kubectl optimisedmodel rollback minilm {old} -n prod"
    assert said.next == (f"Go back to revision {old}, which served before: {command}",)
    assert wishes.roll_back(seen(cluster))[0] == {labels.ROLLBACK_TO: old}, "what is told is what is done"
    assert screen.rows([seen(cluster)])[0]["REASON"] == "Serving, QualityDrifted"


def test_without_another_engine_there_is_no_way_back_from_one_that_drifted() -> None:
    cluster = Cluster(spec={**SPEC, "rollout": {"analysis": {"seconds": 0}}, "quality": {}})
    cluster.settle()
    with_new_pods(cluster)
    drift(cluster)
    assert "QualityHeld is False" in told(cluster).headline
    assert told(cluster).next == ()
    same = cluster.status["revisions"][1]["revision"]
    with pytest.raises(wishes.WishError, match=f"whose engine has not drifted; name one to go there .*: {same}$"):
        wishes.roll_back(seen(cluster))
    assert wishes.roll_back(seen(cluster), same)[0] == {labels.ROLLBACK_TO: same}


def test_who_turns_back_in_the_middle_of_a_rollout_keeps_what_serves() -> None:
    cluster = twice()
    assert wishes.roll_back(seen(cluster))[0] == {labels.ROLLBACK_TO: cluster.status["revisions"][1]["revision"]}
    stable = cluster.revision
    cluster.edit(engine={"precision": "int8"}, rollout={"analysis": {"seconds": 0}, "autoPromote": False})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    for _ in range(10):
        cluster.step()
    assert cluster.says("RolloutComplete") == "False/WaitingForPromotion"
    annotations, _ = wishes.roll_back(seen(cluster))
    assert annotations == {labels.ROLLBACK_TO: stable}
    cluster.annotations |= {key: value for key, value in annotations.items() if value}
    cluster.settle()
    assert (cluster.revision, cluster.says("RolloutComplete")) == (stable, "False/Pinned")
    assert set(cluster.replicas()) == {stable}


def test_while_recreate_has_stopped_the_good_one_that_one_is_the_way_back() -> None:
    cluster = twice(strategy="Recreate")
    good = cluster.status["revisions"][0]["revision"]
    cluster.edit(engine={"precision": "int8"})
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    for _ in range(2):
        cluster.operate()
    assert cluster.says("RolloutComplete") == "False/Draining"
    conditions = [{**entry, "status": "False"} if entry["type"] == "Available" else entry
                  for entry in cluster.status["conditions"]]
    cluster.status = {**cluster.status, "conditions": conditions}
    assert any(line.endswith(f"optimisedmodel rollback minilm {good} -n prod") for line in told(cluster).next)
    assert wishes.roll_back(seen(cluster))[0] == {labels.ROLLBACK_TO: good}


def test_one_engine_of_several_names_them_all() -> None:
    cluster = serving()
    status = {**cluster.status, "engine": {**cluster.status["engine"], "ships": "a @1 to batch 1, b to 32"}}
    said = explain({"metadata": {"name": "minilm", "generation": 1}, "status": status}, cluster.now)
    assert said.facts[0].startswith("Engine: a @1 to batch 1, b to 32 (")


def test_one_that_is_built() -> None:
    cluster = Cluster()
    cluster.operate()
    cluster.settle_jobs()
    cluster.operate()
    said = told(cluster)
    assert said.headline.startswith("minilm does not serve: ")
    assert [line[:13] for line in said.way if "EngineBuilt" in line] == ["… EngineBuilt"], "it waits for its pod"
    cluster.progress("ladder", 0.3)
    cluster.operate()
    said = told(cluster)
    (line,) = (line for line in said.way if "EngineBuilt" in line)
    assert line == "… EngineBuilt Building for 0s, as said above."
    assert ": trying candidates (30 %); follow with kubectl logs " in said.headline


def test_a_long_message_is_said_once() -> None:
    cluster = Cluster()
    cluster.operate()
    nothing = "there is nothing at pvc://models/minilm"
    cluster.finish(refused("resolve", "user", "SourceNotFound", nothing), of="resolve")
    cluster.operate()
    said = told(cluster)
    text = "\n".join((said.headline, *said.facts, *said.way, *said.next))
    assert text.count(nothing) == 1
    assert nothing in said.headline
    assert "✗ SourceResolved SourceNotFound for 0s, as said above." in said.way


def test_each_step_of_a_build_has_words() -> None:
    assert build_steps.WORDS.keys() == BUILD_STEPS.keys()
    assert build_steps.in_words("a-step-of-tomorrow") == "a-step-of-tomorrow"


def test_a_rollout_under_way_has_not_failed() -> None:
    cluster = serving(autoPromote=False)
    cluster.edit(**NEW)
    cluster.settle()
    (line,) = (line for line in told(cluster).way if "RolloutComplete" in line)
    assert line.startswith("… RolloutComplete WaitingForPromotion")


def test_a_rebuild_that_failed_leaves_the_old_engine_serving() -> None:
    cluster = twice()
    cluster.edit(engine={"precision": "int8"})
    cluster.operate()
    cluster.finish(refused("build", "user", "AccuracyNotReached", "int8 is off"), of="build")
    cluster.operate()
    said = told(cluster)
    assert said.headline.startswith("minilm still serves the last proven engine: ")
    assert "int8 is off" in said.headline
    assert any(line.startswith("✗ EngineBuilt AccuracyNotReached") for line in said.way)
    (line,) = said.next
    assert "optimisedmodel retry minilm" in line


def test_one_whose_replicas_are_all_down_names_the_way_back() -> None:
    cluster = twice()
    cluster.broken = {cluster.revision: {"phase": "Running", "restarts": 3, "exit_code": 1}}
    for pod in list(cluster.pods):
        del cluster.pods[pod]
    for _ in range(3):
        cluster.step()
    said = told(cluster)
    assert said.headline.startswith("minilm does not serve: ")
    old = cluster.status["revisions"][1]["revision"]
    assert any(f"optimisedmodel rollback minilm {old}" in line for line in said.next)


def test_one_whose_pods_are_broken_may_go_back_to_the_same_engine() -> None:
    """In the pods of before: nobody says that the engine is wrong."""
    cluster = with_new_pods(serving())
    same = cluster.status["revisions"][1]["revision"]
    cluster.broken = {cluster.revision: {"phase": "Running", "restarts": 3, "exit_code": 1}}
    for pod in list(cluster.pods):
        del cluster.pods[pod]
    for _ in range(3):
        cluster.step()
    assert any(f"optimisedmodel rollback minilm {same}" in line for line in told(cluster).next)


def test_one_that_waits_for_a_person() -> None:
    cluster = serving(autoPromote=False)
    cluster.edit(**NEW)
    cluster.operate()
    cluster.finish(built(built_at=cluster.now), of="build")
    for _ in range(30):
        cluster.step()
    candidate = cluster.status["rollout"]["candidate"]
    assert f"Promote revision {candidate}: kubectl optimisedmodel promote minilm -n prod" in told(cluster).next
    annotations, _ = wishes.promote(seen(cluster))
    cluster.annotations |= {key: value for key, value in annotations.items() if value}
    cluster.settle()
    assert cluster.revision == candidate


def test_the_candidates_replicas_are_not_counted_as_those_of_what_serves() -> None:
    cluster = serving(autoPromote=False)
    old = cluster.revision
    cluster.edit(**NEW)
    cluster.settle()
    (line,) = (fact for fact in told(cluster).facts if fact.startswith("Serving:"))
    assert line == f"Serving: revision {old}, with the candidate 2 of 2 replicas ready."


def test_going_back_and_forth() -> None:
    cluster = twice()
    new = cluster.revision
    annotations, sentence = wishes.roll_back(seen(cluster))
    cluster.annotations |= {key: value for key, value in annotations.items() if value}
    assert not wishes.is_held(seen(cluster)), "the operator has not looked yet"
    cluster.settle()
    old = cluster.revision
    assert old != new
    assert old in sentence
    assert wishes.is_held(seen(cluster))
    assert any("rollback minilm --release" in line for line in told(cluster).next)
    assert wishes.release(seen(cluster))[0] == {labels.ROLLBACK_TO: None}
    assert wishes.roll_back(seen(cluster), new[:4])[0] == {labels.ROLLBACK_TO: new}
    del cluster.annotations[labels.ROLLBACK_TO]
    assert not wishes.is_held(seen(cluster)), "what status says is of before"


@pytest.mark.parametrize(("wish", "message"), [
    (wishes.promote, "has no revision that waits"),
    (wishes.roll_back, "keeps no earlier revision to go back to"),
    (lambda obj: wishes.roll_back(obj, "nobody"), "'nobody' is no revision of minilm that served; those are "),
    (lambda obj: wishes.roll_back(obj, ""), "revisionHistoryLimit"),
    (wishes.release, "follows its spec"),
])
def test_what_makes_no_sense_is_refused(wish: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(wishes.WishError, match=message):
        wish(seen(serving()))


def test_one_that_never_served_has_nothing_to_go_back_to() -> None:
    cluster = Cluster()
    cluster.operate()
    with pytest.raises(wishes.WishError, match="no revision of minilm has served yet, so there is none to go back to"):
        wishes.roll_back(seen(cluster))


def test_another_revision_than_the_candidate_is_not_promoted() -> None:
    obj = {"metadata": {"name": "m"}, "status": {"rollout": {"stable": "a", "candidate": "b", "step": "Analysing"}}}
    assert wishes.promote(obj, "b")[0] == {labels.PROMOTE: "b"}
    with pytest.raises(wishes.WishError, match="revision c is not the candidate of m: that is b"):
        wishes.promote(obj, "c")


def test_what_was_given_up_is_not_what_is_gone_back_to() -> None:
    kept = [{"revision": name, "fingerprint": "f", "outcome": outcome, "promotionTime": "2026-11-21T12:00:00Z"}
            for name, outcome in (("aaaa", "RolledBack"), ("bbbb", "Serving"), ("cccc", "Superseded"))]
    annotations, _ = wishes.roll_back({"metadata": {"name": "m"}, "status": {"revisions": kept}})
    assert annotations == {labels.ROLLBACK_TO: "cccc"}


def test_a_fleet_goes_back_by_its_spec_or_class_by_class() -> None:
    fleet = FleetCluster()
    fleet.run(20)
    with pytest.raises(wishes.WishError, match=r"is a fleet: apply its earlier spec, .* one: minilm-gpu, minilm-cpu"):
        wishes.roll_back({"metadata": {"name": "minilm"}, "status": fleet.status})


def test_a_beginning_that_fits_two_is_refused() -> None:
    kept = [{"revision": name, "fingerprint": "f", "outcome": "Superseded", "promotionTime": "2026-11-21T12:00:00Z"}
            for name in ("ab1", "ab2")]
    with pytest.raises(wishes.WishError, match="'ab' is more than one revision of m that served; those are ab1, ab2"):
        wishes.roll_back({"metadata": {"name": "m"}, "status": {"revisions": kept}}, "ab")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (7199, "1h"), (1e6, "11d")]
)
def test_ages_are_kubectls(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_since_when_is_told() -> None:
    cluster = serving()
    line = explain(seen(cluster), cluster.now + timedelta(hours=5)).way[0]
    assert " for 5h: " in line


def test_rows_of_top() -> None:
    (row,) = screen.rows([seen(serving())])
    assert row["READY"] == "True"
    assert (row["ENGINE"], row["REPLICAS"], row["BUILD-P99"]) == ("onnxruntime int8", "1/1", "9 ms")
    obj = seen(serving())
    assert (row["INF/J"], row["LIVE-P99"]) == ("", "")
    (asked,) = screen.rows([{**obj, "status": {**obj["status"], "autoscaling": {"p99Milliseconds": 12.345}}}])
    assert asked["LIVE-P99"] == "12.3 ms"
    (metered,) = screen.rows([{**obj, "status": {**obj["status"], "engine": {
        **obj["status"]["engine"], "inferencesPerJoule": 12.345}}}])
    assert metered["INF/J"] == "12.3"
    (empty,) = screen.rows([{"metadata": {"name": "new", "namespace": "a"}}])
    assert (empty["READY"], empty["ENGINE"], empty["REPLICAS"]) == ("Unknown", "", "0/0")


def test_the_text_has_all_parts() -> None:
    said = Explanation(headline="h", facts=("f",), way=("w",), next=("n",))
    assert screen.lines(said) == ["h", "", "f", "", "On the way:", "  w", "", "Next:", "  n"]
    assert screen.lines(Explanation(headline="h")) == ["h"]


def test_of_a_fleet_each_class_is_told() -> None:
    fleet = FleetCluster()
    fleet.run(20)
    obj = {"metadata": {"name": "minilm", "generation": 1}, "spec": fleet.spec, "status": fleet.status}
    facts = explain(obj, fleet.now).facts
    assert "Class cpu is ready: onnxruntime int8, 1 of 1 replicas ready, 900 inferences a second each. " \
           "Ask minilm-cpu for more." in facts


class TestExport:
    """Which revision is exported."""

    def test_the_one_that_serves(self) -> None:
        obj = seen(serving())
        stable = obj["status"]["rollout"]["stable"]
        assert wishes.serving(obj) == wishes.serving(obj, stable[:3]) == stable

    def test_none_serves(self) -> None:
        with pytest.raises(wishes.WishError, match="minilm serves no engine yet; kubectl optimisedmodel explain"):
            wishes.serving(seen(Cluster()))

    def test_a_rollout_has_two(self) -> None:
        cluster = serving(autoPromote=False)
        cluster.edit(**NEW)
        cluster.settle()
        obj = seen(cluster)
        rollout = obj["status"]["rollout"]
        with pytest.raises(wishes.WishError, match=f"being rolled out: name .* {rollout['stable']}, which is proven, "
                                                   f"or {rollout['candidate']}, which is not yet"):
            wishes.serving(obj)
        assert wishes.live(obj) == [rollout["stable"], rollout["candidate"]]
        assert wishes.serving(obj, rollout["candidate"]) == rollout["candidate"]
        with pytest.raises(wishes.WishError, match="'xyz' is no revision of minilm with replicas; those are"):
            wishes.serving(obj, "xyz")

    def test_of_a_fleet_a_class_is_named(self) -> None:
        fleet = FleetCluster()
        fleet.run(20)
        with pytest.raises(wishes.WishError, match="is a fleet: name the object of one class: minilm-gpu, minilm-cpu"):
            wishes.serving({"metadata": {"name": "minilm"}, "status": fleet.status})


@pytest.mark.parametrize(("device", "words"), [(None, ""), (3 << 30, "; of its GPUs 3072Mi")])
def test_memory_with_what_to_ask_for(device: int | None, words: str) -> None:
    cluster = Cluster(spec=SPEC)
    cluster.operate()
    cluster.finish(resolved())
    cluster.operate()
    cluster.finish(built(memory=MemoryFigures(
        seen="processes", empty_bytes=12 << 20, loaded_bytes=268 << 20, peak_bytes=326 << 20, held_bytes=300 << 20,
        concurrency=4, cores=1.83, device_peak_bytes=device)))
    cluster.settle()
    assert (
        "Memory of one server: 326Mi under the measured load, 268Mi with the model loaded, 12Mi without; least limit: "
        f"300Mi{words}. Proposed for spec.serving.resources: requests cpu: 1850m, memory: 448Mi; limits memory: 640Mi."
    ) in told(cluster).facts

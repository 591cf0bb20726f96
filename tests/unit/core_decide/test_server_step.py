"""What the server image has: asked once of each image, remembered, and asked again only when it is another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import Images, OperatorConfig
from enginewright.core.observed import PodView
from enginewright_builder.contract import Facts, ImageFacts
from support.cluster import IMAGE_FACTS, SERVER_DIGEST, SPEC, Cluster, asked, described, refused, resolved

IMAGE = "enginewright-server:latest"
TRITON = ImageFacts(
    architecture="x86_64", python="3.12.3", tritonserver="2.51.0", backends=("onnxruntime", "python", "tensorrt"),
    libraries={"TensorRT": "10.5.0"}, cuda="12.6", drivers=("550",))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(unasked=True)


def pod(**fields: Any) -> PodView:
    return PodView(**{"name": "ask-pod", "phase": "Succeeded", "server_image": IMAGE, "server_digest": SERVER_DIGEST,
                      **fields})


def answer(cluster: Cluster, facts: Facts, digest: str = SERVER_DIGEST) -> None:
    for job in cluster.running("-ask-"):
        cluster.show(job.name, pods=(pod(server_digest=digest),))
    cluster.finish(replace(asked(), facts=facts), of="-ask-")


def ended(**fields: Any) -> PodView:
    return pod(phase="Failed", failed_container=labels.CONTAINER_EXAMINE, **fields)


def jobs(cluster: Cluster) -> list[str]:
    return [job.name for job in cluster.jobs.values() if job.step == labels.COMPONENT_ASK]


def test_it_is_asked_while_the_source_is_looked_at(cluster: Cluster) -> None:
    plan = cluster.operate()
    assert [text.rsplit("-", 1)[0] for text in described(plan)] == [
        "Create Job server-image-ask", "Create ConfigMap minilm-resolve", "Create Job minilm-resolve"]
    assert not cluster.operate().actions


def test_the_answer_is_remembered_with_the_digest_and_asked_for_once(cluster: Cluster) -> None:
    cluster.operate()
    answer(cluster, Facts(server=TRITON, builder=IMAGE_FACTS))
    cluster.operate()
    told = cluster.status["server"]
    assert (told["image"], told["imageID"], told["triton"], told["python"]) == (
        IMAGE, SERVER_DIGEST, "2.51.0", "3.12.3")
    assert told["backends"] == ["onnxruntime", "python", "tensorrt"]
    assert told["libraries"] == [{"name": "TensorRT", "version": "10.5.0"}]
    assert (told["cuda"], told["drivers"]) == ("12.6", ["550"])
    assert {one["name"]: one["version"] for one in told["builderLibraries"]} == IMAGE_FACTS.libraries
    cluster.jobs.clear()  # their time to live has passed
    cluster.operate()
    assert not jobs(cluster)


@pytest.mark.parametrize("change", ["spec", "server", "builder"])
def test_another_image_is_asked(cluster: Cluster, change: str) -> None:
    cluster.settle()
    (first,) = jobs(cluster)
    if change == "spec":
        cluster.edit(serving={"image": "registry.example/triton:2"})
    else:
        images = {"server": Images(server="server:2"), "builder": Images(builder="builder:2")}[change]
        cluster.config = OperatorConfig(images=images)
    cluster.operate()
    (second,) = jobs(cluster)
    assert second != first
    assert cluster.status["server"].get("runtime") is None


def test_a_replica_of_another_digest_has_the_image_asked_once_more(cluster: Cluster) -> None:
    cluster.settle()
    before, served = cluster.status["server"], cluster.revision
    old = "sha256:" + "6" * 64
    for name, one in cluster.pods.items():
        cluster.pods[name] = replace(one, server_image=IMAGE, server_digest=old)
    cluster.operate()
    (job,) = cluster.running("-ask-")
    assert cluster.status["server"]["runtime"] == before["runtime"], "what was known goes on holding"
    assert cluster.says("EngineBuilt").startswith("True/")
    answer(cluster, Facts(server=IMAGE_FACTS, builder=IMAGE_FACTS))  # on a node that has the first one
    cluster.settle()
    assert jobs(cluster) == [job.name]
    assert cluster.revision == served
    assert cluster.status["server"]["digests"] == [old]


def test_replicas_of_another_image_say_nothing_of_this_one(cluster: Cluster) -> None:
    cluster.settle()
    for name, one in cluster.pods.items():
        cluster.pods[name] = replace(one, server_image="registry.example/other:1", server_digest="sha256:" + "6" * 64)
    cluster.operate()
    assert not cluster.running("-ask-")


NO_PYTHON = 'exec: "python3": executable file not found in $PATH'


@pytest.mark.parametrize(("spec", "field"), [
    ({}, "images.server of the operator's chart"),
    ({"serving": {"image": "registry.example/no-python:1"}}, "spec.serving.image"),
])
def test_an_image_that_cannot_say_is_told_with_its_containers_words(spec: dict[str, Any], field: str) -> None:
    cluster = Cluster(spec={**SPEC, **spec}, unasked=True)
    cluster.operate()
    said = f"\x1b[31mOCI runtime\n create failed: {NO_PYTHON}\x07"
    cluster.fail(of="-ask-", pods=(ended(exit_code=128, terminated_message=said),), reason="PodFailurePolicy")
    cluster.operate()
    failure = cluster.status["server"]["failure"]
    assert failure["reason"] == "ServerImageUnfit"
    marked = f"\N{REPLACEMENT CHARACTER}[31mOCI runtime create failed: {NO_PYTHON}\N{REPLACEMENT CHARACTER}."
    for part in ("exit code 128", marked, field, "python3 (3.10 or newer)"):
        assert part in failure["message"]
    assert failure["message"].isprintable()
    cluster.jobs.clear()
    cluster.wait(3600)
    cluster.operate()
    assert not jobs(cluster)
    cluster.annotations[labels.RETRY] = "1"
    cluster.operate()
    assert len(jobs(cluster)) == 1


def test_what_it_wrote_and_the_builder_refused_is_told(cluster: Cluster) -> None:
    cluster.operate()
    cluster.finish(refused("ask", "user", "ServerImageUnfit", "it wrote more than 65,536 bytes of what it has"),
                   of="-ask-")
    cluster.operate()
    assert "65,536 bytes" in cluster.status["server"]["failure"]["message"]


def test_a_container_that_was_killed_is_tried_three_times(cluster: Cluster) -> None:
    tries = 0
    for _ in range(20):
        cluster.operate()
        if cluster.running("-ask-"):
            tries += 1
            cluster.fail(of="-ask-", pods=(ended(exit_code=137, terminated_message=""),))
        cluster.wait(600)
    assert tries == 3
    assert cluster.status["server"]["failure"]["reason"] == "BuildFailed"


def test_suspended_objects_ask_nothing(cluster: Cluster) -> None:
    cluster.spec = {**SPEC, "suspend": True}
    assert not cluster.operate().actions
    cluster.edit(suspend=None)
    cluster.operate()
    assert len(cluster.running("-ask-")) == 1
    cluster.edit(suspend=True)
    cluster.operate()
    assert not cluster.running("-ask-")


def test_the_source_and_the_image_do_not_take_each_others_jobs(cluster: Cluster) -> None:
    cluster.operate()
    cluster.edit(source={"uri": "pvc://models/other"})
    cluster.operate()
    assert len(cluster.running("-ask-")) == 1
    cluster.edit(serving={"image": "registry.example/triton:2"})
    cluster.operate()
    assert len(cluster.running("resolve")) == 1


def neighbours(*specs: dict[str, Any]) -> list[Cluster]:
    """Objects of one namespace that came at once."""
    found = [Cluster(spec={**SPEC, **spec}, name=f"m{number}", uid=f"u-{number}", unasked=True)
             for number, spec in enumerate(specs)]
    for one in found:
        one.neighbours = [other for other in found if other is not one]
    return found


def looked_at(*clusters: Cluster) -> None:
    """Their sources are known, so that it is the image that they wait for."""
    for one in clusters:
        one.finish(resolved(), of="resolve")
        one.operate()


def message(cluster: Cluster) -> str:
    return str(next(one["message"] for one in cluster.status["conditions"] if one["type"] == "EngineBuilt"))


def asking(clusters: list[Cluster]) -> list[str]:
    return [f"{one.name}: {job.name}" for one in clusters for job in one.running("-ask-")]


def test_objects_of_one_image_ask_it_once() -> None:
    clusters = neighbours({}, {}, {"engine": {"maxBatchSize": 4}}, {})
    for one in clusters:
        one.operate()
    assert [one.split(":")[0] for one in asking(clusters)] == ["m0"]
    looked_at(*clusters)
    assert "of OptimisedModel m0 asks server image" in message(clusters[1])
    assert not clusters[1].operate().actions
    answer(clusters[0], Facts(server=TRITON, builder=IMAGE_FACTS))
    for one in reversed(clusters):  # whoever looks first
        one.operate()
    assert all(one.status["server"] == clusters[0].status["server"] for one in clusters)
    assert not asking(clusters)


def test_who_looks_at_the_same_moment_finds_the_job_of_the_one_that_was_faster() -> None:
    first, second = neighbours({}, {})
    late = second.plan()
    first.operate()
    second.carry_out(late, None)
    assert len(asking([first, second])) == 1
    looked_at(second)
    assert "of OptimisedModel m0 asks" in message(second)


def test_the_answer_is_taken_from_a_status_when_the_job_is_gone() -> None:
    first, second = neighbours({}, {})
    first.operate()
    answer(first, Facts(server=TRITON, builder=IMAGE_FACTS))
    first.operate()
    first.jobs.clear()
    second.operate()
    assert second.status["server"] == first.status["server"]
    assert not jobs(second)


@pytest.mark.parametrize("other", [
    {"serving": {"image": "registry.example/triton:2"}},
    {"placement": {"accelerator": "cpu", "nodeSelector": {"kubernetes.io/arch": "arm64"}}},
])
def test_another_image_or_architecture_is_asked_for_itself(other: dict[str, Any]) -> None:
    first, second = neighbours({}, other)
    first.operate()
    second.operate()
    assert len(asking([first, second])) == 2
    answer(first, Facts(server=TRITON, builder=IMAGE_FACTS))
    first.operate()
    second.operate()
    assert second.status["server"].get("runtime") is None


def test_an_object_whose_job_would_run_otherwise_does_not_wait_and_takes_the_answer() -> None:
    """Its own pull secret may be what the other one lacks."""
    secret = {"engine": {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "mine"}]}}}}
    first, second = neighbours({}, secret)
    first.operate()
    second.operate()
    assert len(asking([first, second])) == 2
    answer(second, Facts(server=TRITON, builder=IMAGE_FACTS))
    second.operate()
    first.operate()
    assert first.status["server"]["triton"] == "2.51.0"


@pytest.mark.parametrize("end", ["fails", "is deleted", "is an orphan"])
def test_nobody_waits_for_a_job_that_will_not_answer(end: str) -> None:
    first, second, third = clusters = neighbours({}, {}, {})
    for one in clusters:
        one.operate()
    (job,) = first.running("-ask-")
    if end == "fails":
        first.fail(of="-ask-", pods=(ended(exit_code=1, terminated_message="no"),), reason="PodFailurePolicy")
    elif end == "is deleted":
        first.jobs.clear()
        second.neighbours.remove(first)
        third.neighbours.remove(first)
    else:
        first.name = ""
    second.operate()
    third.operate()
    names = [one.name for one in (*second.running("-ask-"), *third.running("-ask-"))]
    if end == "is deleted":
        assert names == [job.name], "the next one asks, and the third waits for that"
    else:
        assert [name.split("-")[0] for name in names] == ["m1", "m2"], "each for itself"
    answer(second, Facts(server=TRITON, builder=IMAGE_FACTS))
    second.operate()
    assert second.status["server"]["triton"] == "2.51.0"
    third.operate()
    assert third.status["server"]["runtime"] == second.status["server"]["runtime"]


def test_what_keeps_the_job_of_another_from_starting_is_told() -> None:
    first, second = neighbours({}, {})
    first.operate()
    (job,) = first.running("-ask-")
    first.show(job.name, pods=(pod(phase="Pending", waiting_reason="ImagePullBackOff", server_digest=""),))
    second.operate()
    looked_at(second)
    assert second.says("EngineBuilt").startswith("False/ImagePullFailed")


def test_a_status_that_does_not_hold_together_is_not_believed() -> None:
    """Whoever may write the status of one object may have written it by hand."""
    first, second = neighbours({}, {})
    first.operate()
    answer(first, Facts(server=TRITON, builder=IMAGE_FACTS))
    first.operate()
    first.jobs.clear()
    first.status = {**first.status, "server": {**first.status["server"], "image": "registry.example/other:1"}}
    second.operate()
    assert second.status["server"].get("runtime") is None
    assert len(second.running("-ask-")) == 1


def test_an_old_failure_is_forgotten_with_the_answer_of_another() -> None:
    first, second = neighbours({}, {"engine": {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "mine"}]}}}})
    first.operate()
    first.fail(of="-ask-", pods=(ended(exit_code=1, terminated_message="no"),), reason="PodFailurePolicy")
    first.operate()
    assert first.status["server"]["failure"]
    second.operate()
    answer(second, Facts(server=TRITON, builder=IMAGE_FACTS))
    second.operate()
    first.operate()
    assert "failure" not in first.status["server"]
    assert first.status["server"]["triton"] == "2.51.0"

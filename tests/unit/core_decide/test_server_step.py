"""What the server image has: asked once of each image, remembered, and asked again only when it is another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import Images, OperatorConfig
from enginewright.core.observed import PodView
from enginewright_builder.contract import Facts, ImageFacts
from support.cluster import IMAGE_FACTS, SERVER_DIGEST, SPEC, Cluster, asked, deeds, refused

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
    assert [deed.rsplit("-", 1)[0] for deed in deeds(plan)] == [
        "Create Job minilm-ask", "Create ConfigMap minilm-resolve", "Create Job minilm-resolve"]
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


def test_it_is_asked_once_more_when_it_proves_engines_from_now_on(cluster: Cluster) -> None:
    cluster.operate()
    answer(cluster, Facts(server=TRITON, builder=IMAGE_FACTS))
    cluster.operate()
    assert cluster.status["server"]["runtime"]["backends"] == ["python"]
    cluster.config = replace(cluster.config, prove_in_server_image=True)
    cluster.operate()
    assert cluster.running("-ask-")
    assert cluster.status["server"]["runtime"]["backends"] == ["python"], "what was known goes on holding"
    answer(cluster, Facts(server=TRITON, builder=IMAGE_FACTS))
    cluster.operate()
    assert cluster.status["server"]["runtime"]["backends"] == ["python", "onnxruntime", "tensorrt"]
    assert not cluster.running("-ask-")


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
    for part in ("exit code 128", NO_PYTHON, field, "python3 (3.10 or newer)"):
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

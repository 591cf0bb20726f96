"""An engine that is built anew because of what it runs on: said with from and to, while the old one serves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.config import Images, OperatorConfig
from enginewright_builder.contract import Facts
from support.cluster import IMAGE_FACTS, SPEC, Cluster, refused

GPU: dict[str, Any] = {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
MIG: dict[str, Any] = {**GPU, "mig": {"profile": "1g.10gb"}}
BEFORE = OperatorConfig(images=Images(builder="builder:1", server="server:1"))


def rebuilt(*, spec: dict[str, Any] | None = None, config: OperatorConfig = BEFORE, **edit: Any) -> tuple[Cluster, str]:
    """Something has changed while a revision served, and the build for it runs; and that revision."""
    cluster = Cluster(spec={**SPEC, **(spec or {})}, config=BEFORE)
    cluster.settle()
    old = cluster.revision
    cluster.config = config
    if edit:
        cluster.edit(**edit)
    cluster.operate()
    cluster.progress("ladder", 0.3)
    cluster.operate()
    return cluster, old


@pytest.mark.parametrize(("spec", "config", "edit", "says"), [
    ({}, OperatorConfig(images=Images(builder="builder:1", server="server:2")), {},
     "server image server:1 → server:2. trying candidates (30 %)"),
    ({}, BEFORE, {"serving": {"image": "tritonserver:25.09"}}, "server image server:1 → tritonserver:25.09."),
    ({}, OperatorConfig(images=Images(builder="builder:2", server="server:1")), {},
     "builder image builder:1 → builder:2."),
    ({}, BEFORE, {"placement": GPU}, "device cpu amd64 → NVIDIA-H100-80GB-HBM3 amd64."),
    ({"placement": GPU}, BEFORE, {"placement": {**GPU, "gpu": {"product": "NVIDIA-L4"}}},
     "device NVIDIA-H100-80GB-HBM3 amd64 → NVIDIA-L4 amd64."),
    ({"placement": GPU}, BEFORE, {"placement": {**GPU, "gpu": {**GPU["gpu"], "count": 2}}},
     "devices of one replica 1 → 2."),
    ({"placement": GPU}, BEFORE, {"placement": MIG},
     "device NVIDIA-H100-80GB-HBM3 amd64 → NVIDIA-H100-80GB-HBM3 1g.10gb amd64."),
    ({"placement": MIG}, BEFORE, {"placement": {**MIG, "mig": {"profile": "2g.20gb"}}, "engine": {"maxBatchSize": 4}},
     "1g.10gb amd64 → NVIDIA-H100-80GB-HBM3 2g.20gb amd64."),
], ids=["installation's image", "user's image", "builder", "cpu to gpu", "gpu", "count", "mig", "slice"])
def test_why_it_is_built_anew(spec: dict[str, Any], config: OperatorConfig, edit: dict[str, Any], says: str) -> None:
    cluster, old = rebuilt(spec=spec, config=config, **edit)
    told = cluster.condition("EngineBuilt")
    assert (told["status"], told["reason"]) == ("False", "TargetChanged")
    assert says in told["message"]
    assert old in told["message"]
    assert "Normal TargetChanged" in cluster.log
    assert cluster.says("Available") == "True/ServingPrevious"
    assert cluster.revision == old
    cluster.settle()
    assert cluster.says("EngineBuilt") == "True/Built"
    assert cluster.says("Ready") == "True/Serving"


def test_an_image_that_has_more_under_the_same_name_is_another_target() -> None:
    cluster = Cluster(spec=dict(SPEC), config=BEFORE, unasked=True)
    cluster.settle()
    server = replace(IMAGE_FACTS, libraries={**IMAGE_FACTS.libraries, "PyTorch": "2.11.0"})
    cluster.facts = Facts(server=server, builder=IMAGE_FACTS)
    for name, pod in cluster.pods.items():
        cluster.pods[name] = replace(pod, server_image="server:1", server_digest="sha256:" + "6" * 64)
    cluster.operate()
    cluster.settle_jobs()
    cluster.operate()
    cluster.progress("ladder", 0.3)
    cluster.operate()
    assert ("backends of the server image python, onnxruntime → python, onnxruntime, torch."
            in cluster.condition("EngineBuilt")["message"])


@pytest.mark.parametrize("edit", [{"engine": {"maxBatchSize": 4}}, {"objective": {"throughput": 5}}])
def test_another_engine_for_the_same_target_is_just_built(edit: dict[str, Any]) -> None:
    assert rebuilt(**edit)[0].says("EngineBuilt") == "False/Building"


def test_the_first_build_has_nothing_to_compare_with() -> None:
    cluster = Cluster(spec=dict(SPEC))
    cluster.settle()
    cluster.status = {}
    cluster.config = OperatorConfig(images=Images(server="server:2"))
    cluster.operate()
    assert "→" not in cluster.condition("EngineBuilt")["message"]


def test_why_a_build_fails_goes_before_why_it_began() -> None:
    cluster, old = rebuilt(config=OperatorConfig(images=Images(builder="builder:1", server="server:2")))
    cluster.finish(refused("build", "user", "ServerLoadFailed"), of="build")
    cluster.operate()
    told = cluster.condition("EngineBuilt")
    assert told["reason"] == "ServerLoadFailed"
    assert "server image server:1 → server:2" in told["message"]
    assert cluster.revision == old
    assert cluster.says("Available") == "True/ServingPrevious"

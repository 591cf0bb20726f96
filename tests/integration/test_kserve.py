"""What the plugin exports for KServe, against a real apiserver with KServe's own definitions. No controller of KServe
runs: whether its pods become ready is not shown here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, POD
from enginewright.core import labels
from enginewright.plugin.kserve import manifests
from enginewright.runtime import Operator
from support import kserve
from support.apiserver import Models, manifest, model
from support.fake_kubelet import FakeKubelet
from support.plugin import Plugin

STRICT = ("--validate=strict", "-f", "-")
ROLLOUT: dict[str, Any] = {"strategy": "BlueGreen", "analysis": {"seconds": 0}, "scaleDownDelaySeconds": 0}
# Labels that another parser of YAML takes for numbers and truth values, and some of everything that a user may add.
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1e5", "b": "y", "c": "null", "d": "0o17"}, "annotations": {"note": "~"}},
    "spec": {
        "priorityClassName": "system-cluster-critical",
        "volumes": [{"name": "logs", "emptyDir": {}}],
        "containers": [{"name": "server", "env": [{"name": "TZ", "value": "UTC"}],
                        "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
                       {"name": "shipper", "image": "example/shipper:1"}],
    },
}


@pytest.fixture
async def installed(kube: KubeClient) -> AsyncIterator[None]:
    await kserve.install(kube)
    yield
    await kserve.uninstall(kube)


@pytest.fixture
def plugin(control_plane: Path, namespace: str, tmp_path: Path) -> Plugin:
    return Plugin(control_plane, namespace, tmp_path)


MODELS: dict[str, Any] = {
    "plain": {}, "added": {"serving": {"podTemplate": TEMPLATE, "queue": {"maxQueueSize": 256}}, "quality": {}}}


async def test_kubectl_takes_what_is_printed(installed: None, operator: Operator, models: Models, kubelet: FakeKubelet,
                                             plugin: Plugin) -> None:
    for name, spec in MODELS.items():
        await models.create(model(name, rollout=ROLLOUT, **spec))
    for name in MODELS:
        await _is_taken(name, await models.served(name), models, plugin)


async def _is_taken(name: str, revision: str, models: Models, plugin: Plugin) -> None:
    printed = await plugin("export", name, "--as", "kserve")
    assert printed.returncode == 0, printed.stderr
    for said in ("created", "unchanged"):
        applied = await plugin.kubectl("apply", *STRICT, stdin=printed.stdout)
        assert (applied.stderr, applied.stdout.splitlines()) == ("", [
            f"servingruntime.serving.kserve.io/{name}-{revision} {said}",
            f"inferenceservice.serving.kserve.io/{name}-kserve {said}"])
    kept = (await models.kube.get(kserve.SERVING_RUNTIME, models.namespace, f"{name}-{revision}"),
            await models.kube.get(kserve.INFERENCE_SERVICE, models.namespace, f"{name}-kserve"))
    selector = labels.as_selector(labels.revision_selector(name, revision))
    (deployment,) = await models.kube.list_all(DEPLOYMENT, models.namespace, labels=selector)
    for found, made in zip(kept, manifests(deployment), strict=True):
        assert found["spec"] == made["spec"], "the apiserver drops and adds nothing"
    await _is_a_pod(models, *kept)


async def _is_a_pod(models: Models, runtime: dict[str, Any], service: dict[str, Any]) -> None:
    """The apiserver takes it strictly."""
    predictor = service["spec"]["predictor"]
    body = manifest("v1", "Pod", "minilm", spec=kserve.pod_of(runtime, service))
    body["metadata"] |= {kind: predictor[kind] for kind in ("labels", "annotations") if kind in predictor}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    made = await models.kube._json("create", POD, POD.path(models.namespace), query=query, body=body)
    assert [one["name"] for one in made["spec"]["initContainers"]] == ["storage-initializer"]


async def test_what_is_not_exported(operator: Operator, models: Models, kubelet: FakeKubelet, plugin: Plugin) -> None:
    await models.create(model("unserved", suspend=True))
    unserved = await plugin("export", "unserved", "--as", "kserve")
    assert (unserved.returncode, unserved.stdout) == (1, "")
    assert "unserved serves no engine yet; kubectl optimisedmodel explain unserved" in unserved.stderr
    await models.create(model(rollout={**ROLLOUT, "autoPromote": False}))
    first = await models.served()
    await models.patch({"spec": {"engine": {"maxBatchSize": 16}}})
    await models.wait("RolloutComplete", "False", "WaitingForPromotion")
    refused = await plugin("export", "minilm", "--as", "kserve")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"name the revision behind minilm, {first}, which is proven" in refused.stderr
    named = await plugin("export", "minilm", "--as", "kserve", first)
    assert named.stdout.startswith(f"# Model minilm, revision {first}, "), named.stderr
    offered = await plugin.kubectl("__complete", "optimisedmodel", "export", "minilm", "")
    assert offered.stdout.splitlines()[0] == first

"""Our routes against the Gateway API's own definitions. No Gateway controller runs: whether one would accept a route,
and how it splits requests, is not shown here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import DEPLOYMENT, OPTIMISED_MODEL, SERVICE, resource_of_manifest
from enginewright.core import labels
from enginewright.core.manifests import Owner, routes
from enginewright.core.spec.gateway import GatewaySpec
from enginewright.observe.routes import route_weights
from support import gateway_api
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet
from support.operators import embedded

GATEWAY: dict[str, Any] = {
    "parentRefs": [{"name": "public", "namespace": "edge", "sectionName": "https"}, {"name": "internal"}],
    "hostnames": ["minilm.example.com", "*.models.example.com"],
    "grpcHostnames": ["grpc.minilm.example.com"],
}


@pytest.fixture
async def installed(kube: KubeClient) -> AsyncIterator[None]:
    await gateway_api.install(kube)
    yield
    await gateway_api.uninstall(kube)


async def test_routes_are_taken_as_they_are_and_read_back(installed: None, kube: KubeClient, namespace: str) -> None:
    owner = Owner(name="minilm", namespace=namespace, uid="1b4e28ba-2fa1-11d2-883f-0016d3cca427")
    gateway = GatewaySpec.model_validate(GATEWAY)
    for weights in ({"1a2b3c4d": 100}, {"1a2b3c4d": 80, "5e6f7a8b": 20}, {"5e6f7a8b": 100}):
        for manifest in routes(owner, gateway, weights):
            del manifest["metadata"]["ownerReferences"]  # of an object that is not there: it would be collected
            resource = resource_of_manifest(manifest)
            path = resource.path(namespace, "minilm")
            query = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
            found = await kube._json("apply", resource, path, query=query, body=manifest,
                                     content_type="application/apply-patch+yaml")
            assert route_weights(found, "minilm") == weights
            assert contains(found["spec"], manifest["spec"])


def contains(whole: Any, part: Any) -> bool:
    """Whether ``whole`` is ``part`` but for what the apiserver filled in."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


async def test_from_what_is_missing_to_shares_and_back(
    operator_kubeconfig: Path, kube: KubeClient, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """Asked for and not there, then there, then a canary, then not asked for any more; with the rights of the chart."""
    async with embedded(operator_kubeconfig, namespace, resync=1.0):
        await models.create(model(rollout={"analysis": {"seconds": 0}}))
        await models.wait("Ready", "True", "Serving")
        await models.patch({"spec": {"rollout": {"gateway": GATEWAY}}})
        said = await models.wait("RolloutComplete", "False", "GatewayNotInstalled")
        assert "HTTPRoute and GRPCRoute of gateway.networking.k8s.io/v1" in said["message"]
        await models.wait("Available", "True")
        await gateway_api.install(kube)
        try:
            await _from_installed_to_gone(models)
        finally:
            await gateway_api.uninstall(kube)


async def _from_installed_to_gone(models: Models) -> None:
    await models.wait("Ready", "True", "Serving")
    (first,) = await revisions(models)
    assert await weights(models) == [{first: 100}, {first: 100}]
    steps = {"steps": [{"weight": 5}], "autoPromote": False}
    await models.patch({"spec": {"rollout": steps, "engine": {"precision": "fp32"}}})
    await models.wait("RolloutComplete", "False", "WaitingForPromotion")
    (second,) = set(await revisions(models)) - {first}

    async def split() -> bool:
        assert await weights(models) == [{first: 95, second: 5}] * 2
        assert await models.names(SERVICE) == sorted(["minilm", f"minilm-{first}", f"minilm-{second}"])
        service = await models.kube.get(SERVICE, models.namespace, "minilm")
        return bool(service["spec"]["selector"][labels.REVISION] == first)

    await eventually(split)
    await models.patch({"metadata": {"annotations": {labels.PROMOTE: second}}})
    await models.wait("Ready", "True", "Serving")

    async def moved() -> bool:
        assert await weights(models) == [{second: 100}] * 2
        return await models.names(SERVICE) == ["minilm", f"minilm-{second}"]

    await eventually(moved)
    await models.patch({"spec": {"rollout": {"gateway": None}}})

    async def gone() -> bool:
        return await weights(models) == [] and await models.names(SERVICE) == ["minilm"]

    await eventually(gone)
    await models.wait("Ready", "True", "Serving")


async def test_classes_of_a_fleet_get_shares_by_capacity(
    installed: None, operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """Every engine of these tests is as fast as the other; the routes lead to the classes' own Services."""
    cpu: dict[str, Any] = {"name": "cpu", "accelerator": "cpu", "minReplicas": 3}
    gpu: dict[str, Any] = {"name": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}}
    other = {**cpu, "name": "other", "nodeSelector": {"pool": "other"}, "minReplicas": 1}
    async with embedded(operator_kubeconfig, namespace):
        await models.create(model(placement={"classes": [cpu, gpu]},
                                  rollout={"analysis": {"seconds": 0}, "gateway": GATEWAY}))
        await models.wait("Ready", "True", "Serving")

        async def split(shares: dict[str, int]) -> bool:
            assert await weights(models) == [shares, shares]
            return True

        await eventually(lambda: split({"cpu": 75, "gpu": 25}))
        assert await models.names(SERVICE) == ["minilm", "minilm-cpu", "minilm-gpu"]
        await models.patch({"spec": {"placement": {"classes": [gpu, other]}}})
        await models.gone(OPTIMISED_MODEL, "minilm-cpu")
        await models.wait("Ready", "True", "Serving")
        await eventually(lambda: split({"gpu": 50, "other": 50}))


async def revisions(models: Models) -> list[str]:
    return [name.removeprefix("minilm-") for name in await models.names(DEPLOYMENT)]


async def weights(models: Models) -> list[dict[str, int]]:
    """Of the HTTPRoute and the GRPCRoute."""
    found = [raw for kind in gateway_api.KINDS for raw in await models.kube.list_all(kind, models.namespace)]
    return [route_weights(raw, "minilm") for raw in found]

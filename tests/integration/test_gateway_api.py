"""Our routes against the Gateway API's own definitions. No Gateway controller runs: whether one would accept a route,
and how it splits requests, is not shown here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import resource_of_manifest
from enginewright.core.manifests import Owner, routes
from enginewright.core.spec.gateway import GatewaySpec
from enginewright.observe.routes import route_weights
from support import gateway_api

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

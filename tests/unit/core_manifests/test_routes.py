"""Weights in routes are shares of a hundred, and only revisions with a share are backends."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.manifests import Owner, routes
from enginewright.core.spec.gateway import GatewaySpec

OWNER = Owner(name="minilm", namespace="prod", uid="u-1")
HTTP: dict[str, Any] = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}


def gateway(**more: Any) -> GatewaySpec:
    return GatewaySpec.model_validate({**HTTP, **more})


def test_without_grpc_host_names_there_is_no_grpc_route() -> None:
    assert [route["kind"] for route in routes(OWNER, gateway(), {"a": 100})] == ["HTTPRoute"]
    both = routes(OWNER, gateway(grpcHostnames=["b.example"]), {"a": 100})
    assert [(route["kind"], route["spec"]["hostnames"]) for route in both] == [
        ("HTTPRoute", ["a.example"]), ("GRPCRoute", ["b.example"])]


def test_a_revision_without_a_share_is_no_backend() -> None:
    (route,) = routes(OWNER, gateway(), {"b": 0, "a": 100})
    (rule,) = route["spec"]["rules"]
    assert [(backend["name"], backend["weight"]) for backend in rule["backendRefs"]] == [("minilm-a", 100)]


def test_the_order_of_weights_changes_nothing() -> None:
    assert routes(OWNER, gateway(), {"a": 1, "b": 99}) == routes(OWNER, gateway(), {"b": 99, "a": 1})


@pytest.mark.parametrize("weights", [{"a": 99}, {"a": 101}, {"a": 50, "b": 60}, {"a": 110, "b": -10}])
def test_weights_that_are_no_shares_are_a_defect(weights: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="shares of 100"):
        routes(OWNER, gateway(), weights)

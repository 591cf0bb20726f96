"""From the apiserver's routes and slices to shares and ready addresses by revision."""

from __future__ import annotations

from typing import Any

from enginewright.core.manifests import Owner, http_route
from enginewright.core.spec.gateway import GatewaySpec
from enginewright.observe.routes import ready_addresses, refusals, route_weights

GATEWAY = GatewaySpec.model_validate({"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]})


def piece(revision: str, *endpoints: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"labels": {"enginewright.io/revision": revision}}, "endpoints": list(endpoints) or None}


def endpoint(pod: str, **conditions: bool) -> dict[str, Any]:
    return {"targetRef": {"name": pod}, "conditions": conditions}


def test_our_own_route_is_read_back() -> None:
    weights = {"1a2b3c4d": 80, "5e6f7a8b": 20}
    assert route_weights(http_route(Owner(name="m", namespace="n", uid="u"), GATEWAY, weights), "m") == weights


def test_absent_weights_are_one_and_foreign_backends_keep_their_name() -> None:
    rules = [{"backendRefs": [{"name": "m-1a2b3c4d", "weight": 5}, {"name": "other"}]}, {}]
    assert route_weights({"spec": {"rules": rules}}, "m") == {"1a2b3c4d": 5, "other": 1}
    assert route_weights({}, "m") == {}


def test_what_a_gateway_has_against_a_route_is_said() -> None:
    def told(**conditions: str) -> dict[str, Any]:
        listed = [{"type": kind, "status": status, "reason": "NoMatchingParent", "message": "no such listener."}
                  for kind, status in conditions.items()]
        return {"parentRef": {"name": "public"}, "conditions": listed}

    parents = [told(Accepted="False"), told(Accepted="True"), told(Accepted="True", ResolvedRefs="False"),
               told(Programmed="False")]
    raw = {"metadata": {"name": "m"}, "status": {"parents": parents}}
    said = "Gateway public does not take HTTPRoute m (NoMatchingParent: no such listener)."
    assert refusals("HTTPRoute", raw) == [said, said]
    assert refusals("HTTPRoute", {}) == []


def test_ready_addresses_are_counted_by_pod() -> None:
    slices = [
        piece("a", endpoint("p1", ready=True), endpoint("p2", ready=False), endpoint("p3", ready=True,
                                                                                     terminating=True)),
        piece("a", endpoint("p1", ready=True), endpoint("p4")),
        piece("b"),
    ]
    assert ready_addresses(slices) == {"a": 2, "b": 0}

"""Host names of routes: what the Gateway API takes, and which of them overlap."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from enginewright.core.spec.gateway import GatewaySpec, intersect

GOOD: dict[str, Any] = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}


@pytest.mark.parametrize(("one", "other", "meet"), [
    ("a.example", "a.example", True),
    ("a.example", "b.example", False),
    ("*.example", "a.example", True),
    ("*.example", "a.b.example", True),
    ("*.example", "example", False),
    ("*.example", "a.myexample", False),
    ("*.b.example", "*.example", True),
    ("*.a.example", "*.b.example", False),
])
def test_which_host_names_overlap(one: str, other: str, meet: bool) -> None:
    assert intersect(one, other) is intersect(other, one) is meet


def test_the_pair_that_overlaps_is_named() -> None:
    spec = GatewaySpec.model_validate({**GOOD, "hostnames": ["a.example", "*.b.example"],
                                       "grpcHostnames": ["grpc.example", "x.b.example"]})
    assert spec.overlap() == ("*.b.example", "x.b.example")
    assert GatewaySpec.model_validate({**GOOD, "grpcHostnames": ["grpc.example"]}).overlap() is None


@pytest.mark.parametrize("change", [
    {"hostnames": []}, {"hostnames": [f"h{n}.example" for n in range(17)]}, {"hostnames": ["A.example"]},
    {"hostnames": ["a.example:8080"]}, {"hostnames": ["*"]}, {"hostnames": ["a.*.example"]}, {"hostnames": [""]},
    {"parentRefs": []}, {"parentRefs": [{"name": f"g{n}"} for n in range(9)]}, {"parentRefs": [{"name": "Public"}]},
    {"parentRefs": [{"name": "a", "namespace": "x.y"}]}, {"parentRefs": [{"name": "a", "port": 80}]},
    {"grpcHostnames": ["-a.example"]},
])
def test_what_the_gateway_api_would_refuse_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GatewaySpec.model_validate({**GOOD, **change})

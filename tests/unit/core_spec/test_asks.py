"""What a pod asks of its node, as the scheduler counts it."""

from __future__ import annotations

from typing import Any

import pytest

from enginewright.core.asks import in_quantities, requests_of


def container(requests: dict[str, str], *, limits: dict[str, str] | None = None, **more: str) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits or {}}, **more}


def asks(**spec: Any) -> dict[str, str]:
    return in_quantities(requests_of({"spec": spec}))


def test_containers_hold_theirs_at_once() -> None:
    assert asks(containers=[container({"cpu": "1", "memory": "2Gi"}), container({"cpu": "250m", "memory": "64Mi"})]
                ) == {"cpu": "1250m", "memory": "2112Mi"}


def test_an_init_container_counts_where_it_asks_for_more() -> None:
    server = container({"cpu": "1", "memory": "1Gi"})
    assert asks(initContainers=[container({"cpu": "3", "memory": "64Mi"})], containers=[server]
                ) == {"cpu": "3", "memory": "1Gi"}


def test_a_sidecar_stays_beside_all_that_start_after_it() -> None:
    sidecar, later = container({"cpu": "1"}, restartPolicy="Always"), container({"cpu": "2"})
    assert asks(initContainers=[later, sidecar], containers=[container({"cpu": "1"})]) == {"cpu": "2"}
    assert asks(initContainers=[sidecar, later], containers=[container({"cpu": "1"})]) == {"cpu": "3"}


def test_a_limit_alone_is_the_request_too() -> None:
    assert asks(containers=[container({"cpu": "1"}, limits={"cpu": "4", "nvidia.com/gpu": "2"})]
                ) == {"cpu": "1", "nvidia.com/gpu": "2"}


def test_what_the_runtime_class_takes_counts() -> None:
    assert asks(containers=[container({"cpu": "1"})], overhead={"cpu": "50m"}) == {"cpu": "1050m"}


@pytest.mark.parametrize("containers", [[], [{}], [container({"cpu": "?"})]])
def test_nothing_is_asked(containers: list[dict[str, Any]]) -> None:
    assert asks(containers=containers) == {}

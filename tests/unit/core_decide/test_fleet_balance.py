"""What equal shares cost a fleet of unequal replicas, and that it is said where a Gateway is worth it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.fleet.shares import balance
from enginewright.core.fleet.standing import Member
from enginewright.core.observed import MemberView
from enginewright.core.spec import PlacementClassSpec
from support.fleet_cluster import FLEET, unequal

GPU, CPU = FLEET["placement"]["classes"]
GATEWAY = {"parentRefs": [{"name": "public"}], "hostnames": ["a.example"]}
VIEW = MemberView(name="", uid="", class_name="", generation=1, hash="", annotations={}, spec={}, status={})


def member(name: str, ready: int, throughput: float | None) -> Member:
    engine = {"fingerprint": "f", "backend": "b", "precision": "p", "throughput": throughput}
    status: Mapping[str, Any] = {"readyReplicas": ready, **({"engine": engine} if throughput is not None else {})}
    return Member(entry=PlacementClassSpec(name=name), name=name, wanted={}, view=replace(VIEW, status=status),
                  before=None)


@pytest.mark.parametrize(("classes", "carried", "whole"), [
    ([("gpu", 1, 900.0), ("cpu", 1, 100.0)], 200, 1000),
    ([("gpu", 1, 900.0), ("cpu", 9, 100.0)], 1000, 1800),
    ([("gpu", 9, 900.0), ("cpu", 1, 100.0)], 1000, 8200),
    ([("gpu", 2, 900.0), ("cpu", 2, 800.0)], 3200, 3400),
])
def test_the_least_capable_replica_is_what_counts(
    classes: list[tuple[str, int, float]], carried: float, whole: float
) -> None:
    found = balance([member(*one) for one in classes])
    assert found is not None
    assert (found.name, found.carried, found.whole) == ("cpu", carried, whole)
    assert bool(found.message) == (carried < 0.8 * whole)


@pytest.mark.parametrize("classes", [
    [], [("gpu", 3, 900.0)], [("gpu", 1, 900.0), ("cpu", 0, 100.0)], [("gpu", 1, 900.0), ("cpu", 1, None)],
    [("gpu", 1, 900.0), ("cpu", 1, 0.0)],
])
def test_nothing_is_said_of_what_is_not_known(classes: list[tuple[str, int, float | None]]) -> None:
    assert balance([member(*one) for one in classes]) is None


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0.1, 1e6)), min_size=2, max_size=8))
def test_no_more_is_carried_than_there_is(classes: list[tuple[int, float]]) -> None:
    found = balance([member(f"c{index}", *one) for index, one in enumerate(classes)])
    assert found is not None
    assert 0 < found.carried <= found.whole * (1 + 1e-9)
    # At that load every replica gets as much as the least capable one can do.
    assert found.share * found.carried == pytest.approx(min(each for _, each in classes))
    assert found.share >= found.capacity * (1 - 1e-9)


@pytest.mark.parametrize("gateway", [False, True])
def test_ready_says_it_without_a_gateway(gateway: bool) -> None:
    fleet = unequal(**({"gateway": GATEWAY} if gateway else {}))
    said = ("Behind the Service a replica of cpu gets 50 % of the requests and has 10 % of the capacity: it is at its "
            "end when all together get 200 of the 1000 inferences/s that they can do. Through a Gateway "
            "(spec.rollout.gateway) classes are sent requests by capacity.")
    assert (said in fleet.condition("Ready")["message"]) != gateway

"""Spot nodes: which pods go there, and what does not change for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.config import SPOT_LABELS, OperatorConfig
from enginewright.core.manifests.common import node_placement
from enginewright.core.placement import Placement
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.fleet import as_raw, classes_of, member_spec
from enginewright.core.spot import on_spot
from support.children import children_of

H100 = "NVIDIA-H100-80GB-HBM3"
ONE = {"karpenter.sh/capacity-type": "spot"}
SPEC: dict[str, Any] = {"source": {"uri": "pvc://models/m"}, "placement": {"gpu": {"product": H100}}}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pods(spot: dict[str, str] | None, config: OperatorConfig | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the build and of a replica."""
    placement = {**SPEC["placement"], **({"spot": spot} if spot is not None else {})}
    children = children_of("m", {**SPEC, "placement": placement}, config or OperatorConfig()).all()
    build, serving = children["build_job"], children["deployment"]
    return build["spec"]["template"]["spec"], serving["spec"]["template"]["spec"]


def says(pod: dict[str, Any]) -> tuple[set[str], set[str], set[str]]:
    """Keys of spot labels that are required, preferred and tolerated."""
    node = pod.get("affinity", {}).get("nodeAffinity", {})
    required = {one["key"] for term in node.get(REQUIRED, {}).get("nodeSelectorTerms", ())
                for one in term["matchExpressions"]}
    preferred = {one["key"] for term in node.get(PREFERRED, ()) for one in term["preference"]["matchExpressions"]}
    tolerated = {one.get("key", "") for one in pod.get("tolerations", ())}
    known = set(SPOT_LABELS)
    return required & known, preferred & known, tolerated & known


NONE: tuple[set[str], set[str], set[str]] = (set(), set(), set())
ALL = set(SPOT_LABELS)


@pytest.mark.parametrize(("spot", "build", "serving"), [
    (None, NONE, NONE),
    ({}, NONE, NONE),
    ({"builds": "Prefer"}, (set(), ALL, ALL), NONE),
    ({"builds": "Require"}, (ALL, set(), ALL), NONE),
    ({"replicas": "Prefer"}, NONE, (set(), ALL, ALL)),
    ({"builds": "Prefer", "replicas": "Require"}, (set(), ALL, ALL), (ALL, set(), ALL)),
])
def test_builds_and_replicas_each_by_their_own_wish(
    spot: dict[str, str] | None, build: object, serving: object
) -> None:
    first, second = pods(spot)
    assert (says(first), says(second)) == (build, serving)


def test_builds_alone_change_neither_engine_nor_revision() -> None:
    def names(spot: dict[str, str]) -> tuple[str, str]:
        raw = {**SPEC, "placement": {**SPEC["placement"], "spot": spot}}
        children = children_of("m", raw, OperatorConfig())
        return children.record.fingerprint, children.revision

    plain = names({})
    assert names({"builds": "Require"}) == plain
    assert names({"replicas": "Prefer"})[0] == plain[0]
    assert names({"replicas": "Prefer"})[1] != plain[1], "other pods are another revision"


def test_where_no_label_tells_a_spot_node_nothing_is_said() -> None:
    config = OperatorConfig(spot_labels={})
    assert pods({"builds": "Require", "replicas": "Prefer"}, config) == pods(None, config)


labels = st.dictionaries(st.sampled_from("abcde"), st.sampled_from("xy"), min_size=1)
terms = st.lists(st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("12")), min_size=1, max_size=2), max_size=3)


@given(labels, terms, st.dictionaries(st.sampled_from("abcdepqr"), st.sampled_from("xy12")))
def test_a_node_is_taken_if_it_was_before_and_is_spot(
    spot: dict[str, str], before: list[list[tuple[str, str]]], node: dict[str, str]
) -> None:
    affinity = {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in term]}
        for term in before]} if before else None
    placement = Placement(node_affinity=affinity)

    def takes(one: Placement) -> bool:
        wanted = node_placement(one).get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
        return wanted is None or any(
            all(node.get(part["key"]) in part["values"] for part in term["matchExpressions"])
            for term in wanted["nodeSelectorTerms"])

    is_spot = any(node.get(key) == value for key, value in spot.items())
    assert takes(on_spot(placement, "Require", spot)) == (takes(placement) and is_spot)
    assert takes(on_spot(placement, "Prefer", spot)) == takes(placement)
    assert on_spot(placement, None, spot) is placement


def test_a_share_of_a_fleets_replicas_is_a_class() -> None:
    gpu = {"gpu": {"product": H100}}
    spec = parse_spec({"source": {"uri": "pvc://models/m"}, "placement": {
        "spot": {"builds": "Prefer"},
        "classes": [{"name": "steady", **gpu, "minReplicas": 2},
                    {"name": "spot", **gpu, "minReplicas": 6, "spot": {"builds": "Prefer", "replicas": "Require"}}]}})
    assert isinstance(spec, Spec)
    steady, spot = (as_raw(member_spec(spec, entry)) for entry in classes_of(spec))
    assert (steady["placement"]["spot"], steady["replicas"]) == ({"builds": "Prefer"}, 2)
    assert (spot["placement"]["spot"], spot["replicas"]) == ({"builds": "Prefer", "replicas": "Require"}, 6)

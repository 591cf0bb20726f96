"""Objects as they are remembered: whole again when they are unpacked, and small where they are alike."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from enginewright.clients.resources import CLAIM, DEPLOYMENT, POD, SERVICE, Resource
from enginewright.observe.packing import PATTERNS, Packer

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
                      lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
                      max_leaves=20)
OBJECTS = st.fixed_dictionaries({"metadata": st.dictionaries(st.text(), VALUES, max_size=4), "spec": VALUES})


def deployment(number: int) -> dict[str, Any]:
    """As the apiserver has it, of a model of its own."""
    found = copy.deepcopy(yaml.safe_load((GOLDEN / "manifests" / "dra" / "deployment.yaml").read_text()))
    metadata = {"name": f"model-{number}", "uid": f"{random.Random(number).getrandbits(128):032x}",
                "resourceVersion": str(1000 + number), "managedFields": []}
    return {**found, "metadata": {**found["metadata"], **metadata},
            "status": {"replicas": number % 7, "observedGeneration": number}}


@given(st.lists(OBJECTS, max_size=6))
def test_each_is_whole_again_whichever_it_was_packed_by(objects: list[dict[str, Any]]) -> None:
    packer = Packer()
    bodies = [packer.packed(POD, one) for one in objects]
    whole = [{**one, "metadata": {key: value for key, value in one["metadata"].items() if key != "managedFields"}}
             for one in objects]
    assert [packer.unpacked(POD, body) for body in bodies] == whole


def test_what_is_unpacked_is_a_copy() -> None:
    packer = Packer()
    body = packer.packed(DEPLOYMENT, deployment(0))
    packer.unpacked(DEPLOYMENT, body)["metadata"]["name"] = "changed"
    assert packer.unpacked(DEPLOYMENT, body) == deployment(0)


def test_one_that_is_like_others_takes_a_fifth_of_a_kilobyte() -> None:
    packer = Packer()
    sizes = [len(packer.packed(DEPLOYMENT, deployment(number))) for number in range(50)]
    assert max(sizes) < 250
    assert packer.unpacked(DEPLOYMENT, packer.packed(DEPLOYMENT, deployment(77))) == deployment(77)


@pytest.mark.parametrize("many", [3, 10 * PATTERNS])
def test_odd_ones_are_whole_and_take_memory_for_a_few_patterns_alone(many: int) -> None:
    packer = Packer()

    def odd(number: int) -> dict[str, Any]:
        return {"metadata": {"name": f"odd-{number}"}, "spec": random.Random(number).randbytes(400).hex()}

    bodies = [packer.packed(SERVICE, odd(number)) for number in range(many)]
    assert [packer.unpacked(SERVICE, body) for body in bodies] == [odd(number) for number in range(many)]
    assert {body[0] for body in bodies} == set(range(min(many, PATTERNS)))


@pytest.mark.parametrize(("resource", "kept"), [
    (CLAIM, {"metadata": {"name": "models", "namespace": "team", "uid": "u", "resourceVersion": "7"},
             "status": {"phase": "Bound"}}),
    (SERVICE, {"metadata": {"name": "models", "namespace": "team", "uid": "u", "resourceVersion": "7",
                            "labels": {"a": "b"}}, "status": {"phase": "Bound", "capacity": {}}, "spec": {"x": 1}}),
])
def test_of_claims_of_others_little_is_kept(resource: Resource, kept: dict[str, Any]) -> None:
    packer = Packer()
    raw = {"metadata": {"name": "models", "namespace": "team", "uid": "u", "resourceVersion": "7",
                        "labels": {"a": "b"}, "managedFields": [{"manager": "x"}]},
           "spec": {"x": 1}, "status": {"phase": "Bound", "capacity": {}}}
    assert packer.unpacked(resource, packer.packed(resource, raw)) == kept

"""Fields under the names that they had before: what is read of them, and what the apiserver keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.spec import Spec
from enginewright.core.spec.parse import parse_spec
from enginewright.core.spec.renames import RENAMES, current, old_names
from support.schemas import object_schema

H100, H200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"
POLICY = {"type": "Pods", "value": 1, "periodSeconds": 60}
SOURCE = {"source": {"uri": "pvc://models/minilm"}}

RENAMED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"placement": {"gpu": {"products": [H100, H200], "count": 2}}},
     {"placement": {"gpu": {"count": 2, "product": H100}}}),
    ({"placement": {"gpu": {"products": []}}}, {"placement": {"gpu": {}}}),
    ({"placement": {"classes": [{"name": "a", "gpu": {"products": [H200]}}, {"name": "b", "accelerator": "cpu"}]}},
     {"placement": {"classes": [{"name": "a", "gpu": {"product": H200}}, {"name": "b", "accelerator": "cpu"}]}}),
    ({"accuracy": {"tolerance": 0.02, "maxLoss": 0.01}}, {"accuracy": {"maxLoss": 0.02}}),
    ({"rollout": {"analysisSeconds": 10}}, {"rollout": {"analysis": {"seconds": 10}}}),
    # As the apiserver has it, with the new field's default beside the old field.
    ({"rollout": {"analysisSeconds": 10, "analysis": {"seconds": 60, "minRequests": 20}}},
     {"rollout": {"analysis": {"seconds": 10, "minRequests": 20}}}),
    ({"rollout": {"analysisSeconds": 10, "analysis": {"seconds": 20}}}, {"rollout": {"analysis": {"seconds": 20}}}),
    ({"autoscaling": {"maxReplicas": 2, "scaleUpPolicies": [POLICY], "scaleDownPolicies": [POLICY],
                      "scaleUpStabilizationSeconds": 5, "scaleDownStabilizationSeconds": 7}},
     {"autoscaling": {"maxReplicas": 2, "behavior": {
         "scaleUp": {"policies": [POLICY], "stabilizationWindowSeconds": 5},
         "scaleDown": {"policies": [POLICY], "stabilizationWindowSeconds": 7}}}}),
    ({"batching": {"mode": "fixed", "maxQueueDelayMicroseconds": 0}, "instances": {"mode": "fixed", "count": 2},
      "serving": {"runtime": "triton", "image": "server:1"}},
     {"batching": {"maxQueueDelayMicroseconds": 0}, "instances": {"count": 2}, "serving": {"image": "server:1"}}),
    ({"batching": {"mode": "auto"}, "instances": {"mode": "auto"}}, {"batching": {}, "instances": {}}),
    ({"batching": {"adaptive": True}}, {"batching": {}}),
    ({"batching": {"adaptive": True, "maxQueueDelayMicroseconds": 5}}, {"batching": {"maxQueueDelayMicroseconds": 5}}),
    ({"source": {"uri": "s3://models/a", "credentialsFrom": {"name": "models"}},
      "store": {"uri": "s3://engines/a", "credentialsFrom": {"name": "engines"}}},
     {"source": {"uri": "s3://models/a", "secretRef": {"name": "models"}},
      "store": {"uri": "s3://engines/a", "secretRef": {"name": "engines"}}}),
    *(({"source": {"uri": "pvc://models/a", "signature": {"keyFrom": {**kind, "name": "keys", "key": "a.pub"}}}},
       {"source": {"uri": "pvc://models/a", "signature": {name: {"name": "keys", "key": "a.pub"}}}})
      for kind, name in (({}, "configMapKeyRef"), ({"kind": "ConfigMap"}, "configMapKeyRef"),
                         ({"kind": "Secret"}, "secretKeyRef"))),
]


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_old_names_mean_what_they_meant(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert current(old) == new
    assert current(new) == new
    assert old_names(old)
    assert not old_names(new)
    read = parse_spec({**SOURCE, **old})
    assert isinstance(read, Spec), read
    assert read == parse_spec({**SOURCE, **new})


def test_every_rename_is_in_the_table() -> None:
    assert {one.old_path for old, _ in RENAMED for one in old_names(old)} == {one.old_path for one in RENAMES}


@pytest.mark.parametrize("rename", RENAMES, ids=lambda one: str(one.old_path))
def test_an_old_name_is_in_the_schema_and_in_no_page(rename: Any) -> None:
    """Else the apiserver would drop it from objects that were stored before."""
    def names(old: bool) -> set[str]:
        node = object_schema(old_names=old)["properties"]["spec"]
        for step in rename.parent.split("."):
            node = node["properties"][step.removesuffix("[]")]
            node = node["items"] if step.endswith("[]") else node
        return set(node["properties"])

    assert rename.old in names(True)
    assert rename.old not in names(False)


JUNK = st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2) | (
    st.dictionaries(st.sampled_from([part.removesuffix("[]") for one in RENAMES for part in (
        *one.parent.split("."), one.old, *one.new.split("."))]), inner, max_size=3)), max_leaves=12)


@given(raw=st.dictionaries(st.sampled_from([one.parent.split(".")[0] for one in RENAMES]), JUNK, max_size=3))
def test_rubbish_is_left_to_the_checks(raw: dict[str, Any]) -> None:
    once = current(raw)
    assert current(once) == once
    parse_spec(raw)

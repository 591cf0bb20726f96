"""The CRD in a real apiserver: what it refuses and with which words, what it fills in, and what users see of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from enginewright.core import labels
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.crd import NAME
from support.broken_specs import BROKEN, SOURCE, Broken
from support.kubectl import Kubectl
from support.specs import Raw, object_names, valid_specs

JSON = dict[str, Any]


@pytest.fixture
def kubectl(control_plane: Path) -> Kubectl:
    return Kubectl(control_plane)


def model(name: str = "m", **spec: Any) -> JSON:
    return {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_broken_rules_between_fields(kubectl: Kubectl, broken: Broken) -> None:
    said = kubectl.admits(model(**broken.spec))
    assert (broken.cel in said) if broken.cel else (said == ""), said


@pytest.mark.parametrize(("spec", "says"), [
    ({"source": {"uri": "oci://registry/m"}}, "write pvc://CLAIM/path, hf://ORG/NAME@REVISION, s3://BUCKET/path"),
    ({"source": {"uri": "oci://registry.example/m"}}, "oci://REGISTRY/REPOSITORY:TAG"),
    ({"source": {"uri": "pvc://m/a", "digest": "sha256:12"}}, "write sha256: and 64 lower-case hexadecimal digits"),
    ({**SOURCE, "engine": {"precison": "fp16"}}, 'unknown field "spec.engine.precison"'),
    ({**SOURCE, "engine": {"precision": "fp64"}}, 'supported values: "auto", "fp32"'),
    ({**SOURCE, "engine": {"maxBatchSize": -1}}, "spec.engine.maxBatchSize"),
    ({**SOURCE, "engine": {"queueName": "A b"}}, "write the name of a Kueue LocalQueue"),
    ({**SOURCE, "accuracy": {"maxLoss": 0}}, "should be greater than 0"),
    ({**SOURCE, "autoscaling": {}}, "spec.autoscaling.maxReplicas: Required value"),
    ({**SOURCE, "autoscaling": {"maxReplicas": 2, "costCeilingPerHour": 0}}, "should be greater than 0"),
    ({**SOURCE, "autoscaling": {"maxReplicas": 2, "tolerance": 1}}, "should be less than 1"),
    ({**SOURCE, "autoscaling": {
        "maxReplicas": 2, "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1}]}}}},
     "spec.autoscaling.behavior.scaleUp.policies[0].periodSeconds: Required value"),
    ({**SOURCE, "autoscaling": {"maxReplicas": 2, "schedules": [{"name": "a", "start": "8:00", "end": "0 9 * * *"}]}},
     "write minute, hour, day of month, month and day of week"),
    ({**SOURCE, "placement": {"mig": {"profile": "tiny"}}}, "write auto or a profile such as 1g.10gb"),
    ({**SOURCE, "placement": {"gpu": {"product": "H100 80"}}}, "NVIDIA-H100-80GB-HBM3"),
    ({**SOURCE, "serving": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}, "unknown field"),
    ({**SOURCE, "serving": {"resources": {"limits": {"memory": "2 GB"}}}}, "spec.serving.resources.limits.memory"),
    ({**SOURCE, "store": {"uri": "s3://Bucket"}}, "write pvc://CLAIM or pvc://CLAIM/folder"),
    ({}, "spec.source: Required value"),
])
def test_one_wrong_field(kubectl: Kubectl, spec: JSON, says: str) -> None:
    assert says in kubectl.admits(model(**spec))


@pytest.mark.parametrize(("name", "says"), [
    ("a" * 41, "may not be more than 40 bytes"), ("1abc", "metadata.name must start with a letter"),
    ("a.b", "metadata.name must start with a letter"),
])
def test_names_that_children_cannot_be_made_from(kubectl: Kubectl, name: str, says: str) -> None:
    assert says in kubectl.admits(model(name, **SOURCE))


@given(st.lists(st.tuples(object_names, valid_specs()), min_size=12, max_size=12, unique_by=lambda pair: pair[0]))
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_good_specs_are_taken_and_filled_up_as_the_operator_does(
        control_plane: Path, pairs: list[tuple[str, Raw]]) -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": [model(name, **raw) for name, raw in pairs]}
    apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", "-o", "json")
    done = Kubectl(control_plane).run(*apply, stdin=body)
    assert done.returncode == 0, done.stderr
    for (_, raw), taken in zip(pairs, json.loads(done.stdout)["items"], strict=True):
        wanted, found = parse_spec(raw), parse_spec(taken["spec"])
        assert isinstance(wanted, Spec)
        assert found == wanted


def test_every_field_of_a_block_is_explained_with_its_default(kubectl: Kubectl) -> None:
    text = " ".join(kubectl("explain", "om.spec.engine").split())
    for name, field in type(parse_spec(SOURCE).engine).model_fields.items():  # type: ignore[union-attr]
        assert f"{field.alias or name} <" in text
    assert "Defaults to 32." in text
    assert "kubectl scale" in kubectl("explain", "om.spec.replicas")


def test_the_task_of_an_object_stays(kubectl: Kubectl) -> None:
    prompts = {"evaluation": {"uri": "pvc://models/prompts.jsonl"}}
    kubectl("create", "-f", "-", stdin=model("talker", **SOURCE, task="generate", accuracy=prompts))
    refused = kubectl.run("patch", "om", "talker", "--type=merge", "-p", '{"spec": {"task": "infer"}}')
    assert "create another object" in refused.stderr
    kubectl("create", "-f", "-", stdin=model("thinker", **SOURCE, accuracy=prompts))
    assert kubectl("get", "om", "thinker", "-o", "jsonpath={.spec.task}") == "infer"
    refused = kubectl.run("patch", "om", "thinker", "--type=merge", "-p", '{"spec": {"task": "generate"}}')
    assert "create another object" in refused.stderr
    kubectl("patch", "om", "talker", "--type=merge", "-p", '{"spec": {"engine": {"contextTokens": 2048}}}')


def test_columns_short_name_and_categories(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=model("shown", **SOURCE))
    summary = {"engine": "onnxruntime", "precision": "int8", "replicas": "2/2", "queue": "3.5", "p99": "12.5ms",
               "liveP99": "14.1ms", "ships": "onnxruntime-int8", "accelerator": "CPU", "speedup": "2.2x",
               "cost": "1.25", "reason": "Serving"}
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "observedGeneration": 1,
             "lastTransitionTime": "2026-11-21T12:00:00Z"}
    patch = json.dumps({"status": {"conditions": [ready], "summary": summary}})
    kubectl("patch", "om", "shown", "--subresource=status", "--type=merge", "-p", patch)
    header, row = kubectl("get", "om", "shown", "-o", "wide").splitlines()
    assert header.split() == ["NAME", "READY", "ENGINE", "PRECISION", "REPLICAS", "QUEUE", "BUILD-P99",
                              "LIVE-P99", "AGE", "SHIPS", "ACCELERATOR", "SPEEDUP", "COST", "REASON"]
    cells = row.split()
    assert cells[:7] == ["shown", "True", "onnxruntime", "int8", "2/2", "3.5", "12.5ms"]
    assert cells[7] == "14.1ms"
    assert cells[9:] == ["onnxruntime-int8", "CPU", "2.2x", "1.25", "Serving"]
    for category in ("all", "enginewright"):
        assert f"optimisedmodel.{labels.GROUP}/shown" in kubectl("get", category, "-o", "name")
    kubectl("wait", "om/shown", "--for=condition=Ready", "--timeout=120s")


def test_scale(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=model("scaled", **SOURCE))
    generation = kubectl("get", "om", "scaled", "-o", "jsonpath={.metadata.generation}")
    kubectl("scale", "om/scaled", "--replicas=3")
    assert kubectl("get", "om", "scaled", "-o", "jsonpath={.spec.replicas}") == "3"
    assert kubectl("get", "om", "scaled", "-o", "jsonpath={.metadata.generation}") > generation
    patch = json.dumps({"status": {"replicas": 2, "selector": "a=b"}})
    kubectl("patch", "om", "scaled", "--subresource=status", "--type=merge", "-p", patch)
    scale = json.loads(kubectl("get", "om", "scaled", "--subresource=scale", "-o", "json"))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"], scale["status"]["selector"]) == (3, 2, "a=b")


def test_scaling_by_hand_is_refused_while_queue_depth_decides(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=model("auto", **SOURCE, autoscaling={"maxReplicas": 3}))
    done = kubectl.run("scale", "om/auto", "--replicas=3")
    assert done.returncode != 0
    assert "remove spec.replicas to let the load decide" in done.stderr


def test_a_status_write_changes_no_spec_and_a_spec_write_no_status(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin={**model("apart", **SOURCE), "status": {"replicas": 7}})
    assert kubectl("get", "om", "apart", "-o", "jsonpath={.status.replicas}") == ""
    kubectl("patch", "om", "apart", "--subresource=status", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    assert kubectl("get", "om", "apart", "-o", "jsonpath={.spec.suspend}") == ""


def test_the_apiserver_has_nothing_against_the_schema(kubectl: Kubectl) -> None:
    found = json.loads(kubectl("get", "crd", NAME, "-o", "json"))
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert conditions.get("Established") == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"

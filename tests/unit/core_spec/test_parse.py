"""What a user can write wrong in one field, and what is said about it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright.core.problems import Problem, summarise
from enginewright.core.spec import Spec, parse_spec, validate
from support.specs import valid_specs

SOURCE = {"source": {"uri": "pvc://models/a"}}


def problems(raw: Any) -> tuple[Problem, ...]:
    parsed = parse_spec(raw)
    assert not isinstance(parsed, Spec), "nothing was refused"
    return parsed


def only(raw: Any) -> Problem:
    (problem,) = problems(raw)
    return problem


def test_the_smallest_spec_has_all_defaults() -> None:
    spec = parse_spec(SOURCE)
    assert isinstance(spec, Spec)
    assert (spec.engine.backend, spec.engine.precision, spec.engine.max_batch_size) == ("auto", "auto", 32)
    assert (spec.accuracy.metric, spec.accuracy.max_loss) == ("cosine", 0.01)
    assert (spec.rollout.strategy, spec.rollout.max_surge, spec.rollout.analysis.seconds) == ("Canary", 1, 60)
    assert spec.store.uri == "pvc://enginewright-store"
    assert spec.replicas is None
    assert spec.autoscaling is None


@pytest.mark.parametrize("uri", [
    "pvc://models/all-minilm-l6-v2", "pvc://models", "https://host.example/path/m.onnx?version=2",
    "https://host.example:8443/m.onnx", "file:///models/tiny", "s3://bucket/key", "s3://my.bucket-1",
    "gs://my_bucket/a",
    "hf://org/name", "hf://sentence-transformers/all-MiniLM-L6-v2@main", "hf://org/Name.v1_2@refs%2Fpr%2F1/onnx/m.onnx",
    "oci://quay.io/team/net:1.0", "oci://registry:5000/net:v1_A/models/net", "oci://localhost/net:latest",
    f"oci://registry.example:5000/a/b__c.d-e@sha256:{'0' * 64}", f"oci://[2001:db8::1]:5000/net:1@sha256:{'0' * 64}/a",
    f"hf://org/name@{'0' * 40}", "https://[2001:db8::1]:8443/m.onnx", "https://host.example",
])
def test_supported_sources(uri: str) -> None:
    assert isinstance(parse_spec({"source": {"uri": uri}}), Spec)


@pytest.mark.parametrize("uri", [
    "", "models/tiny", "s3://", "s3:///key", "s3://Bucket/key", "s3://b/key", "s3://bucket/a b", "gs://bucket/a?b",
    "hf://name", "hf://org/name@", "hf://org/name@a@b", "hf:///org/name", "http://host/m.onnx",
    "oci://registry/name", "oci://registry/name:1", "oci://registry.example/name", "oci://registry.example:5000",
    "oci://registry.example/Name:1", "oci://registry.example/name:", "oci://registry.example/name@sha256:abc",
    "oci://user@registry.example/name:1", "oci://registry.example/name:1?a", "oci://registry.example/a//b:1",
    f"oci://registry.example/name:{'a' * 129}", "oci:///name:1", "oci://registry.example:/name:1",
    "https://user@host/m.onnx", "pvc://", "pvc:///path", "pvc://Models/a", "pvc://models/a b", "file://relative",
    "https://", "https://host:abc/m.onnx", "https://[::1/m.onnx", "pvc://a/" + "x" * 1100,
])
def test_other_sources_are_refused_with_what_to_write(uri: str) -> None:
    problem = only({"source": {"uri": uri}})
    assert problem.field == "spec.source.uri"
    assert "pvc://CLAIM/path" in problem.remedy


@pytest.mark.parametrize("uri", ["pvc://engines", "pvc://engines/team-a", "s3://engines", "s3://my.engines-1/team/a",
                                 "gs://engines_eu/a"])
def test_supported_stores(uri: str) -> None:
    spec = parse_spec({**SOURCE, "store": {"uri": uri}})
    assert isinstance(spec, Spec)
    assert validate(spec) == ()


@pytest.mark.parametrize("metric", ["cosine", "relative-error", "onnx", "python:word-error_rate.v2"])
def test_metrics_of_ours_and_of_the_users(metric: str) -> None:
    spec = parse_spec({**SOURCE, "accuracy": {"metric": metric}})
    assert isinstance(spec, Spec)
    assert spec.accuracy.metric == metric


@pytest.mark.parametrize(("raw", "field", "value", "remedy"), [
    ({}, "spec.source", "nothing", "add it"),
    ({**SOURCE, "engine": {"precison": "fp16"}}, "spec.engine.precison", '"fp16"', "did you mean precision?"),
    ({**SOURCE, "colour": "red"}, "spec.colour", '"red"', "known fields are accuracy, autoscaling"),
    ({**SOURCE, "engine": {"max_batch_size": 3}}, "spec.engine.max_batch_size", "3", "did you mean maxBatchSize?"),
    ({**SOURCE, "engine": {"precision": "fp64"}}, "spec.engine.precision", '"fp64"', "'bf16', 'int8', 'fp8'"),
    ({**SOURCE, "engine": {"maxBatchSize": -1}}, "spec.engine.maxBatchSize", "-1", "at least 1"),
    ({**SOURCE, "autoscaling": {"maxReplicas": 2, "tolerance": 1}}, "spec.autoscaling.tolerance", "1", "less than 1"),
    ({**SOURCE, "engine": {"maxBatchSize": "8"}}, "spec.engine.maxBatchSize", '"8"', "a whole number"),
    ({**SOURCE, "engine": {"maxBatchSize": True}}, "spec.engine.maxBatchSize", "true", "a whole number"),
    ({**SOURCE, "engine": {"buildBudgetSeconds": 10**9}}, "spec.engine.buildBudgetSeconds", "1000000000", "at most"),
    ({**SOURCE, "engine": {"queueName": "A b"}}, "spec.engine.queueName", '"A b"', "Kueue LocalQueue"),
    ({**SOURCE, "accuracy": {"maxLoss": -0.5}}, "spec.accuracy.maxLoss", "-0.5", "greater than 0"),
    ({**SOURCE, "accuracy": {"metric": "f1"}}, "spec.accuracy.metric", '"f1"', "'cosine', 'top1'"),
    ({**SOURCE, "accuracy": {"metric": "python:"}}, "spec.accuracy.metric", '"python:"', "python:NAME"),
    ({**SOURCE, "accuracy": {"metric": "python:os;x"}}, "spec.accuracy.metric", '"python:os;x"', "python:NAME"),
    ({**SOURCE, "objective": {"latency": {"milliseconds": 0}}}, "spec.objective.latency.milliseconds", "0", "than 0"),
    ({**SOURCE, "placement": {"gpu": {"product": "H100 80"}}}, "spec.placement.gpu.product", '"H100 80"',
     "NVIDIA-H100-80GB-HBM3"),
    ({**SOURCE, "placement": {"mig": {"profile": "huge"}}}, "spec.placement.mig.profile", '"huge"', "1g.10gb"),
    ({**SOURCE, "placement": {"nodeSelector": {"zone": 1}}}, "spec.placement.nodeSelector.zone", "1", "at most 63"),
    ({**SOURCE, "placement": {"nodeSelector": {"zone": "x" * 64}}}, "spec.placement.nodeSelector.zone",
     '"' + "x" * 64 + '"', "at most 63"),
    ({**SOURCE, "serving": {"resources": {"limits": {"memory": "2 GB"}}}}, "spec.serving.resources.limits.memory",
     '"2 GB"', "memory: 2Gi"),
    ({**SOURCE, "serving": {"resources": {"limits": {"memory": "1e1000"}}}}, "spec.serving.resources.limits.memory",
     '"1e1000"', "memory: 2Gi"),
    ({**SOURCE, "serving": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
     "spec.serving.resources.limits.nvidia.com/gpu", '"nvidia.com/gpu"', "chosen under spec.placement"),
    ({**SOURCE, "serving": {"podTemplate": {"spec": []}}}, "spec.serving.podTemplate.spec", "[]", "an object"),
    ({**SOURCE, "interface": {"inputs": [{"name": "x", "dtype": "int64", "shape": ["1..x"]}]}},
     "spec.interface.inputs[0].shape[0]", '"1..x"', "1..512"),
    ({**SOURCE, "interface": {"inputs": [{"name": "x", "dtype": "int64", "shape": [0]}]}},
     "spec.interface.inputs[0].shape[0]", "0", "1..512"),
    ({**SOURCE, "interface": {"inputs": [{"name": "x", "dtype": "int"}]}}, "spec.interface.inputs[0].dtype", '"int"',
     "'int32', 'int64'"),
    ({**SOURCE, "autoscaling": {}}, "spec.autoscaling.maxReplicas", "nothing", "add it"),
    ({**SOURCE, "suspend": "yes"}, "spec.suspend", '"yes"', "true or false"),
    ({**SOURCE, "placement": {"nodeSelector": {"the pool": "a"}}}, "spec.placement.nodeSelector.the pool",
     '"the pool"', "the key of a node's label"),
    ({**SOURCE, "placement": {"nodeSelector": {"pool": "a b"}}}, "spec.placement.nodeSelector.pool", '"a b"',
     "a letter or digit first and last"),
    ({"source": {"uri": "pvc://m/a", "secretRef": {"name": "My Secret"}}}, "spec.source.secretRef.name",
     '"My Secret"', "the name of a Kubernetes object"),
    ({**SOURCE, "accuracy": []}, "spec.accuracy", "[]", "an object"),
    ({**SOURCE, "store": {"uri": "s3://Bucket"}}, "spec.store.uri", '"s3://Bucket"', "pvc://CLAIM"),
    ({**SOURCE, "store": {"uri": "hf://org/name"}}, "spec.store.uri", '"hf://org/name"', "s3://BUCKET/prefix"),
    ({**SOURCE, "store": {"uri": "s3://bucket/a b"}}, "spec.store.uri", '"s3://bucket/a b"', "gs://BUCKET/prefix"),
    ({"source": {"uri": "pvc://m/a", "digest": "sha256:12"}}, "spec.source.digest", '"sha256:12"', "64 lower-case"),
])
def test_one_wrong_field(raw: Any, field: str, value: str, remedy: str) -> None:
    problem = only(raw)
    assert (problem.field, problem.value) == (field, value)
    assert remedy in problem.remedy
    assert problem.message


def test_a_field_of_null_is_one_that_was_left_out() -> None:
    """As the apiserver stores it; templates of charts write many."""
    spec = parse_spec({**SOURCE, "accuracy": None, "engine": {"precision": None}, "placement": {"tolerations": None}})
    assert spec == parse_spec(SOURCE)
    assert only({"source": None}).message == "is required"


def test_null_in_a_list_is_none_of_its_items() -> None:
    assert only({**SOURCE, "batching": {"preferredBatchSizes": [None]}}).field == "spec.batching.preferredBatchSizes[0]"


def test_all_problems_are_told_at_once() -> None:
    found = problems({"source": {"uri": "x"}, "engine": {"backend": "onnx", "maxBatchSize": 0}})
    assert {problem.field for problem in found} == {
        "spec.source.uri", "spec.engine.backend", "spec.engine.maxBatchSize"}


@pytest.mark.parametrize("raw", [None, [], 3, "x", {"source": {"uri": float("nan")}}, {"source": "\ud800"}, {1: 2},
                                 {"source": {"uri": b"bytes"}}])
def test_what_is_no_json_is_refused_as_a_whole(raw: Any) -> None:
    assert problems(raw)[0].field.startswith("spec")


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["source"] = endless
    assert only(endless).field == "spec"


def test_a_summary_names_the_first_and_counts_the_rest() -> None:
    found = problems({"source": {"uri": "x"}, "a": 1, "b": 2, "c": 3})
    text = summarise(found, limit=2)
    assert str(found[0]) in text
    assert text.endswith("and 2 more")
    assert "more" not in summarise(found[:2], limit=2)


def test_long_values_are_cut() -> None:
    assert len(only({"source": {"uri": "x" * 5000}}).value) <= 120


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4), max_leaves=15)
NAMES = sorted(field.alias or name for name, field in Spec.model_fields.items())


@pytest.mark.parametrize("path", [(), ("source",), ("autoscaling",)], ids=str)
def test_a_field_called_as_pydantic_calls_keys_is_told_as_unknown(path: tuple[str, ...]) -> None:
    raw: dict[str, Any] = {"source": {"type": "onnx", "uri": "pvc://models/m.onnx"}, "autoscaling": {}}
    block = raw
    for step in path:
        block = block[step]
    block["[key]"] = 1
    parsed = parse_spec(raw)
    assert not isinstance(parsed, Spec)
    assert ".".join(("spec", *path, "[key]")) in {problem.field for problem in parsed}


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), JSON, max_size=6))
@settings(max_examples=40, deadline=None)
def test_parsing_never_raises(raw: dict[str, Any]) -> None:
    parsed = parse_spec(raw)
    for problem in () if isinstance(parsed, Spec) else parsed:
        assert problem.field.startswith("spec")
        assert problem.message
        assert problem.remedy


@given(valid_specs(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_good_spec_with_one_thing_changed_never_raises(raw: dict[str, Any], data: st.DataObject) -> None:
    raw = copy.deepcopy(raw)  # parts of it are drawn from a list that other tests draw from
    block: Any = raw
    while isinstance(block, dict) and block and data.draw(st.booleans()):
        inner = [value for value in block.values() if isinstance(value, dict) and value]
        if not inner:
            break
        block = data.draw(st.sampled_from(inner))
    block[data.draw(st.sampled_from(sorted(block)) | st.text(max_size=8))] = data.draw(JSON)
    parse_spec(raw)


@given(valid_specs())
@settings(max_examples=40, deadline=None)
def test_a_good_spec_is_parsed_and_says_the_same_when_written_again(raw: dict[str, Any]) -> None:
    spec = parse_spec(raw)
    assert isinstance(spec, Spec), summarise(spec)
    assert parse_spec(spec.model_dump(mode="json", by_alias=True, exclude_none=True)) == spec

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from enginewright.core.config import Images, OperatorConfig
from enginewright.core.placement import Placement, place
from enginewright.core.problems import summarise
from enginewright.core.request import (
    build_request,
    needed_claims,
    resolve_request,
    source_claims,
    source_key,
    store_claim,
    store_folder,
)
from enginewright.core.spec import Spec, parse_spec
from enginewright_builder.by_hand_words import OPTIONS
from enginewright_builder.contract import (
    BucketRequest,
    BuildRequest,
    CheckpointRequest,
    ContractError,
    GenerateRequest,
    ResolvedSource,
    RuntimeRequest,
    SequenceBatching,
    StateTensor,
    TaskRequest,
)
from enginewright_builder.spec_interface import read_interface
from support.corpus.wholes import WHOLES
from support.schemas import object_schema
from support.specs import Raw, valid_specs

CONFIG = OperatorConfig(images=Images(builder="b:1", server="s:1"))
RUNTIME = RuntimeRequest(server_image="s:1", backends=("python", "onnxruntime"),
                         python_runtimes=("onnxruntime", "torch"))
RESOLVED = ResolvedSource(digest="sha256:" + "a" * 64, format="onnx", size_bytes=10,
                          evaluation_digest="sha256:" + "e" * 64, calibration_digest="sha256:" + "c" * 64)
FULL: Raw = {
    "source": {"uri": "pvc://models/bert"},
    "interface": {"inputs": [{"name": "ids", "dtype": "int64", "shape": ["batch", "1..512"]}]},
    "engine": {"precision": "int8", "maxBatchSize": 16, "calibration": {"uri": "pvc://data/c.npz", "samples": 64}},
    "accuracy": {"metric": "top1", "maxLoss": 0.02, "evaluation": {"uri": "https://host.example/e.npz"}},
    "objective": {"latency": {"percentile": 95, "milliseconds": 20}, "throughput": 500},
    "batching": {"preferredBatchSizes": [8, 4, 8], "maxQueueDelayMicroseconds": 100},
    "instances": {"count": 2},
    "placement": {"accelerator": "cpu"},
    "store": {"uri": "pvc://engines/team-a"},
}


INTERFACES = [*(whole["interface"] for whole in WHOLES if "interface" in whole), {
    "inputs": [{"name": "ids", "dtype": "int64"}], "padding": {},
    "postprocess": [{"output": "hidden", "function": "meanPooling"}]}]


def spec_of(raw: Raw) -> Spec:
    spec = parse_spec(raw)
    assert isinstance(spec, Spec), summarise(spec)
    return spec


def request_of(raw: Raw, resolved: ResolvedSource = RESOLVED, config: OperatorConfig = CONFIG) -> BuildRequest:
    spec = spec_of(raw)
    placement = place(spec, resolved.size_bytes, config)
    assert isinstance(placement, Placement)
    return build_request("bert", spec, resolved, placement, config, RUNTIME)


def test_everything_that_is_asked_reaches_the_builder() -> None:
    request = request_of(FULL)
    assert request.model_name == "bert"
    assert (request.source.uri, request.source.format) == ("pvc://models/bert", "onnx")
    assert request.source.digest == RESOLVED.digest
    assert request.interface is not None
    assert request.interface.inputs[0].shape == ("batch", "1..512")
    assert (request.engine.precision, request.engine.max_batch_size) == ("int8", 16)
    assert request.engine.calibration is not None
    assert (request.engine.calibration.samples, request.engine.calibration.digest) == (64, RESOLVED.calibration_digest)
    assert request.accuracy.evaluation is not None
    assert (request.accuracy.metric, request.accuracy.evaluation.digest) == ("top1", RESOLVED.evaluation_digest)
    assert (request.objective.latency_percentile, request.objective.latency_ms) == (95, 20)
    assert request.objective.throughput == 500
    assert (request.batching.preferred_batch_sizes, request.batching.max_queue_delay_us) == ((4, 8), 100)
    assert (request.instances.mode, request.instances.count) == ("fixed", 2)
    assert (request.runtime.server_image, request.runtime.backends) == ("s:1", ("python", "onnxruntime"))
    assert request.runtime.python_runtimes == ("onnxruntime", "torch")
    assert request.builder_image == "b:1"
    assert request.store_path == "/store/team-a"
    assert request.mounts == {"data": "/sources/data", "models": "/sources/models"}


def test_what_is_state_reaches_the_builder() -> None:
    kept = {"state": [{"inputName": "h", "outputName": "hn", "dataFile": "h.npy"}], "maxSequenceIdleMicroseconds": 5000,
            "maxCandidateSequences": 7}
    request = request_of({**FULL, "batching": {}, "interface": {"sequenceBatching": kept}})
    assert request.interface is not None
    assert request.interface.sequence_batching == SequenceBatching(
        state=(StateTensor(input_name="h", output_name="hn", data_file="h.npy"),), max_sequence_idle_us=5000,
        max_candidate_sequences=7)
    assert request.fingerprint() != request_of({**FULL, "batching": {}, "interface": {}}).fingerprint()


def test_what_is_constant_reaches_the_builder() -> None:
    """Also a zero, which is a value."""
    rates = {value: request_of({**FULL, "interface": {"inputs": [{"name": "sr", "dtype": "int64", "value": value}]}})
             for value in ((0,), (8000,))}
    assert [request.interface.inputs[0].value for request in rates.values() if request.interface] == [(0,), (8000,)]
    assert len({request.fingerprint() for request in rates.values()}) == 2


def test_claims_are_found_in_all_uris() -> None:
    spec = spec_of(FULL)
    assert source_claims(spec) == ("data", "models")
    assert (store_claim(spec), store_folder(spec)) == ("engines", "team-a")
    assert store_folder(spec_of({"source": {"uri": "file:///m"}})) == ""
    assert source_claims(spec_of({"source": {"uri": "file:///m"}})) == ()


def test_a_resolve_request_has_no_fingerprint_yet() -> None:
    request = resolve_request("bert", spec_of(FULL), CONFIG)
    assert request.device.accelerator == "cpu"
    assert request.source.format == "auto"
    with pytest.raises(ContractError, match="digest is not resolved"):
        request.fingerprint()


def test_digests_that_the_user_states_reach_the_resolve_step() -> None:
    stated = "sha256:" + "1" * 64
    request = resolve_request("bert", spec_of({"source": {"uri": "file:///m", "digest": stated}}), CONFIG)
    assert request.source.digest == stated


@pytest.mark.parametrize("change", [
    {"replicas": 5}, {"autoscaling": {"maxReplicas": 4}}, {"rollout": {"strategy": "Recreate"}}, {"suspend": True},
    {"store": {"uri": "pvc://elsewhere"}}, {"serving": {"resources": {"limits": {"memory": "4Gi"}}}},
    {"source": {"uri": "pvc://other-claim/same-content"}},
    {"placement": {"accelerator": "cpu", "nodeSelector": {"pool": "b"}, "tolerations": [{"operator": "Exists"}]}},
])
def test_what_changes_no_engine_changes_no_fingerprint(change: Raw) -> None:
    assert request_of({**FULL, **change}).fingerprint() == request_of(FULL).fingerprint()


@pytest.mark.parametrize("change", [
    {"engine": {"precision": "fp32"}}, {"accuracy": {"maxLoss": 0.5, "metric": "relative-error"}},
    {"objective": {"throughput": 1}},
    {"batching": {"maxQueueDelayMicroseconds": 0}}, {"serving": {"image": "other:1"}},
    {"placement": {"accelerator": "cpu", "nodeSelector": {"kubernetes.io/arch": "arm64"}}},
    {"placement": {"accelerator": "gpu"}, "engine": {}}, {"interface": None},
])
def test_what_changes_the_engine_or_its_proof_changes_the_fingerprint(change: Raw) -> None:
    raw = {key: value for key, value in {**FULL, **change}.items() if value is not None}
    assert request_of(raw).fingerprint() != request_of(FULL).fingerprint()


@given(valid_specs())
@settings(max_examples=40, deadline=None)
def test_the_builder_reads_what_was_written(raw: Raw) -> None:
    engine = spec_of(raw).engine
    checkpoints, drafts = (dict.fromkeys((one.name for one in listed), RESOLVED.digest)
                           for listed in (engine.checkpoints, engine.drafts))
    request = request_of(raw, replace(RESOLVED, checkpoint_digests=checkpoints, draft_digests=drafts))
    read = BuildRequest.from_json(request.to_json())
    assert read == request
    assert read.fingerprint() == request.fingerprint()


LANGUAGE: Raw = {
    "source": {"uri": "pvc://models/llama"}, "task": "generate",
    "accuracy": {"maxLoss": 0.05, "evaluation": {"uri": "pvc://data/prompts.jsonl"}},
    "placement": {"accelerator": "cpu"},
}
CAUSAL = ResolvedSource(digest="sha256:" + "a" * 64, format="causal", size_bytes=10,
                        evaluation_digest="sha256:" + "e" * 64)
WITH_VLLM = OperatorConfig(images=Images(builder="b:1", server="s:1", server_vllm="vllm:1"))
VLLM = RuntimeRequest(server_image="vllm:1", backends=(), python_runtimes=())


def of_language_model(change: Raw, checkpoints: Mapping[str, str] | None = None,
                      drafts: Mapping[str, str] | None = None) -> BuildRequest:
    """``checkpoints`` and ``drafts`` are digests."""
    spec = spec_of({**LANGUAGE, **change})
    found = replace(CAUSAL, checkpoint_digests=checkpoints or {}, draft_digests=drafts or {})
    placement = place(spec, CAUSAL.size_bytes, WITH_VLLM)
    assert isinstance(placement, Placement)
    return build_request("llama", spec, found, placement, WITH_VLLM, VLLM)


def test_what_is_asked_of_a_language_model_reaches_the_builder() -> None:
    request = of_language_model({"engine": {"contextTokens": 4096}, "objective": {
        "tokens": {"percentile": 95, "ttftMilliseconds": 500, "tpotMilliseconds": 40}}})
    assert request.generate == GenerateRequest(ttft_ms=500, tpot_ms=40, context_tokens=4096)
    assert (request.objective.latency_percentile, request.objective.latency_ms) == (95, 0)
    assert (request.accuracy.metric, request.accuracy.tolerance) == ("agreement", 0.05)
    assert (request.source.format, request.runtime) == ("causal", VLLM)
    plain = of_language_model({})
    assert (plain.generate, plain.objective.latency_percentile) == (GenerateRequest(), 99)
    assert of_language_model({"accuracy": {**LANGUAGE["accuracy"], "metric": "agreement"}}) == plain
    assert of_language_model({"serving": {"image": "mine:1"}}).runtime.server_image == "mine:1"


@pytest.mark.parametrize(("task", "accelerator", "seconds"), [
    ("infer", "gpu", 300), ("infer", "cpu", 1800), ("generate", "gpu", 1800), ("generate", "cpu", 1800)])
def test_a_build_without_a_budget_gets_that_of_its_task_and_device(task: str, accelerator: str, seconds: int) -> None:
    model: Raw = {**LANGUAGE, "task": task, "placement": {"accelerator": accelerator}}
    assert spec_of(model).budget_seconds == seconds
    assert spec_of({**model, "engine": {"buildBudgetSeconds": 77}}).budget_seconds == 77


def test_what_changes_a_language_model_changes_its_fingerprint() -> None:
    changes: list[Raw] = [
        {}, {"engine": {"contextTokens": 4096}}, {"objective": {"tokens": {"ttftMilliseconds": 500}}},
        {"objective": {"tokens": {"tpotMilliseconds": 40}}}, {"serving": {"image": "mine:1"}},
        {"objective": {"tokens": {"ttftMilliseconds": 500, "percentile": 95}}}]
    assert len({of_language_model(change).fingerprint() for change in changes}) == len(changes)


AWQ: Raw = {"name": "awq", "uri": "pvc://quantised/awq"}
STATED = "sha256:" + "7" * 64


def test_checkpoints_reach_the_builder_and_count_by_their_content() -> None:
    listed = {"engine": {"checkpoints": [AWQ, {"name": "fp8", "uri": "hf://org/fp8@main", "digest": STATED}]}}
    asked = resolve_request("llama", spec_of({**LANGUAGE, **listed}), WITH_VLLM)
    assert asked.generate is not None
    assert asked.generate.checkpoints == (
        CheckpointRequest(name="awq", uri="pvc://quantised/awq"),
        CheckpointRequest(name="fp8", uri="hf://org/fp8@main", digest=STATED))
    assert set(asked.mounts) == {"data", "models", "quantised"}
    with pytest.raises(ContractError, match=r"checkpoints awq.*not resolved"):
        of_language_model(listed).fingerprint()
    requests = [of_language_model({"engine": {"checkpoints": given}}, {"awq": "sha256:" + digest * 64})
                for given, digest in (([], "1"), ([AWQ], "1"), ([AWQ], "2"), ([{**AWQ, "uri": "pvc://m/moved"}], "1"))]
    none, one, other, moved = [request.fingerprint() for request in requests]
    assert len({none, one, other}) == 3
    assert moved == one
    assert none == of_language_model({}).fingerprint()


@pytest.mark.parametrize("change", [{"uri": "pvc://quantised/other"}, {"name": "gptq"}, {"digest": STATED}])
def test_a_changed_checkpoint_is_looked_at_again(change: Raw) -> None:
    before, after, without = (spec_of({**LANGUAGE, "engine": {"checkpoints": given}})
                              for given in ([AWQ], [{**AWQ, **change}], []))
    assert len({source_key(one) for one in (before, after, without)}) == 3
    assert source_key(without) == source_key(spec_of(LANGUAGE))


SMALL: Raw = {"name": "small", "uri": "pvc://drafts/small"}


def test_drafts_reach_the_builder_and_count_by_their_content() -> None:
    listed = {"engine": {"drafts": [SMALL, {"name": "tiny", "uri": "hf://org/tiny@main", "digest": STATED}]}}
    asked = resolve_request("llama", spec_of({**LANGUAGE, **listed}), WITH_VLLM)
    assert asked.generate is not None
    assert asked.generate.drafts == (
        CheckpointRequest(name="small", uri="pvc://drafts/small"),
        CheckpointRequest(name="tiny", uri="hf://org/tiny@main", digest=STATED))
    assert set(asked.mounts) == {"data", "models", "drafts"}
    with pytest.raises(ContractError, match=r"drafts small.*not resolved"):
        of_language_model(listed).fingerprint()
    requests = [of_language_model({"engine": {"drafts": given}}, drafts={"small": "sha256:" + digest * 64})
                for given, digest in (([], "1"), ([SMALL], "1"), ([SMALL], "2"),
                                      ([{**SMALL, "uri": "pvc://m/moved"}], "1"))]
    none, one, other, moved = [request.fingerprint() for request in requests]
    assert len({none, one, other}) == 3
    assert moved == one
    assert none == of_language_model({}).fingerprint()
    checkpoint = of_language_model({"engine": {"checkpoints": [SMALL]}}, {"small": "sha256:" + "1" * 64})
    assert checkpoint.fingerprint() != one


@pytest.mark.parametrize("change", [{"uri": "pvc://drafts/other"}, {"name": "tiny"}, {"digest": STATED}])
def test_a_changed_draft_is_looked_at_again(change: Raw) -> None:
    before, after, without = (spec_of({**LANGUAGE, "engine": {"drafts": given}})
                              for given in ([SMALL], [{**SMALL, **change}], []))
    assert len({source_key(one) for one in (before, after, without)}) == 3
    assert source_key(without) == source_key(spec_of(LANGUAGE))


def test_the_task_is_of_what_is_resolved_and_in_no_other_request() -> None:
    infer = spec_of({name: value for name, value in LANGUAGE.items() if name != "task"})
    assert source_key(infer) != source_key(spec_of(LANGUAGE))
    assert source_key(infer) == source_key(spec_of({**LANGUAGE, "task": "infer"}))
    assert request_of(FULL).generate is None
    assert "generate" not in request_of(FULL).to_json()


def test_labels_and_groups_reach_the_builder() -> None:
    labels = {"metric": "ndcg", "labels": "relevance", "maxLoss": 0.05, "output": "scores", "queries": "query"}
    asked = {"evaluation": {"uri": "pvc://data/e.npz"}, "task": labels, "groupBy": "country"}
    request = request_of({**FULL, "accuracy": asked})
    assert request.accuracy.task == TaskRequest(metric="ndcg", labels="relevance", tolerance=0.05, output="scores",
                                                queries="query")
    assert request.accuracy.group_by == "country"
    without = request_of(FULL)
    assert "task" not in without.to_json()
    assert request.fingerprint() != without.fingerprint()


@pytest.mark.parametrize(("change", "other"), [
    ({"source": {"uri": "pvc://models/other"}}, True),
    ({"source": {"uri": "pvc://models/bert", "format": "onnx"}}, True),
    ({"source": {"uri": "pvc://models/bert", "secretRef": {"name": "a"}}}, True),
    ({"source": {"uri": "pvc://models/bert", "serviceAccountName": "a"}}, True),
    ({"accuracy": {}}, True), ({"accuracy": {**FULL["accuracy"], "groupBy": "country"}}, True),
    ({"accuracy": {**FULL["accuracy"], "task": {"metric": "accuracy"}}}, True),
    ({"accuracy": {**FULL["accuracy"], "maxLoss": 0.03}}, False),
    ({"engine": {"precision": "fp32"}}, True), ({"replicas": 3}, False),
    ({"objective": {}}, False),
    ({"store": {"uri": "s3://engines"}}, True),
])
def test_the_source_key_is_over_what_a_resolve_step_reads(change: dict[str, Any], other: bool) -> None:
    assert (source_key(spec_of({**FULL, **change})) != source_key(spec_of(FULL))) == other


def test_a_store_in_a_bucket_is_named_and_makes_no_other_engine() -> None:
    there = spec_of({**FULL, "store": {"uri": "s3://engines/team-a", "secretRef": {"name": "keys"}}})
    stranger = spec_of({**FULL, "store": {"uri": "s3://engines/team-a", "secretRef": {"name": "others"}}})
    assert (store_claim(there), store_folder(there)) == ("", "")
    assert needed_claims(there) == set(source_claims(there))
    assert source_key(there) != source_key(stranger), "other credentials may do"
    request = resolve_request("bert", there, OperatorConfig())
    assert (request.store_path, request.bucket) == ("/store", BucketRequest(uri="s3://engines/team-a"))
    assert request_of({**FULL, "store": {"uri": "s3://engines/team-a"}}).fingerprint() == request_of(FULL).fingerprint()


@pytest.mark.parametrize("written", INTERFACES, ids=lambda written: "+".join(written))
def test_the_command_reads_an_interface_as_the_operator_does(written: Raw) -> None:
    spec = spec_of({**FULL, "interface": written})
    assert read_interface(json.dumps(written)) == resolve_request("m", spec, CONFIG).interface


@pytest.mark.parametrize(("text", "message"), [
    ("{", "--interface: not a JSON object"), ("[1]", "got [1]; write spec.interface"),
    ('{"input": []}', "unknown field 'input'; known are inputs"),
    ('{"inputs": [{"name": "x", "dtype": "uint8", "preprocess": {"size": 3}}]}', "got size 3"),
])
def test_a_bad_interface_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ContractError) as raised:
        read_interface(text)
    assert message in str(raised.value)


@pytest.mark.parametrize("path", OPTIONS)
def test_each_field_that_goes_by_an_option_by_hand_is_one(path: str) -> None:
    place = object_schema(old_names=False)["properties"]["spec"]
    for name in path.split("."):
        place = place.get("items", place)["properties"][name]

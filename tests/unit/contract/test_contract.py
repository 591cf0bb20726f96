"""The contract's documents survive the wire, refuse the unknown, and fingerprint what matters and only that."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    CandidateSummary,
    ContractError,
    DataRequest,
    EngineRequest,
    ErrorReport,
    Interface,
    Outcome,
    SourceRequest,
    TensorSpec,
    to_plain,
)

REQUEST = BuildRequest(
    model_name="minilm",
    source=SourceRequest(uri="pvc://models/minilm", format="huggingface", digest="sha256:" + "a" * 64),
    interface=Interface(
        inputs=(TensorSpec(name="input_ids", dtype="int64", shape=("batch", "1..512")),),
        outputs=(TensorSpec(name="sentence_embedding", dtype="float32"),),
    ),
    engine=EngineRequest(calibration=DataRequest(uri="pvc://data/c.jsonl", digest="sha256:" + "b" * 64)),
    accuracy=AccuracyRequest(evaluation=DataRequest(uri="pvc://data/e.jsonl", digest="sha256:" + "c" * 64)),
    builder_image="example.org/builder@sha256:" + "d" * 64,
)

# An upgrade that changes one of these rebuilds every engine of every user: raise FINGERPRINT_VERSION and say so.
FROZEN = {
    "full": (REQUEST, "05ac5c29fbb9b0912f58b8b3ba219007a728eae07d955c30ebf7d666e0dbd55a"),
    "smallest": (
        BuildRequest(model_name="m", source=SourceRequest(uri="file:///m", digest="sha256:" + "0" * 64)),
        "5f7a56f033373d22b87a49577dede7f5f137e4744b39961e471f16088e795b81",
    ),
}

# What may differ between two requests for the very same engine.
NOT_FINGERPRINTED = {
    "store_path",
    "mounts",
    "version",
    "source.uri",
    "engine.build_budget_seconds",
    "engine.calibration.uri",
    "accuracy.evaluation.uri",
}


@pytest.mark.parametrize(("request_", "digest"), FROZEN.values(), ids=FROZEN)
def test_fingerprint_is_frozen(request_: BuildRequest, digest: str) -> None:
    assert request_.fingerprint() == digest


def test_request_survives_the_wire() -> None:
    assert BuildRequest.from_json(REQUEST.to_json()) == REQUEST


def _leaves(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}" if path else key)]
    return [path]


def _mutated(path: str) -> BuildRequest:
    body = to_plain(REQUEST)
    holder, keys = body, path.split(".")
    for key in keys[:-1]:
        holder = holder[key]
    old = holder[keys[-1]]
    holder[keys[-1]] = _other(old)
    return BuildRequest.from_json(json.dumps(body))


def _other(old: Any) -> Any:
    if isinstance(old, list):
        return [*old, *(old[:1] or [])] if old and isinstance(old[0], dict) else [*old, 1]
    return f"{old}x" if isinstance(old, str) else old + 1


@pytest.mark.parametrize(
    "path", [p for p in _leaves(to_plain(REQUEST)) if p != "version" and not p.endswith(("products", "backends"))]
)
def test_every_field_that_matters_changes_the_fingerprint_and_no_other(path: str) -> None:
    changed = _mutated(path).fingerprint() != REQUEST.fingerprint()
    assert changed is (path not in NOT_FINGERPRINTED and not path.startswith("mounts"))


@pytest.mark.parametrize("name", ["products", "backends"])
def test_lists_of_names_change_the_fingerprint(name: str) -> None:
    holder = "device" if name == "products" else "runtime"
    other = dataclasses.replace(getattr(REQUEST, holder), **{name: ("another",)})
    assert dataclasses.replace(REQUEST, **{holder: other}).fingerprint() != REQUEST.fingerprint()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"source": SourceRequest(uri="pvc://models/m")}, "source"),
        ({"accuracy": AccuracyRequest(evaluation=DataRequest(uri="x"))}, "accuracy.evaluation"),
        ({"engine": EngineRequest(calibration=DataRequest(uri="x"))}, "engine.calibration"),
    ],
)
def test_no_fingerprint_before_every_digest_is_known(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ContractError, match=named):
        dataclasses.replace(REQUEST, **change).fingerprint()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "version"),
        ('{"version": 2}', "got 2"),
        ('{"model_name": "m", "source": {"uri": 3}}', r"source\.uri: expected str, got 3"),
        ('{"model_name": "m", "source": {"uri": "x"}, "colour": 1}', "unknown field 'colour'"),
        ('{"model_name": "m"}', "source"),
        ('{"model_name": "m", "source": {"uri": "x"}, "mounts": []}', r"mounts: expected an object"),
        ('{"model_name": "m", "source": {"uri": "x"}, "engine": {"max_batch_size": true}}', "expected int, got True"),
        ('{"model_name": "m", "source": {"uri": "x"}, "interface": {"inputs": 3}}', "expected a list"),
    ],
)
def test_a_malformed_document_is_refused_by_field_and_value(text: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        BuildRequest.from_json(text)


def test_an_unknown_verdict_is_refused() -> None:
    body = to_plain(Outcome(kind="build", ok=True))
    body["candidates"] = [to_plain(CandidateSummary(backend="b", precision="p", batch=1, verdict="Shipped"))]
    body["candidates"][0]["verdict"] = "Maybe"
    with pytest.raises(ContractError, match="'Maybe'"):
        Outcome.from_json(json.dumps(body))


@given(count=st.integers(0, 60), text=st.text(max_size=5000))
def test_a_termination_message_always_fits_and_keeps_the_verdict(count: int, text: str) -> None:
    lost = CandidateSummary(backend="onnxruntime", precision="int8", batch=8, verdict="Slower", reason="slower " * 10)
    error = ErrorReport(
        family="user", reason="AccuracyNotReached", message=text, field="spec.engine.precision", value=text
    )
    message = Outcome(kind="build", ok=False, error=error, candidates=(lost,) * count).to_termination_message()
    assert len(message.encode()) <= 4096
    read = Outcome.from_json(message)
    assert read.error is not None
    assert (read.ok, read.error.reason) == (False, "AccuracyNotReached")

"""The contract's documents survive the wire, refuse the unknown, and fingerprint what matters and only that."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enginewright_builder.contract import (
    AccuracyRequest,
    BucketFigure,
    BuildRequest,
    CandidateSummary,
    ContractError,
    DataRequest,
    EngineRequest,
    ErrorReport,
    Interface,
    Outcome,
    QualityReport,
    SourceRequest,
    TensorSpec,
    TokenFigures,
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
    "full": (REQUEST, "f3852ea29f7249e68472b216992c5e76b353cd7c0b36d10c9af89538e061a34b"),
    "smallest": (
        BuildRequest(model_name="m", source=SourceRequest(uri="file:///m", digest="sha256:" + "0" * 64)),
        "9f53f50f9a1df755f22ed8f6e6c09b463c20233b5b5b865d6d5ce59065998c4e",
    ),
}

@pytest.mark.parametrize(("request_", "digest"), FROZEN.values(), ids=FROZEN)
def test_fingerprint_is_frozen(request_: BuildRequest, digest: str) -> None:
    assert request_.fingerprint() == digest


def test_request_survives_the_wire() -> None:
    assert BuildRequest.from_json(REQUEST.to_json()) == REQUEST


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
        ('{"model_name": "m", "source": {"uri": 3}}', r"source\.uri: expected a text, got 3"),
        ('{"model_name": "m", "source": {"uri": "x"}, "colour": 1}', "unknown field 'colour'"),
        ('{"model_name": "m"}', "source"),
        ('{"model_name": "m", "source": {"uri": "x"}, "mounts": []}', r"mounts: expected an object"),
        ('{"model_name": "m", "source": {"uri": "x"}, "engine": {"max_batch_size": true}}', "a whole number, got true"),
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


@settings(max_examples=40)
@given(count=st.integers(0, 60), part=st.text(min_size=1, max_size=20), times=st.integers(0, 500))
def test_a_termination_message_always_fits_and_keeps_the_verdict(count: int, part: str, times: int) -> None:
    text = part * times  # long ones are slow to make up
    lost = CandidateSummary(backend="onnxruntime", precision="int8", batch=8, verdict="Slower", reason="slower " * 10)
    error = ErrorReport(
        family="user", reason="AccuracyNotReached", message=text, field="spec.engine.precision", value=text
    )
    message = Outcome(kind="build", ok=False, error=error, candidates=(lost,) * count).to_termination_message()
    assert len(message.encode()) <= 4096
    read = Outcome.from_json(message)
    assert read.error is not None
    assert (read.ok, read.error.reason) == (False, "AccuracyNotReached")


def test_a_termination_message_loses_buckets_first_and_what_ships_last() -> None:
    figure = BucketFigure(batch=8, p50_ms=1.0, low_ms=0.9, high_ms=1.1, throughput=8000.0)
    lost = CandidateSummary(backend="torch", precision="fp16", batch=8, verdict="Slower", reason="slower " * 10,
                            buckets=(figure,) * 4)
    ships = dataclasses.replace(lost, name="tensorrt fp16", verdict="Shipped")
    few = Outcome.from_json(Outcome(kind="build", ok=True, candidates=(lost, ships)).to_termination_message())
    assert all(len(one.buckets) == 4 for one in few.candidates)
    some = Outcome(kind="build", ok=True, candidates=(*(lost,) * 9, ships))
    assert [len(one.buckets) for one in Outcome.from_json(some.to_termination_message()).candidates] == [0] * 10
    many = Outcome(kind="build", ok=True, candidates=(*(lost,) * 60, ships)).to_termination_message()
    assert len(many.encode()) <= 4096
    assert Outcome.from_json(many).candidates[-1].name == "tensorrt fp16"


def test_figures_in_tokens_leave_a_termination_message_with_the_buckets() -> None:
    load = TokenFigures(concurrency=16, ttft_p50_ms=100.0, ttft_p99_ms=200.0, tpot_p50_ms=20.0, tpot_p99_ms=30.0,
                        output_rate=300.0, goodput=2.5)
    one = CandidateSummary(backend="vllm", precision="bf16", batch=0, verdict="Slower", tokens=load)
    few, many = (Outcome.from_json(Outcome(kind="build", ok=True, candidates=(one,) * count).to_termination_message())
                 for count in (3, 30))
    assert {each.tokens for each in few.candidates} == {load}
    assert {each.tokens for each in many.candidates} == {None}


def test_an_operator_from_before_language_models_reads_every_other_outcome() -> None:
    one = CandidateSummary(backend="onnxruntime", precision="int8", batch=8, verdict="Shipped")
    body = json.loads(Outcome(kind="build", ok=True, candidates=(one,)).to_json())
    assert "generate" not in body
    assert "tokens" not in body["candidates"][0]


@pytest.mark.parametrize("lengths", [(10,) * 400, (400, *(10,) * 200), tuple(range(1, 120))])
def test_a_termination_message_keeps_as_many_candidates_as_fit(lengths: tuple[int, ...]) -> None:
    slower = [CandidateSummary(backend="b" * length, precision="p", batch=1, verdict="Slower") for length in lengths]

    def message(count: int) -> str:
        return Outcome(kind="build", ok=True, candidates=tuple(slower[:count])).to_termination_message()

    left = len(Outcome.from_json(message(len(slower))).candidates)
    assert 0 < left < len(slower)
    assert message(left) == message(len(slower))
    assert message(left + 1) == message(left), "one more does not fit"


def test_a_termination_message_keeps_names_and_what_each_ships_for_of_a_whole_ladder() -> None:
    """As a build on a GPU has: ten rungs, some tuned, some failed with what a parser said at length."""
    lost = CandidateSummary(backend="tensorrt", precision="fp16", batch=32, verdict="Slower", p50_ms=2.0221,
                            p95_ms=2.0413, p99_ms=2.0555, throughput=15825.125, accuracy=0.9999871253967285,
                            accuracy_low=0.9999861717224121, size_bytes=219_234_112,
                            name="tensorrt fp16 @1+8+32", reason="passes, but 1.08× slower than torch, at batch 32")
    failed = CandidateSummary(backend="tensorrt", precision="fp8", batch=32, verdict="Failed", name="tensorrt fp8",
                              reason="TensorRT cannot parse node /encoder/layer.0/Attention: " + "so it said " * 40)
    ships = dataclasses.replace(lost, verdict="Shipped", serves=(1, 8), name="tensorrt fp16 @1")
    ladder = (*(lost,) * 6, *(failed,) * 3, ships)
    read = Outcome.from_json(Outcome(kind="build", ok=True, candidates=ladder).to_termination_message()).candidates
    assert [one.name for one in read] == [one.name for one in ladder]
    assert [one.serves for one in read] == [one.serves for one in ladder]
    assert dataclasses.replace(read[0], reason="") == dataclasses.replace(lost, reason="")
    assert read[6].reason in (failed.reason[:199] + "…", failed.reason[:99] + "…")


def test_an_operator_from_before_mirrors_reads_a_report_without_one() -> None:
    report = QualityReport(metric="cosine", tolerance=0.01)
    assert set(json.loads(report.to_json())) == {
        "metric", "tolerance", "samples", "total", "requests", "age_seconds", "problem", "version"}
    assert QualityReport.from_json(report.to_json()) == report
    mirrored = dataclasses.replace(report, mirrored=2, agreed=1.5, targets=("10.0.0.1:8000",))
    assert QualityReport.from_json(mirrored.to_json()) == mirrored

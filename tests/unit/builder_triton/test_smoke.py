"""What replicas are tried with, how far they may be off, and who says so. Real servers are in the integration tests."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from enginewright_builder import contract, verify
from enginewright_builder.contract import (
    EXIT_UNCACHEABLE,
    MODEL_FOLDER,
    MODEL_REPOSITORY,
    SMOKE_FILE,
    Interface,
    Outcome,
    QueuePolicy,
    QueueRequest,
)
from enginewright_builder.engine_store.folder import publish
from enginewright_builder.engine_store.manifest import EXIT_DAMAGED
from enginewright_builder.engines.base import Artifact, BatchRange, Member, Rung
from enginewright_builder.engines.composite import CompositeRunner, combine
from enginewright_builder.errors import UserError
from enginewright_builder.evidence.gated import gated_answers
from enginewright_builder.pod import smoke
from enginewright_builder.tensors import Tensors
from enginewright_builder.triton import smoke_record
from enginewright_builder.triton.smoke_record import SLACK, choose, record

Array = NDArray[Any]
RANDOM = np.random.default_rng(5)
FINGERPRINT = "a" * 64


def test_program_and_operator_speak_of_the_same_failure() -> None:
    assert smoke.FAILED == contract.SMOKE_TEST_FAILED


def test_the_program_needs_nothing_but_a_bare_python(tmp_path: Path) -> None:
    """As in a server image that has no package at all: no site-packages, another folder, no server there."""
    program = tmp_path / "smoke.py"
    program.write_bytes(Path(smoke.__file__).read_bytes())
    done = subprocess.run([sys.executable, "-I", "-S", str(program), "--model=m", "--port=1"], capture_output=True,
                          text=True, timeout=240, check=False, env={"PATH": os.environ["PATH"]})
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("no server at port 1 yet")


@given(st.integers(0, 2 ** 32 - 1), st.sampled_from(["float16", "float32", "float64"]), st.sampled_from([1, 7, 70_000]))
def test_distance_is_the_relative_error(seed: int, kind: str, count: int) -> None:
    random = np.random.default_rng(seed)
    one, other = (random.standard_normal(count).astype(kind) for _ in range(2))
    datatype = {"float16": "FP16", "float32": "FP32", "float64": "FP64"}[kind]
    wide = one.astype(np.float64), other.astype(np.float64)
    expected = np.linalg.norm(wide[0] - wide[1]) / np.linalg.norm(wide[1])
    assert smoke.distance(datatype, one.tobytes(), other.tobytes()) == pytest.approx(expected, rel=1e-9)


def test_distance_of_what_is_no_plain_float() -> None:
    halves = np.array([1.0, -2.5], np.float32).view(np.uint32) >> 16
    bfloat = halves.astype(np.uint16).tobytes()
    assert list(smoke.numbers("BF16", bfloat)) == [1.0, -2.5]
    assert smoke.distance("INT64", np.array([1, 2, 3, 4]).tobytes(), np.array([1, 2, 3, 5]).tobytes()) == 0.25
    assert smoke.distance("BOOL", b"\x01\x00", b"\x01\x01") == 0.5
    assert smoke.distance("FP32", np.full(2, 3, np.float32).tobytes(), bytes(8)) == pytest.approx(math.sqrt(18))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_distance_sees_one_number_that_is_none(wrong: float) -> None:
    reference = RANDOM.standard_normal(100_000).astype(np.float32)
    answer = reference.copy()
    answer[-1] = wrong
    assert not math.isfinite(smoke.distance("FP32", answer.tobytes(), reference.tobytes()))


@pytest.mark.parametrize("masked", [np.nan, np.inf, -np.inf])
def test_what_is_finite_in_neither_is_left_out(masked: float) -> None:
    reference = np.array([3, 4, masked], np.float32)
    answers = [np.array(numbers, np.float32) for numbers in ((3, 4, masked), (3, 3, masked), (3, 4, 0), (3, masked, 4))]
    found = [smoke.distance("FP32", answer.tobytes(), reference.tobytes()) for answer in answers]
    assert found[:2] == [0.0, pytest.approx(0.2)]
    assert not any(map(math.isfinite, found[2:]))
    output = recorded([[np.tile(reference, (1, 1))], [np.tile(reference, (5, 1))]], np.tile(reference, (3, 1)))
    assert output["outputs"][0]["measured"] == 0.0


def test_distance_of_another_size_is_no_number() -> None:
    assert smoke.distance("FP32", bytes(8), bytes(4)) == math.inf


def double(inputs: Any) -> dict[str, Array]:
    return {"y": inputs["x"] * 2}


@pytest.mark.parametrize(("width", "largest", "samples", "batches"), [
    (4, 32, 8, (1, 32)),  # eight of sixteen, sent round and round
    (4, 3, 3, (1, 3)),
    (4, 1, 1, (1,)),
    (80_000, 32, 3, (1, 32)),  # 640 KB each, 2 MiB together
    (500_000, 32, 1, (1, 8)),  # 4 MB alone, 32 MiB in one request
])
def test_what_is_kept_is_bounded(width: int, largest: int, samples: int, batches: tuple[int, ...]) -> None:
    chosen = choose({"x": np.ones((16, width), np.float32)}, double, largest)
    assert chosen is not None
    assert (chosen.count, chosen.batches) == (samples, batches)
    assert len(chosen.request(batches[-1])["x"]) == batches[-1]


@pytest.mark.parametrize(("samples", "answer"), [
    (np.ones((2, 2_000_000), np.float32), np.ones((1, 1), np.float32)),
    (np.array([["a" * 7_000_000]], np.object_), np.ones((1, 1), np.float32)),
    (np.ones((2, 2), np.float32), np.array([[1j]]))])
def test_what_cannot_be_kept_is_left_out(samples: Array, answer: Array) -> None:
    assert choose({"x": samples}, lambda inputs: {"y": answer}, 4) is None


def recorded(answers: list[list[Array]], reference: Array) -> dict[str, Any]:
    inputs = RANDOM.standard_normal((3, 4)).astype(np.float32)
    chosen = choose({"x": inputs}, lambda given: {"y": reference[:len(given["x"])]}, 5)
    assert chosen is not None
    assert chosen.batches == (1, 5)
    found: dict[str, Any] = json.loads(record(chosen, [[{"y": one} for one in batch] for batch in answers]))
    return found


def test_texts_are_kept_and_sent_round_and_round() -> None:
    texts = np.array([["one"], ["Zürich"], [""]], np.object_)
    kept = smoke_record.choose({"text": texts}, lambda sent: {"y": np.ones((len(sent["text"]), 2), np.float32)}, 5)
    assert kept is not None
    document = json.loads(smoke_record.record(kept, [[{"y": np.ones((size, 2), np.float32)}] for size in kept.batches]))
    sent, = document["inputs"]
    assert (sent["datatype"], sent["shape"], document["batches"]) == ("BYTES", [1], [1, 5])
    data = smoke.repeated(smoke.decoded(sent["data"]), 3, 5, texts=True)
    assert data == b"".join(len(one).to_bytes(4, "little") + one for one in
                            (b"one", "Zürich".encode(), b"", b"one", "Zürich".encode()))


def test_texts_as_answers_are_held_by_how_many_are_equal() -> None:
    def written(*texts: str) -> bytes:
        return b"".join(len(one.encode()).to_bytes(4, "little") + one.encode() for one in texts)

    assert smoke.distance("BYTES", written("rain", "Föhn"), written("rain", "Föhn")) == 0
    assert smoke.distance("BYTES", written("rain", "sun"), written("rain", "Föhn")) == 0.5
    assert smoke.distance("BYTES", written("rain"), written("rain", "Föhn")) == math.inf
    labels = np.array([["rain", "a"], ["Föhn", "b"], ["", "c"]], np.object_)
    output, = recorded([[labels[:1]], [labels[[0, 1, 2, 0, 1]]]], labels)["outputs"]
    assert (output["datatype"], output["measured"], output["limit"]) == ("BYTES", 0.0, 0.5)
    good = written("rain", "a", "Föhn", "b", "", "c", "rain", "a", "Föhn", "b")
    assert smoke.judge(output, {"y": ("BYTES", good)}, 5, 3) == 0
    with pytest.raises(smoke.SmokeTestError, match=r"off the source model's by 0\.8 of its entries"):
        smoke.judge(output, {"y": ("BYTES", written("rain", *"xxxxxxx", "Föhn", "x"))}, 5, 3)


def test_pairs_of_texts_stay_together() -> None:
    data = b"".join(len(one).to_bytes(4, "little") + one for one in (b"a", b"bc", b"", b"d"))
    assert smoke.text_rows(data, 2) == [data[:11], data[11:]]
    assert smoke.repeated(data, 2, 3, texts=True) == data + data[:11]


def test_the_limit_is_what_was_measured_and_a_slack() -> None:
    reference = RANDOM.standard_normal((3, 4)).astype(np.float32)
    tiled = reference[np.arange(5) % 3]
    output = recorded([[reference[:1]] * 2, [tiled * 1.03] * 2], reference)["outputs"][0]
    assert output["measured"] == pytest.approx(0.03, rel=1e-4)
    assert output["limit"] == pytest.approx(0.03 + SLACK, rel=1e-4)
    assert base64.b64decode(output["data"]) == reference.tobytes()


def test_answers_that_differ_from_run_to_run_widen_the_slack() -> None:
    reference = RANDOM.standard_normal((3, 4)).astype(np.float32)
    tiled = reference[np.arange(5) % 3]
    output = recorded([[reference[:1]] * 2, [tiled, tiled * 1.02]], reference)["outputs"][0]
    assert output["limit"] == pytest.approx(0.02 + smoke_record.RUN_TO_RUN * 0.02, rel=0.05)


def test_of_few_whole_numbers_one_may_differ() -> None:
    reference = np.arange(12).reshape(3, 4)
    output = recorded([[reference[:1]], [reference[np.arange(5) % 3]]], reference)["outputs"][0]
    assert (output["measured"], output["limit"]) == (0.0, 0.25)


def test_an_engine_whose_own_answers_are_no_numbers_is_not_published() -> None:
    reference = RANDOM.standard_normal((3, 4)).astype(np.float32)
    with pytest.raises(UserError, match="NaN") as error:
        recorded([[reference[:1] * np.float32(np.nan)], [reference[np.arange(5) % 3]]], reference)
    assert error.value.reason == "ServedAnswersDiffer"


@pytest.mark.parametrize(("gated", "served", "refused"), [
    (1.01, 1.5, True), (1.5, 1.5, False), (1.01, 1.05, False), (0.97, 1.14, False), (0.97, 1.16, True),
    (None, 5, False)])
def test_what_is_far_further_off_than_at_the_gates_batch_is_not_published(gated: float | None, served: float,
                                                                          refused: bool) -> None:
    """Of batch 1, where the gate compared batches of sixteen. All answers are of one size."""
    inputs = np.array([[3, 4], [5, 0], [-4, 3]], np.float32)
    chosen = choose({"x": inputs}, double, 3)
    assert chosen is not None
    seen = {} if gated is None else {"y": chosen.reference["y"] * gated}
    tried = dataclasses.replace(chosen, gated=(seen, {}))
    answers: list[list[Tensors]] = [[{"y": chosen.reference["y"][:1] * served}], [{"y": chosen.reference["y"] * 3}]]
    if not refused:
        worst = json.loads(record(tried, answers))["outputs"][0]["measured"]
        assert worst == pytest.approx(max(2.0, served - 1))
        return
    with pytest.raises(UserError, match=r"served in batches of 1 is off the source model's by 0\.(5|16)") as error:
        record(tried, answers)
    assert error.value.reason == "ServedAnswersDiffer"


@pytest.mark.parametrize(("ranges", "largest", "asked"), [
    ((), 32, [16, 16]), ((), 16, [16]), ((), 1, []), (((1, 1), (2, 32)), 32, []), (((1, 1), (2, 32)), 24, [32])])
def test_the_engine_is_asked_for_the_samples_in_a_batch_that_the_gate_compared(
        ranges: tuple[tuple[int, int], ...], largest: int, asked: list[int]) -> None:
    """Where that is not the batch in which they are sent."""
    rung = Rung(backend="x", precision="fp16", ranges=tuple(BatchRange(low=low, best=high, high=high)
                                                            for low, high in ranges))
    artifact = Artifact(rung=rung, files={}, triton_backend="python", interface=Interface(), runtime_version="1")
    chosen = choose({"x": RANDOM.standard_normal((9, 4)).astype(np.float32)}, double, largest)
    assert chosen is not None
    seen = list[int]()

    class Running:
        def __call__(self, inputs: Any) -> dict[str, Array]:
            seen.append(len(inputs["x"]))
            return double(inputs)

    gated = gated_answers(Running(), artifact, chosen, largest)  # type: ignore[arg-type]
    assert (seen, len(gated)) == (asked, len(chosen.batches))
    assert all(np.array_equal(one["y"], chosen.reference["y"]) for one in gated if one)


def test_each_member_is_asked_in_the_batches_that_it_was_compared_in(tmp_path: Path) -> None:
    """Not the one that takes batches of that size."""
    artifact = combine([Member(up_to=up_to, artifact=Artifact(
        rung=Rung(backend=name, precision="fp16"), files={}, triton_backend="python", interface=Interface(),
        runtime_version="1")) for name, up_to in (("one", 1), ("other", 32))])
    seen = list[tuple[str, int]]()

    class Engine:
        def __init__(self, name: str) -> None:
            self.name = name

        def load(self, artifact: Artifact) -> Any:
            return type("Running", (), {"__call__": lambda _, inputs: self.run(inputs), "close": lambda _: None})()

        def run(self, inputs: Any) -> dict[str, Array]:
            seen.append((self.name, len(inputs["x"])))
            return double(inputs)

    chosen = choose({"x": RANDOM.standard_normal((9, 4)).astype(np.float32)}, double, 32)
    assert chosen is not None
    runner = CompositeRunner(artifact, [Engine("one"), Engine("other")])  # type: ignore[list-item]
    gated_answers(runner, artifact, chosen, 32)
    assert seen == [("one", 16), ("other", 16)]


def test_an_answer_next_to_nothing_is_held_against_the_usual_size() -> None:
    reference = np.array([[1e-6], [1.0], [-1.0]], np.float32)
    chosen = choose({"x": reference}, lambda given: {"y": given["x"]}, 3)
    assert chosen is not None
    tried = dataclasses.replace(chosen, gated=({"y": reference}, {}))
    record(tried, [[{"y": reference[:1] + np.float32(0.01)}], [{"y": reference}]])


def test_names_may_change_places_beyond_the_gates_batch() -> None:
    classes = np.array([[3, 4], [1, 2], [5, 6]], np.int32)
    chosen = choose({"x": classes}, lambda given: {"y": given["x"]}, 3)
    assert chosen is not None
    record(dataclasses.replace(chosen, gated=({"y": classes}, {})), [[{"y": classes[:1, ::-1]}], [{"y": classes}]])


def test_the_largest_file_fits_its_volume() -> None:
    chosen = choose({"x": RANDOM.standard_normal((1, 700_000)).astype(np.float32)}, double, 1)
    assert chosen is not None
    text = record(chosen, [[double(chosen.inputs)]])
    assert len(text) < 8 << 20


@pytest.mark.parametrize("with_answers", [True, False], ids=["recorded", "of an older builder"])
def test_verify_leaves_the_program_and_the_answers(with_answers: bool, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINATION_LOG", str(tmp_path / "none"))
    staging, store, target = (tmp_path / name for name in ("staging", "store", "smoke-test"))
    for folder in (staging, store, target):
        folder.mkdir()
    (staging / "model.onnx").write_bytes(b"model")
    if with_answers:
        (staging / SMOKE_FILE).write_text("{}")
    publish(staging, store, FINGERPRINT, outcome=Outcome(kind="build", ok=True))
    assert verify.main([str(store / FINGERPRINT), "--smoke-test", str(target)]) == 0
    programs = {"smoke.py", "fits.py", "fits.json", "renewing.py", "enginewright_builder"}
    assert {path.name for path in target.iterdir()} == (programs | {SMOKE_FILE} if with_answers else programs)
    assert (target / "smoke.py").read_bytes() == Path(smoke.__file__).read_bytes()


def test_verify_leaves_the_configuration_with_a_queue_policy_and_the_engine_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINATION_LOG", str(tmp_path / "none"))
    staging, store, target = (tmp_path / name for name in ("staging", "store", "smoke-test"))
    model = staging / MODEL_REPOSITORY / MODEL_FOLDER
    for folder in (model, store, target):
        folder.mkdir(parents=True)
    config = model / "config.pbtxt"
    config.write_text("dynamic_batching {\n  max_queue_delay_microseconds: 500\n}\n")
    publish(staging, store, FINGERPRINT, outcome=Outcome(kind="build", ok=True))
    queue = QueueRequest(policy=QueuePolicy(max_queue_size=8)).to_json()
    arguments = [str(store / FINGERPRINT), "--smoke-test", str(target), "--queue", queue]
    assert verify.main(arguments) == 0
    assert (target / "config.pbtxt").read_text() == (
        "dynamic_batching {\n  default_queue_policy {\n    max_queue_size: 8\n  }\n"
        "  max_queue_delay_microseconds: 500\n}\n")
    assert verify.main(arguments) == 0, "a node that restarts runs init containers once more"


@pytest.mark.parametrize(("outputs", "status"), [(1, 0), (2, EXIT_UNCACHEABLE)])
def test_verify_leaves_what_answers_from_a_cache_or_says_why_it_would_be_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs: int, status: int
) -> None:
    (tmp_path / "log").touch()
    monkeypatch.setenv("TERMINATION_LOG", str(tmp_path / "log"))
    staging, store, target = (tmp_path / name for name in ("staging", "store", "smoke-test"))
    model = staging / MODEL_REPOSITORY / MODEL_FOLDER
    for folder in (model, store, target):
        folder.mkdir(parents=True)
    tensors = ("input", "x"), *(("output", f"y{at}") for at in range(outputs))
    (model / "config.pbtxt").write_text("max_batch_size: 8\n" + "".join(
        f'{kind} {{\n  name: "{name}"\n  data_type: TYPE_FP32\n  dims: 4\n}}\n' for kind, name in tensors))
    publish(staging, store, FINGERPRINT, outcome=Outcome(kind="build", ok=True))
    arguments = [str(store / FINGERPRINT), "--smoke-test", str(target), "--response-cache", "minilm"]
    assert verify.main(arguments) == verify.main(arguments) == status
    assert (target / "front" / "config.pbtxt").exists() == (target / "front" / "1").exists() == (not status)
    if status:
        assert "spec.serving.responseCache does not work for this engine" in (tmp_path / "log").read_text()
    else:
        assert 'model_name: "minilm_computed"' in (target / "front" / "config.pbtxt").read_text()


def test_nothing_is_left_of_a_damaged_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINATION_LOG", str(tmp_path / "none"))
    (tmp_path / "smoke-test").mkdir()
    assert verify.main([str(tmp_path), "--smoke-test", str(tmp_path / "smoke-test")]) == EXIT_DAMAGED
    assert list((tmp_path / "smoke-test").iterdir()) == []

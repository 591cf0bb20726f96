"""What may be state, sequences as samples, and what does not go together with them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    EngineRequest,
    Interface,
    SequenceBatching,
    SourceRequest,
    StateTensor,
    TaskRequest,
    TensorSpec,
)
from enginewright_builder.engines.base import Artifact, Rung
from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
from enginewright_builder.engines.sequenced import sequenced
from enginewright_builder.errors import UserError
from enginewright_builder.models import load_model
from enginewright_builder.models.sequenced import Sequenced
from enginewright_builder.onnx_interface import written_interface
from enginewright_builder.resolve import resolve
from enginewright_builder.sequences import answered, fixed, in_steps, most_joined, sent
from enginewright_builder.shapes import BATCH, STEPS, takes_batches
from enginewright_builder.sources.formats import locate
from support.inputs import graphs, stateful

LSTM = tuple(StateTensor(input_name=name, output_name=output) for name, output in stateful.STATE)
KEPT = SequenceBatching(state=LSTM)
FILTERS = (StateTensor(input_name="state", output_name="stateN"),)


def _state(*pairs: tuple[str, str]) -> SequenceBatching:
    return SequenceBatching(state=tuple(StateTensor(input_name=name, output_name=output) for name, output in pairs))


def _source(folder: Path, graph: onnx.ModelProto | None = None, kept: SequenceBatching = KEPT) -> Sequenced:
    folder.mkdir(exist_ok=True)
    onnx.save(graph or stateful.lstm(), folder / "model.onnx")
    source = load_model(locate(folder / "model.onnx"), Interface(sequence_batching=kept), folder)
    assert isinstance(source, Sequenced)
    return source


def test_what_clients_send_and_get() -> None:
    made = fixed(written_interface(stateful.lstm()), KEPT)
    assert [(spec.name, spec.shape) for spec in (*sent(made), *answered(made))] == [("x", (1, 16)), ("y", (1, 4))]
    assert [(spec.name, spec.shape) for spec in in_steps(made).inputs] == [("x", (BATCH, STEPS, 1, 16))]


def test_the_batch_may_stand_anywhere_in_a_state() -> None:
    made = fixed(written_interface(graphs.voice()), _state(("state", "stateN")))
    assert [spec.shape for spec in made.inputs] == [(1, 32), (2, 1, 8), ()]


@pytest.mark.parametrize(("graph", "kept", "field", "value", "remedy"), [
    (stateful.lstm(), _state(("hidden", "hn")), "state[0].inputName", "hidden", "write one of x, h, c"),
    (stateful.lstm(), _state(("h", "hn"), ("c", "c_out")), "state[1].outputName", "c_out", "write one of y, hn, cn"),
    (stateful.lstm(), _state(("h", "y")), "state[0].outputName", "y [1, 4]", "in the input's own shape"),
    (stateful.lstm(hidden="width"), _state(("h", "hn")), "state[0].inputName", "h [1, 1, width]", "as a number"),
    (graphs.product(["batch", 16], ["batch", 16]), _state(("x", "y")), "state", "x", "what clients send"),
    (graphs.voice(), _state(("sr", "output")), "state[0].outputName", "output: float32", "one type of both"),
])
def test_what_cannot_be_carried_is_told(graph: onnx.ModelProto, kept: SequenceBatching, field: str, value: str,
                                        remedy: str) -> None:
    with pytest.raises(UserError) as refused:
        fixed(written_interface(graph), kept)
    assert refused.value.reason == "InterfaceInvalid"
    assert refused.value.field.startswith(f"spec.interface.sequenceBatching.{field}")
    assert value in refused.value.value
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(("graph", "state", "shape"), [
    (stateful.lstm(), LSTM, (1, 24)), (stateful.filters(), FILTERS, (2, 8)),
])
def test_steps_of_several_sequences_run_as_one_batch(graph: onnx.ModelProto, state: tuple[StateTensor, ...],
                                                     shape: tuple[int, int], tmp_path: Path) -> None:
    """The batch stands behind the layers of a state, and comes to the front; with any of it answers are the same."""
    joined = _source(tmp_path / "joined", graph, SequenceBatching(state=state))
    assert {spec.name: spec.shape for spec in joined.inner.interface.inputs}[state[0].input_name] == (BATCH, *shape)
    assert "together with those of other sequences" in joined.notes[0]
    assert [(spec.name, spec.shape) for spec in joined.interface.inputs] == [("x", (BATCH, STEPS, 1, 16))]
    x = stateful.sequences(5, 6)[:, :, None]
    alone = np.concatenate([joined.run({"x": x[row:row + 1]})["y"] for row in range(5)])
    np.testing.assert_allclose(joined.run({"x": x})["y"], alone, atol=1e-5)
    source = stateful.Source(tmp_path / "joined" / "model.onnx",
                             {one.input_name: (one.output_name, (shape[0], 1, shape[1])) for one in state})
    expected = [[one["y"] for one in source.answers([{"x": step} for step in steps])] for steps in x]
    np.testing.assert_allclose(alone, expected, atol=1e-5)


@pytest.mark.parametrize(("graph", "kept", "why"), [
    (stateful.lstm(1), KEPT, "since input 'x' [1, 16] has no free size that is a batch: steps of several"),
    (stateful.filters(hidden="rows"), SequenceBatching(state=FILTERS),
     "since input 'state' [batch, batch, 8] has more than one size that is a batch"),
    (stateful.filters(mixed=True), SequenceBatching(state=FILTERS),
     "since its answers depend on what else is in the batch"),
    (graphs.voice(), _state(("state", "stateN")), "since input 'sr' [1] has no free size that is a batch"),
    (stateful.behind(), _state(("state", "stateN")),
     "since input 'x' [1, batch, 16] does not have the batch in front of its other sizes"),
])
def test_why_steps_are_not_joined(graph: onnx.ModelProto, kept: SequenceBatching, why: str, tmp_path: Path) -> None:
    source = _source(tmp_path, graph, kept)
    assert why in source.notes[0]
    assert not takes_batches(source.inner.interface)


def test_a_run_has_a_step_of_each_sequence_at_most() -> None:
    assert [most_joined(dataclasses.replace(KEPT, max_candidate_sequences=8), size) for size in (4, 32)] == [4, 8]


def test_a_sequence_is_asked_step_by_step(tmp_path: Path) -> None:
    source = _source(tmp_path)
    x = stateful.sequences(3, 6)
    expected = [[one["y"] for one in stateful.lstm_source(tmp_path / "model.onnx").answers(
        [{"x": step[None]} for step in steps])] for steps in x]
    np.testing.assert_allclose(source.run({"x": x[:, :, None]})["y"], expected, atol=1e-5)


BEGUN = SequenceBatching(state=(StateTensor(input_name="h", output_name="hn", data_file="h.npy"), LSTM[1]))


def test_a_sequence_begins_with_what_a_file_says(tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", stateful.first_state())
    source, x = _source(tmp_path, kept=BEGUN), stateful.sequences(3, 6)
    client = stateful.lstm_source(tmp_path / "model.onnx", {"h": stateful.first_state()})
    expected = [[one["y"] for one in client.answers([{"x": step[None]} for step in steps])] for steps in x]
    np.testing.assert_allclose(source.run({"x": x[:, :, None]})["y"], expected, atol=1e-5)
    first = source.begun({"x": x[:, :, None]})
    np.testing.assert_array_equal(first["h"], np.repeat(stateful.first_state()[0][None], 3, axis=0))
    assert not first["c"].any()


@pytest.mark.parametrize(("array", "message"), [
    (None, "is no file in the source's folder"), (np.zeros((1, 1, 9), np.float32), r"is float32 \[1, 1, 9\]"),
    (np.zeros((1, 1, 24)), "is float64"), (np.full((1, 1, 24), np.nan, np.float32), "NaN"),
    (np.zeros((1, 1, 1 << 18), np.float32), "has more than"), (np.array([{}]), "cannot be read"),
], ids=["none", "shape", "type", "NaN", "too large", "a pickle"])
def test_a_file_that_is_no_state_is_told(array: Any, message: str, tmp_path: Path) -> None:
    if array is not None:
        np.save(tmp_path / "h.npy", array)
    with pytest.raises(UserError, match=message) as refused:
        _source(tmp_path, kept=BEGUN)
    assert refused.value.field == "spec.interface.sequenceBatching.state[0].dataFile"


def test_a_file_counts_as_a_part_of_a_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    np.save(folder / "h.npy", stateful.first_state())
    request = _request(folder, interface=Interface(sequence_batching=BEGUN))
    np.savez(tmp_path / "evaluation", x=stateful.sequences(400, 4))
    with pytest.raises(UserError, match="names one file"):
        resolve(request, tmp_path / "scratch")
    (folder / "evaluation.npz").unlink()
    whole = dataclasses.replace(
        request, source=SourceRequest(uri=str(folder)),
        accuracy=dataclasses.replace(request.accuracy, evaluation=DataRequest(uri=str(tmp_path / "evaluation.npz"))))
    before = resolve(whole, tmp_path / "scratch").source.digest
    np.save(folder / "h.npy", 2 * stateful.first_state())
    assert resolve(whole, tmp_path / "scratch").source.digest != before


def test_calibration_sees_the_state_in_its_course(tmp_path: Path) -> None:
    calls = _source(tmp_path).calls({"x": stateful.sequences(2, 10)[:, :, None]}, 3)
    assert [float(np.abs(call["h"]).max()) > 0 for call in calls] == [False, True, True]
    assert all(call["x"].shape == (2, 16) and call["h"].shape == (2, 1, 24) for call in calls)


def test_an_engine_is_asked_with_its_own_state(tmp_path: Path) -> None:
    source = _source(tmp_path)
    folder = tmp_path / "engine"
    folder.mkdir()
    source.export_onnx(folder / "model.onnx", 18)
    onnx.save(stateful.forgetful(folder / "model.onnx"), folder / "model.onnx")
    (engine,) = sequenced([OnnxRuntimeEngine()], source.inner.interface)
    artifact = Artifact(rung=Rung(backend="onnxruntime", precision="fp32"), triton_backend="python",
                        files={"model.onnx": folder / "model.onnx"}, interface=source.inner.interface,
                        runtime_version="onnxruntime")
    runner, x = engine.load(artifact), stateful.sequences(2, 6)[:, :, None]
    try:
        answers, expected = runner({"x": x})["y"], source.run({"x": x})["y"]
    finally:
        runner.close()
    np.testing.assert_allclose(answers[:, 0], expected[:, 0], atol=1e-5)
    assert np.abs(answers[:, 1:] - expected[:, 1:]).max() > 0.1


def _request(folder: Path, **changed: Any) -> BuildRequest:
    onnx.save(stateful.lstm(), folder / "model.onnx")
    np.savez(folder / "evaluation", x=changed.pop("x", stateful.sequences(400, 4)))
    made = BuildRequest(model_name="m", source=SourceRequest(uri=str(folder / "model.onnx")),
                        interface=Interface(sequence_batching=KEPT), accuracy=AccuracyRequest(
                            tolerance=0.1, evaluation=DataRequest(uri=str(folder / "evaluation.npz"))))
    return dataclasses.replace(made, **changed)


def test_the_resolve_step_reads_sequences(tmp_path: Path) -> None:
    resolved = resolve(_request(tmp_path), tmp_path / "scratch")
    assert resolved.evaluation is not None
    assert resolved.evaluation.rows[0]["x"].shape == (4, 1, 16)


@pytest.mark.parametrize(("changed", "field", "remedy"), [
    ({"engine": EngineRequest(backend="torch")}, "spec.engine.backend", "auto or onnxruntime"),
    ({"accuracy": AccuracyRequest(task=TaskRequest(metric="accuracy"), evaluation=DataRequest(uri="x.npz"))},
     "spec.accuracy.task", "leave it out"),
    ({"keep_reference": True}, "spec.quality", "leave it out"),
    ({"interface": Interface(sequence_batching=_state(("h", "nothing")))},
     "spec.interface.sequenceBatching.state[0].outputName", "write one of y, hn, cn"),
    ({"interface": Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 16)),),
                             sequence_batching=KEPT)}, "spec.interface.inputs", "name the model's own inputs"),
    ({"x": stateful.sequences(400, 4)[..., :5]}, "spec.accuracy.evaluation.uri", "in the shape of the model's input"),
])
def test_what_does_not_go_together_is_told_before_a_device_is_used(changed: dict[str, Any], field: str, remedy: str,
                                                                   tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        resolve(_request(tmp_path, **changed), tmp_path / "scratch")
    assert refused.value.field == field
    assert remedy in refused.value.remedy


def test_inputs_of_a_sequence_have_as_many_steps(tmp_path: Path) -> None:
    request = _request(tmp_path, interface=Interface(sequence_batching=_state(("state", "stateN"))))
    onnx.save(graphs.voice(), tmp_path / "model.onnx")
    np.savez(tmp_path / "evaluation", sound=np.zeros((400, 4, 32), np.float32), sr=np.zeros((400, 5), np.int64))
    with pytest.raises(UserError, match="different length in its inputs: sound 4, sr 5 steps"):
        resolve(request, tmp_path / "scratch")


def test_sources_of_other_formats_are_told(tmp_path: Path) -> None:
    located = dataclasses.replace(locate(_file(tmp_path)), format="torchscript")
    with pytest.raises(UserError) as refused:
        load_model(located, Interface(sequence_batching=KEPT), tmp_path)
    assert "export the model to ONNX" in refused.value.remedy


def _file(folder: Path) -> Path:
    onnx.save(stateful.lstm(), folder / "model.onnx")
    return folder / "model.onnx"


def test_engines_from_before_have_the_same_fingerprint() -> None:
    plain = BuildRequest(model_name="m", source=SourceRequest(uri="x", digest="sha256:1"), interface=Interface())
    assert "sequence_batching" not in plain.to_json()
    kept = dataclasses.replace(plain, interface=Interface(sequence_batching=KEPT))
    assert BuildRequest.from_json(kept.to_json()) == kept
    assert kept.fingerprint() != plain.fingerprint()



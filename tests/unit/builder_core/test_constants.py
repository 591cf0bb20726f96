"""Inputs with one value in all requests: which may have one, and what becomes of the graph and of what clients send."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from enginewright_builder.constants import check_constants
from enginewright_builder.contract import (
    AccuracyRequest,
    BuildRequest,
    DataRequest,
    Interface,
    Normalise,
    SequenceBatching,
    SourceRequest,
    StateTensor,
    TensorSpec,
)
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.models.base import SourceModel
from enginewright_builder.models.sequenced import Sequenced
from enginewright_builder.resolve import resolve
from enginewright_builder.shapes import takes_batches
from enginewright_builder.sources.formats import locate
from support.inputs import graphs, programs

X = TensorSpec(name="x", dtype="float32", shape=("batch", 16))
RATES = (16000, 8000)
KEPT = SequenceBatching(state=(StateTensor(input_name="state", output_name="stateN"),))


def _rate(*value: float, dtype: str = "int64") -> TensorSpec:
    return TensorSpec(name="sr", dtype=dtype, value=value)


def _loaded(folder: Path, *inputs: TensorSpec, kept: SequenceBatching | None = None,
            graph: onnx.ModelProto | None = None) -> SourceModel:
    path = _saved(graph or graphs.voice(), folder)
    return load_model(locate(path), Interface(inputs=inputs, sequence_batching=kept), folder)


def _saved(graph: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(graph, folder / "model.onnx")
    return folder / "model.onnx"


def _old(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Of a version in which constants are inputs as well."""
    graph.ir_version = 3
    graph.graph.input.extend(onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims)
                             for one in graph.graph.initializer)
    return graph


@pytest.mark.parametrize("of_old", [False, True])
@pytest.mark.parametrize("rate", RATES)
def test_the_graph_answers_as_the_file_does_with_that_value(rate: int, of_old: bool, tmp_path: Path) -> None:
    source = _loaded(tmp_path, _rate(rate), graph=_old(graphs.voice()) if of_old else None)
    assert [spec.name for spec in source.interface.inputs] == ["sound", "state"]
    random = np.random.default_rng(0)
    sent = {"sound": random.normal(size=(1, 32)).astype(np.float32),
            "state": random.normal(size=(2, 1, 8)).astype(np.float32)}
    answers = source.run({name: array[None] for name, array in sent.items()})
    file = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    expected = file.run(["output"], {**sent, "sr": np.array(rate)})[0]
    other = file.run(["output"], {**sent, "sr": np.array(sum(RATES) - rate)})[0]
    np.testing.assert_allclose(answers["output"][0], expected, rtol=1e-5)
    assert not np.allclose(expected, other), "the value decides the answer"
    assert f"sr is {rate} in every request" in source.notes[-1]


def test_engines_see_the_branch_that_is_taken(tmp_path: Path) -> None:
    source = _loaded(tmp_path, _rate(16000))
    source.export_onnx(tmp_path / "export.onnx", 18)
    graph = onnx.load(tmp_path / "export.onnx")
    kinds = [node.op_type for node in graph.graph.node]
    assert ("If" in kinds, kinds.count("MatMul"), [one.domain for one in graph.opset_import]) == (False, 1, [""])


def test_steps_are_joined_where_the_scalar_alone_had_no_batch(tmp_path: Path) -> None:
    source = _loaded(tmp_path, _rate(16000), kept=KEPT)
    assert isinstance(source, Sequenced)
    assert takes_batches(source.inner.interface)
    assert [spec.name for spec in source.interface.inputs] == ["sound"]


def test_state_comes_out_in_the_sizes_in_which_it_goes_in(tmp_path: Path) -> None:
    """Silero VAD's own file names no size of it."""
    graph = graphs.voice()
    for value, sizes in ((graph.graph.input[1], (2, None, 8)), (graph.graph.output[1], (None, None, None))):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, TensorProto.FLOAT, sizes))
    stated = (TensorSpec(name="sound", dtype="float32", shape=("batch", 32)),
              TensorSpec(name="state", dtype="float32", shape=(2, "batch", 8)), _rate(16000))
    source = _loaded(tmp_path, *stated, kept=KEPT, graph=graph)
    assert isinstance(source, Sequenced)
    assert takes_batches(source.inner.interface)


def test_data_leave_it_out(tmp_path: Path) -> None:
    onnx.save(graphs.voice(), tmp_path / "model.onnx")
    random = np.random.default_rng(0)
    np.savez(tmp_path / "calls", sound=random.normal(size=(300, 1, 32)).astype(np.float32),
             state=random.normal(size=(300, 2, 1, 8)).astype(np.float32))
    resolved = resolve(BuildRequest(
        model_name="m", source=SourceRequest(uri=str(tmp_path / "model.onnx")),
        interface=Interface(inputs=(_rate(16000),)),
        accuracy=AccuracyRequest(evaluation=DataRequest(uri=str(tmp_path / "calls.npz")))), tmp_path / "scratch")
    assert resolved.evaluation is not None
    assert len(resolved.evaluation) == 300


@pytest.mark.parametrize(("inputs", "told"), [
    ((_rate(16000.5),), ("16000.5 is no int64", "write numbers of type int64")),
    ((_rate(1, 2),), ("2 numbers do not fill 'sr' []", "one for each element")),
    ((_rate(1, dtype="float32"),), ("is int64 in the model, not float32", "the model's own type")),
    ((TensorSpec(name="rate", dtype="int64", value=(1,)),), ("has no input 'rate'", "name an input of the model")),
    ((TensorSpec(name="sound", dtype="float32", value=(0,)),), ("has a free size", "write its sizes as numbers")),
    ((TensorSpec(name="sound", dtype="float32", shape=(1, 32), value=(0,)),
      TensorSpec(name="state", dtype="float32", shape=(2, 1, 8), value=(0,)), _rate(1)),
     ("every input of the model has a value", "remove value from what differs")),
])
def test_what_cannot_be_constant_is_refused_with_the_field(inputs: tuple[TensorSpec, ...], told: tuple[str, str],
                                                           tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        _loaded(tmp_path, *inputs)
    assert raised.value.reason == "InterfaceInvalid"
    assert (raised.value.field or "").startswith("spec.interface.inputs")
    assert told[0] in str(raised.value)
    assert told[1] in raised.value.remedy


@pytest.mark.parametrize(("format_", "changed", "told"), [
    ("huggingface", {}, "no input of it has a value"),
    ("onnx", {"normalise": Normalise(scale=1.0, mean=(0.0,), std=(1.0,))}, "is made of what clients send"),
])
def test_what_does_not_go_with_a_value(format_: str, changed: dict[str, Any], told: str) -> None:
    spec = TensorSpec(name="sr", dtype="uint8", value=(1,), **changed)
    with pytest.raises(UserError, match=told) as raised:
        check_constants(format_, Interface(inputs=(spec,)))
    assert raised.value.field == "spec.interface.inputs[sr].value"


@pytest.mark.torch
@pytest.mark.parametrize(("make", "sent"), [(programs.with_gain, ()), (programs.scripted_with_gain, (X,))],
                         ids=["exported program", "TorchScript"])
def test_a_pytorch_module_answers_as_with_that_value(make: Callable[[Path], Path], sent: tuple[TensorSpec, ...],
                                                     tmp_path: Path) -> None:
    path = make(tmp_path)
    source = load_model(locate(path), Interface(inputs=(*sent, *programs.GAIN.inputs)), tmp_path)
    assert [spec.name for spec in source.interface.inputs] == ["x"]
    assert takes_batches(source.interface)
    x = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)
    expected, other = (programs.answers(path, {"x": x, "gain": np.array(gain, np.float32)})[0] for gain in (0.5, 1.0))
    np.testing.assert_allclose(source.run({"x": x})["output"], expected, rtol=1e-5)
    assert not np.allclose(expected, other), "the value decides the answer"
    export_model(source, tmp_path / "export", [{"x": x}])  # raises where the answers differ
    assert "gain is 0.5 in every request" in source.notes[-1]


@pytest.mark.torch
def test_a_program_takes_its_tensors_in_dicts_and_lists_and_by_name(tmp_path: Path) -> None:
    import torch

    source = load_model(locate(programs.structured(tmp_path)), None, tmp_path)
    one, two, three = (np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32) for seed in range(3))
    sent = dict(zip((spec.name for spec in source.interface.inputs), (one, two, three), strict=True))
    pair, more, bias = map(torch.from_numpy, (one, two, three))
    expected = torch.export.load(tmp_path / "model.pt2").module()({"a": pair}, [more], bias=bias)
    np.testing.assert_allclose(source.run(sent)["output"], expected.numpy(), rtol=1e-6)
    export_model(source, tmp_path / "export", [sent])  # raises where the answers differ


@pytest.mark.torch
def test_a_number_of_pythons_needs_a_value(tmp_path: Path) -> None:
    stated = Interface(inputs=(X, TensorSpec(name="gain", dtype="float32", shape=("batch", 1))))
    with pytest.raises(UserError, match="takes 'gain' as a number") as raised:
        load_model(locate(programs.scripted_with_gain(tmp_path)), stated, tmp_path)
    assert (raised.value.reason, raised.value.field) == ("InterfaceInvalid", "spec.interface.inputs[gain]")
    assert "give it the value" in raised.value.remedy


def test_who_leaves_the_value_to_chance_is_told_of_it(tmp_path: Path) -> None:
    """Made-up numbers seldom are what a graph branches on."""
    sizes = (TensorSpec(name="sound", dtype="float32", shape=("batch", 32)),
             TensorSpec(name="state", dtype="float32", shape=(2, "batch", 8)))
    graph = graphs.voice(slow=16)
    with pytest.raises(UserError) as raised:
        _loaded(tmp_path, *sizes, TensorSpec(name="sr", dtype="int64", shape=(1,)), graph=graph)
    assert "where 'sr' is the same in every request, write that as its value" in raised.value.remedy
    assert _loaded(tmp_path, *sizes, _rate(16000), graph=graph).interface.inputs


def test_images_are_prepared_beside_it(tmp_path: Path) -> None:
    """What stands around the source takes what clients send, and no value."""
    image = TensorSpec(name="image", dtype="uint8", shape=("batch", 3, 8, 8),
                       normalise=Normalise(scale=1 / 255, mean=(0.0,), std=(1.0,)))
    threshold = TensorSpec(name="threshold", dtype="float32", value=(0.5,))
    source = _loaded(tmp_path, image, threshold, graph=graphs.scalar_beside_batch())
    assert takes_batches(source.interface)
    sent = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8)).astype(np.uint8)
    file = ort.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    expected = file.run(None, {"image": (sent / 255).astype(np.float32), "threshold": np.array(0.5, np.float32)})[0]
    np.testing.assert_allclose(source.run({"image": sent})["scores"], expected, rtol=1e-4, atol=1e-5)

"""Bytes from clients, normalised by the engine: graphs and programs against the source asked with floats."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from enginewright_builder.contract import Interface, Normalise, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.export import export_model, largest_difference
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.normalise import factors, normalised, order, sent, taken
from enginewright_builder.ort_session import OrtRunner
from enginewright_builder.shapes import checked
from enginewright_builder.sources.formats import locate
from enginewright_builder.tensors import Array

HOW = Normalise(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
FIRST = TensorSpec(name="image", dtype="uint8", shape=("batch", 3, 6, 8), normalise=HOW)
LAST = TensorSpec(name="image", dtype="uint8", shape=("batch", 6, 8, 3),
                  normalise=dataclasses.replace(HOW, channels="last"))
BOTH = pytest.mark.parametrize("spec", [FIRST, LAST], ids=["channels first", "channels last"])


def by_hand(spec: TensorSpec, images: Array) -> Array:
    """As a client of the source does today, channel by channel."""
    planes = images if spec is FIRST else np.moveaxis(images, -1, 1)
    made: Array = np.stack([(planes[:, channel] / np.float64(255) - HOW.mean[channel]) / HOW.std[channel]
                            for channel in range(3)], axis=1).astype(np.float32)
    return made


def saved_onnx(folder: Path, kind: int = TensorProto.FLOAT) -> Path:
    """A convolution, and a branch whose bodies read the input from outside."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((4, 3, 3, 3)).astype(helper.tensor_dtype_to_np_dtype(kind))
    bodies = {name: helper.make_graph([helper.make_node(name, ["image"], [f"{name}_out"])], name, [],
                                      [helper.make_tensor_value_info(f"{name}_out", kind, None)])
              for name in ("Neg", "Abs")}
    nodes = [helper.make_node("If", ["yes"], ["chosen"], then_branch=bodies["Neg"], else_branch=bodies["Abs"]),
             helper.make_node("Add", ["chosen", "image"], ["sum"]),
             helper.make_node("Sub", ["image", "sum"], ["again"]),
             helper.make_node("Conv", ["again", "weights"], ["scores"])]
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("image", kind, ["batch", 3, 6, 8])],
                              [helper.make_tensor_value_info("scores", kind, ["batch", 4, 4, 6])],
                              [numpy_helper.from_array(weights, "weights"),
                               numpy_helper.from_array(np.array(True), "yes")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def saved_program(folder: Path) -> Path:
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    free = {0: torch.export.Dim.DYNAMIC}
    torch.export.save(torch.export.export(module, (torch.rand(3, 3, 6, 8),), dynamic_shapes=(free,)), folder / "m.pt2")
    return folder / "m.pt2"


@BOTH
def test_what_numpy_makes_of_the_bytes_is_what_clients_made(spec: TensorSpec) -> None:
    images = example_inputs(Interface(inputs=(spec,)), 4)["image"]
    assert (images.dtype, images.shape[1:]) == (np.dtype(np.uint8), spec.shape[1:])
    assert images.min() < 8
    assert images.max() > 247, "made-up images use the whole range, whatever the model's vocabulary"
    np.testing.assert_allclose(normalised(spec, images), by_hand(spec, images), rtol=1e-5, atol=1e-6)
    scale, shift = factors(HOW, 4)
    folded = images.transpose(order(spec)) * scale + shift
    np.testing.assert_allclose(folded, by_hand(spec, images), rtol=1e-5, atol=1e-5)


@BOTH
def test_what_the_source_takes_and_clients_send_lead_to_each_other(spec: TensorSpec) -> None:
    own, = taken(Interface(inputs=(spec,))).inputs
    assert own == TensorSpec(name="image", dtype="float32", shape=("batch", 3, 6, 8))
    assert sent(own, spec) == spec


@BOTH
@pytest.mark.torch
@pytest.mark.parametrize("save", [saved_onnx, saved_program])
def test_the_export_takes_bytes_and_answers_as_the_source_does(spec: TensorSpec, save: Any, tmp_path: Path) -> None:
    path = save(tmp_path)
    model = load_model(locate(path), Interface(inputs=(spec,)))
    plain = load_model(locate(path), taken(Interface(inputs=(spec,))))
    assert model.interface.inputs == (spec,)
    images = [example_inputs(model.interface, batch, seed=batch) for batch in (1, 5)]
    exported = export_model(model, tmp_path / "export", images)  # holds the answers against the source's
    value = onnx.load(str(exported.path)).graph.input[0]
    assert value.name == "image"
    assert value.type.tensor_type.elem_type == TensorProto.UINT8
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]] == list(spec.shape[1:])
    got = OrtRunner(exported.path)(images[1])
    for name, expected in plain.run({"image": by_hand(spec, images[1]["image"])}).items():
        assert largest_difference(expected, got[name]) < 1e-4
        assert largest_difference(expected, model.run(images[1])[name]) < 1e-4


@BOTH
@pytest.mark.torch
@pytest.mark.parametrize(("precision", "batch", "most"), [("fp32", 0, 1e-5), ("bf16", 0, 5e-2), ("fp32", 4, 1e-5)])
def test_the_traced_program_takes_bytes(spec: TensorSpec, precision: str, batch: int, most: float,
                                        tmp_path: Path) -> None:
    import torch

    model = load_model(locate(saved_program(tmp_path)), Interface(inputs=(spec,)))
    program = model.torch_program(precision, batch)
    assert program is not None
    module = torch.export.export(program.module, program.args, dynamic_shapes=program.dynamic_shapes).module()
    images = example_inputs(model.interface, batch or 7)
    with torch.no_grad():
        answer = module(torch.from_numpy(images["image"]))[0].numpy()
    expected, = model.run(images).values()
    assert largest_difference(expected, answer) < most


@pytest.mark.torch
def test_without_normalisation_the_source_is_as_it_was(tmp_path: Path) -> None:
    path = saved_onnx(tmp_path)
    stated = Interface(inputs=(dataclasses.replace(FIRST, dtype="float32", normalise=None),))
    assert type(load_model(locate(path), stated)) is type(load_model(locate(path)))


def test_a_source_of_another_type_is_refused_with_the_field(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_model(locate(saved_onnx(tmp_path, TensorProto.FLOAT16)), Interface(inputs=(FIRST,)))
    assert caught.value.field == "spec.interface.inputs[image]"


@pytest.mark.parametrize(("changes", "field"), [
    ({"dtype": "float32"}, "spec.interface.inputs[image].dtype"),
    ({"shape": ("batch",)}, "spec.interface.inputs[image].shape"),
    ({"normalise": dataclasses.replace(HOW, mean=(0.0, 1.0))}, "spec.interface.inputs[image].normalise.mean"),
    ({"normalise": dataclasses.replace(HOW, channels="last")}, "spec.interface.inputs[image].normalise.mean"),
    ({"normalise": dataclasses.replace(HOW, std=(1.0, 1.0, 0.0))}, "spec.interface.inputs[image].normalise"),
    ({"normalise": dataclasses.replace(HOW, scale=float("nan"))}, "spec.interface.inputs[image].normalise"),
])
def test_what_cannot_be_normalised_is_refused_with_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError) as caught:
        checked(Interface(inputs=(dataclasses.replace(FIRST, **changes),)))
    assert (caught.value.reason, caught.value.field) == ("InterfaceInvalid", field)

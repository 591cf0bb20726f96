"""MaxPool behind Pad: ONNX Runtime answers as ONNX's own reference does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.sources.formats import locate

_SIZE = 8


def padded(path: Path, opset: int, own: int, up: int, *, cast: bool) -> Path:
    """Zeros around an image, and the largest number of each window: with ``own`` padding of its own, and sizes rounded
    ``up``."""
    kind = TensorProto.FLOAT
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads")
    nodes = [helper.make_node("Pad", ["x", "pads"], ["padded"])]
    if cast:
        nodes.append(helper.make_node("Cast", ["padded"], ["casted"], to=kind))
    nodes.append(helper.make_node("MaxPool", [nodes[-1].output[0]], ["y"], kernel_shape=[3, 3], strides=[2, 2],
                                  pads=[own] * 4, ceil_mode=up))
    sides = [helper.make_tensor_value_info(name, kind, ["batch", 2, *sizes])
             for name, sizes in (("x", [_SIZE, _SIZE]), ("y", [None, None]))]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], [pads])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


@pytest.mark.parametrize(("opset", "own", "up", "cast"), [
    (11, 0, 0, False), (18, 0, 0, False), (18, 0, 1, False), (18, 1, 0, False), (18, 0, 0, True)])
def test_zeros_are_the_largest_below_zero(opset: int, own: int, up: int, cast: bool, tmp_path: Path) -> None:
    path = padded(tmp_path / "m.onnx", opset, own, up, cast=cast)
    images = -np.ones((3, 2, _SIZE, _SIZE), np.float32)
    answers: Any = ReferenceEvaluator(str(path)).run(None, {"x": images})
    expected = np.asarray(answers[0])
    model = load_model(locate(path), workspace=tmp_path / "made")
    np.testing.assert_array_equal(model.run({"x": images})["y"], expected)
    assert (expected.min(), expected.max()) == (-1, 0)


@pytest.mark.torch
def test_pytorchs_padding_is_exported_as_it_is(tmp_path: Path) -> None:
    import torch

    from enginewright_builder.models.torch_base import TorchModel

    class Padded(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            zeros = torch.nn.functional.pad(x, (1, 1, 1, 1))
            return torch.nn.functional.max_pool2d(zeros, 3, 2)

    def spec(name: str, size: int) -> TensorSpec:
        return TensorSpec(name=name, dtype="float32", shape=("batch", 2, size, size))

    model = TorchModel(Padded(), Interface(inputs=(spec("x", _SIZE),), outputs=(spec("y", _SIZE // 2),)), name="m")
    export_model(model, tmp_path, [example_inputs(model.interface, 4)])  # raises where the answers differ

"""MaxPool behind Pad: ONNX Runtime answers as ONNX's own reference does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.export import export_model
from enginewright_builder.models import load_model
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.onnx_pools import keep_zeros
from enginewright_builder.sources.formats import locate

_SIZE = 8


def padded(path: Path, opset: int = 18, *, cast: bool = False, **pool: Any) -> Path:
    """Zeros around an image, and the largest number of each window of a ``pool``."""
    kind, pads = TensorProto.FLOAT, [0, 0, 1, 1, 0, 0, 1, 1]
    stated: dict[str, Any] = {"pads": pads} if opset < 11 else {}
    nodes = [helper.make_node("Pad", ["x"] if stated else ["x", "pads"], ["padded"], **stated)]
    if cast:
        nodes.append(helper.make_node("Cast", ["padded"], ["casted"], to=kind))
    nodes.append(helper.make_node("MaxPool", [nodes[-1].output[0]], ["y"],
                                  **{"kernel_shape": [3, 3], "strides": [2, 2], **pool}))
    sides = [helper.make_tensor_value_info(name, kind, ["batch", 2, *sizes])
             for name, sizes in (("x", [_SIZE, _SIZE]), ("y", [None, None]))]
    held = [] if stated else [numpy_helper.from_array(np.array(pads), "pads")]
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


def pool_of(model: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.op_type == "MaxPool")


@pytest.mark.parametrize(("opset", "cast", "pool"), [
    (11, False, {}), (18, False, {}), (18, True, {}), (18, False, {"ceil_mode": 1}),
    (18, False, {"pads": [1, 1, 1, 1]}),
    (18, True, {"pads": [1, 0, 0, 1], "ceil_mode": 1}), (10, False, {"pads": [1, 1, 1, 1]}),
    (18, False, {"pads": [1, 1, 1, 1], "dilations": [2, 2]})])
def test_zeros_are_the_largest_below_zero(opset: int, cast: bool, pool: dict[str, Any], tmp_path: Path) -> None:
    path = padded(tmp_path / "m.onnx", opset, cast=cast, **pool)
    images = -np.ones((3, 2, _SIZE, _SIZE), np.float32)
    answers: Any = ReferenceEvaluator(str(path)).run(None, {"x": images})
    expected = np.asarray(answers[0])
    model = load_model(locate(path), workspace=tmp_path / "made")
    np.testing.assert_array_equal(model.run({"x": images})["y"], expected)
    assert expected.max() == 0


def sizes(least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=2, max_size=2)


def answers_of(model: onnx.ModelProto, images: Any, *, as_it_is: bool = False) -> Any:
    """By ONNX Runtime, which joins no operators of one that it is to run ``as_it_is``. ONNX's own reference fails on
    padding of one side."""
    options = ort.SessionOptions()
    if as_it_is:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": images})[0]


@settings(max_examples=60, deadline=None)
@given(kernel=sizes(1, 4), strides=sizes(1, 3), before=sizes(0, 3), behind=sizes(0, 3), up=st.booleans(),
       seed=st.integers(0, 9))
def test_a_padding_that_repeats_the_edges_changes_no_answer(
        kernel: list[int], strides: list[int], before: list[int], behind: list[int], up: bool, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(padded(Path(folder) / "m.onnx", kernel_shape=kernel, strides=strides, pads=[*before, *behind],
                                 ceil_mode=int(up)))
    images = np.random.default_rng(seed).standard_normal((1, 2, _SIZE, _SIZE)).astype(np.float32)
    given_one = onnx.ModelProto()
    given_one.CopyFrom(model)
    assert keep_zeros(model)
    assume(len(pool_of(model).output) == 1)
    np.testing.assert_array_equal(answers_of(model, images), answers_of(given_one, images, as_it_is=True))


def test_a_pool_has_one_output_as_tensorrt_asks_for(tmp_path: Path) -> None:
    """TensorRT 10.6 refuses the model otherwise; where windows have gaps there is no other way."""
    pools: list[tuple[dict[str, Any], int]] = [({}, 1), ({"pads": [1, 1, 1, 1]}, 1), ({"ceil_mode": 1}, 1),
                                               ({"pads": [1, 1, 1, 1], "dilations": [2, 2]}, 2)]
    for number, (pool, outputs) in enumerate(pools):
        model = onnx.load(padded(tmp_path / f"{number}.onnx", **pool))
        keep_zeros(model)
        onnx.checker.check_model(model)
        assert len(pool_of(model).output) == outputs


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

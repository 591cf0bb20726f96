"""Names after export: the interface's, whatever is inside."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.onnx_names import apply_interface, placeholder_names


def exported(inner: str = "h", *, branch: bool = False) -> onnx.ModelProto:
    """``y = relu(x) + relu(x)`` with placeholder names outside and ``inner`` inside."""
    (x,), (y,) = placeholder_names("in", ["x"]), placeholder_names("out", ["y"])
    nodes = [helper.make_node("Relu", [x], [inner]), helper.make_node("Add", [inner, inner], [y])]
    if branch:
        body = helper.make_graph([helper.make_node("Neg", [inner], ["b"])], "body", [],
                                 [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)])
        condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", TensorProto.BOOL, [], [True]))
        nodes[1:] = [condition, helper.make_node("If", ["c"], [y], then_branch=body, else_branch=body)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["s0", "s1"])],
                              [helper.make_tensor_value_info(y, TensorProto.FLOAT, ["s0", "s1"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def interface(output: str = "y") -> Interface:
    return Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", "1..8")),),
                     outputs=(TensorSpec(name=output, dtype="float32", shape=("batch", "y_1")),))


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("inner", ["h", "y", "x", "enginewright__y"])
def test_inner_values_step_aside(inner: str, branch: bool) -> None:
    """The exporter may call an inner value as the user calls an output; a graph with both is invalid."""
    model = exported(inner, branch=branch)
    apply_interface(model, interface())
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["x"]
    assert [value.name for value in model.graph.output] == ["y"]


def test_free_dimensions_are_named_once() -> None:
    model = exported()
    apply_interface(model, interface())
    shapes = [[dim.dim_param for dim in value.type.tensor_type.shape.dim]
              for value in (*model.graph.input, *model.graph.output)]
    assert shapes == [["batch", "x_1"], ["batch", "x_1"]]

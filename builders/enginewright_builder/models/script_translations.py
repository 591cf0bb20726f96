"""Operators that PyTorch's exporter of TorchScript lacks, as ONNX: cells of recurrent networks that a scripted loop
calls, and what those ask of their inputs first."""

from __future__ import annotations

from typing import Any

import torch

_OPSET = 13  # the first whose Split takes its sizes as an input


def teach_exporter() -> None:
    """Adds them to what ``torch.onnx.export(…, dynamo=False)`` converts."""
    for name, symbolic in {"__contains_": _contains, "gru_cell": _gru_cell, "rnn_tanh_cell": _rnn_cell("Tanh"),
                           "rnn_relu_cell": _rnn_cell("Relu")}.items():
        torch.onnx.register_custom_op_symbolic(  # type: ignore[attr-defined]
            f"aten::{name}", symbolic, _OPSET)


def _contains(g: Any, values: Any, wanted: Any) -> Any:
    """Whether a number is in a constant list, as the number of dimensions of a cell's input is."""
    same = g.op("Cast", g.op("Equal", values, wanted), to_i=torch.onnx.TensorProtoDataType.INT64)
    return g.op("Cast", g.op("ReduceMax", same, keepdims_i=0), to_i=torch.onnx.TensorProtoDataType.BOOL)


def _gru_cell(g: Any, x: Any, state: Any, *weights: Any) -> Any:
    """The formula of ``torch.nn.GRUCell``, whose gates are reset, update and new, in this order."""
    of_input, of_state = (_parts(g, product, weights[1]) for product in _products(g, x, state, *weights))
    reset, update = (g.op("Sigmoid", g.op("Add", *pair)) for pair in zip(of_input[:2], of_state[:2], strict=True))
    new = g.op("Tanh", g.op("Add", of_input[2], g.op("Mul", reset, of_state[2])))
    return g.op("Add", new, g.op("Mul", update, g.op("Sub", state, new)))


def _rnn_cell(activation: str) -> Any:
    def cell(g: Any, x: Any, state: Any, *weights: Any) -> Any:
        return g.op(activation, g.op("Add", *_products(g, x, state, *weights)))

    return cell


def _products(g: Any, x: Any, state: Any, input_weight: Any, state_weight: Any, input_bias: Any = None,
              state_bias: Any = None) -> tuple[Any, Any]:
    def product(value: Any, weight: Any, bias: Any) -> Any:
        absent = bias is None or bias.node().mustBeNone()
        return g.op("Gemm", value, weight, *(() if absent else (bias,)), transB_i=1)

    return product(x, input_weight, input_bias), product(state, state_weight, state_bias)


def _parts(g: Any, gates: Any, state_weight: Any) -> Any:
    """Three of the state's size, of which ``state_weight`` has as many columns."""
    width = state_weight.type().sizes()[1]
    return g.op("Split", gates, g.op("Constant", value_t=torch.tensor([width] * 3)), axis_i=1, outputs=3)

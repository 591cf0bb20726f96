"""Static INT8 as quantisers write it: Q/DQ around every product, signed weights by channel, calibrated activations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gate_study.networks import Array, Network, Params

_PRODUCTS = ("MatMul", "Conv")
Scales = Mapping[str, tuple[float, int]]


def rounded_weights(network: Network, bits: int = 8) -> dict[str, Array]:
    """Weights as they are after Q/DQ by output channel; biases stay."""
    return {name: _rounded(value, bits) if value.ndim > 1 else value for name, value in network.params.items()}


def _rounded(value: Array, bits: int) -> Array:
    # The last axis of a dense layer's weights is its output, the first of a convolution's.
    axes = tuple(range(value.ndim - 1)) if value.ndim == 2 else tuple(range(1, value.ndim))
    largest = 2 ** (bits - 1) - 1
    scale = np.abs(value).max(axis=axes, keepdims=True) / largest
    found: Array = (np.clip(np.round(value / np.where(scale == 0, 1, scale)), -largest, largest) * scale)
    return found.astype(np.float32)


def calibrated(ranges: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, int]]:
    """Unsigned 8-bit scale and zero point of each activation, from the smallest and largest value seen."""
    found = {}
    for name, (low, high) in ranges.items():
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max(high - low, 1e-8) / 255
        found[name] = (scale, int(np.clip(round(-low / scale), 0, 255)))
    return found


def product_inputs(model: onnx.ModelProto) -> list[str]:
    """Activations that go into products."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return list(dict.fromkeys(name for node in model.graph.node if node.op_type in _PRODUCTS
                              for name in node.input[:2] if name not in constants))


def static_int8(network: Network, scales: Scales, params: Params | None = None) -> onnx.ModelProto:
    model = network.model(params or rounded_weights(network))
    nodes: list[onnx.NodeProto] = []
    done: dict[str, str] = {}
    for node in model.graph.node:
        for place, name in enumerate(node.input if node.op_type in _PRODUCTS else ()):
            if name in scales and name not in done:
                nodes += _around(model, name, *scales[name])
                done[name] = f"{name}_DequantizeLinear_Output"
            if name in done:
                node.input[place] = done[name]
        nodes.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _around(model: onnx.ModelProto, name: str, scale: float, zero: int) -> list[onnx.NodeProto]:
    model.graph.initializer.extend([numpy_helper.from_array(np.array(scale, np.float32), f"{name}_scale"),
                                    numpy_helper.from_array(np.array(zero, np.uint8), f"{name}_zero_point")])
    how = [f"{name}_scale", f"{name}_zero_point"]
    return [helper.make_node("QuantizeLinear", [name, *how], [f"{name}_QuantizeLinear_Output"]),
            helper.make_node("DequantizeLinear", [f"{name}_QuantizeLinear_Output", *how],
                             [f"{name}_DequantizeLinear_Output"])]

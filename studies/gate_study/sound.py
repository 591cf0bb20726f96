"""Engines that are right, each changed in a way that optimisers change them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from gate_study.networks import Array, Network
from gate_study.quantised import Scales, rounded_weights, static_int8

Rng = np.random.Generator


def half_precision(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return network.model(element=TensorProto.FLOAT16)


def bfloat16_weights(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return network.model({name: _cut(value, 16) for name, value in network.params.items()})


def tf32_weights(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return network.model({name: _cut(value, 13) for name, value in network.params.items()})


def int8(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return static_int8(network, scales)


def int8_weights(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return network.model(rounded_weights(network))


def generous_calibration(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Ranges a little wider than needed, as percentile and moving-average calibrators leave them."""
    factor = float(rng.uniform(1.0, 1.3))
    return static_int8(network, {name: (scale * factor, zero) for name, (scale, zero) in scales.items()})


def reordered_sums(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Hidden units in another order: the same function, summed in another order."""
    before, after = _NEIGHBOURS[network.kind]
    params = dict(network.params)
    order = rng.permutation(params[f"{before}_bias"].shape[0])
    convolution = params[before].ndim == 4
    params[before] = params[before][order] if convolution else params[before][:, order]
    params[f"{before}_bias"] = params[f"{before}_bias"][order]
    params[after] = params[after][:, order] if convolution else params[after][order]
    return network.model(params)


def optimised_graph(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """As it is: ONNX Runtime fuses what it runs as a candidate, and nothing in the reference."""
    return network.model()


_NEIGHBOURS = {"perceptron": ("first", "hidden"), "convolution": ("hidden", "last"), "transformer": ("widen", "narrow")}


def _cut(value: Array, bits: int) -> Array:
    """Rounded to so many bits less than float32 has, as a hardware's shorter mantissa does."""
    raw = value.view(np.uint32) + np.uint32(1 << (bits - 1))
    found: Array = (raw & ~np.uint32((1 << bits) - 1)).view(np.float32)
    return found


SOUND = (half_precision, bfloat16_weights, tf32_weights, int8, int8_weights, generous_calibration, reordered_sums,
         optimised_graph)

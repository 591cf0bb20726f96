"""Engines that are wrong, each in a way that builds, conversions and mistakes make them wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gate_study.networks import Array, Network, Params, random_network
from gate_study.quantised import Scales, rounded_weights, static_int8

Rng = np.random.Generator


def wrong_scale(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    name = str(rng.choice(sorted(scales)))
    scale, zero = scales[name]
    factor = float(np.exp2(rng.uniform(1, 5) * rng.choice([-1, 1])))
    return static_int8(network, {**scales, name: (scale * factor, zero)})


def wrong_zero_point(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    name = str(rng.choice(sorted(scales)))
    scale, zero = scales[name]
    return static_int8(network, {**scales, name: (scale, int((zero + rng.integers(40, 216)) % 256))})


def stale_calibration(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Calibrated on inputs of another size."""
    factor = float(rng.choice([0.05, 0.1, 0.2, 10, 20]))
    return static_int8(network, {name: (scale * factor, zero) for name, (scale, zero) in scales.items()})


def too_few_bits(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return static_int8(network, scales, rounded_weights(network, bits=int(rng.choice([2, 3]))))


def swapped_weights(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    names = _weights(network)
    pairs = [(one, other) for one in names for other in names
             if one < other and network.params[one].shape == network.params[other].shape]
    one, other = pairs[rng.integers(len(pairs))]
    return network.model({**network.params, one: network.params[other], other: network.params[one]})


def zeroed_weights(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return _changed(network, rng, lambda value: value * (rng.random(value.shape) >= rng.choice([0.3, 0.6, 1.0])))


def transposed_weights(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    square = [name for name in _weights(network) if network.params[name].shape[0] == network.params[name].shape[1]]
    name = str(rng.choice(square))
    return network.model({**network.params, name: np.swapaxes(network.params[name], 0, 1)})


def shifted_layout(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Weights that were read in another order of their axes."""
    def reread(value: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(value, -1, 0)).reshape(value.shape)

    return _changed(network, rng, reread)


def other_model(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Of the same signature: another training."""
    return network.model({name: rng.permutation(value.ravel()).reshape(value.shape) for name, value
                          in network.params.items()})


def swapped_heads(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    if "z" not in network.heads:
        order = np.roll(np.arange(network.heads["y"]), 1)
        return network.model({**network.params, "head": network.params["head"][:, order],
                              "head_bias": network.params["head_bias"][order]})
    params = dict(network.params)
    for suffix in ("", "_bias"):
        params[f"head{suffix}"], params[f"second{suffix}"] = params[f"second{suffix}"], params[f"head{suffix}"]
    return network.model(params)


def dropped_bias(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return network.model({name: np.zeros_like(value) if name.endswith("_bias") else value
                          for name, value in network.params.items()})


def scaled_channel(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    factor, channel = float(rng.choice([-1.0, 0.0, 3.0, 8.0])), int(rng.integers(4))

    def scaled(value: Array) -> Array:
        changed = value.copy()
        changed[channel] *= factor
        return changed

    return _changed(network, rng, scaled)


def lost_activation(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    model = network.model()
    bends = [node for node in model.graph.node if node.op_type in ("Relu", "Tanh", "LayerNormalization")]
    node = bends[rng.integers(len(bends))]
    node.op_type = "Identity"
    del node.attribute[:], node.input[1:]
    return model


def mixed_rows(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Answers of a batch in another order."""
    return _behind(network.model(), lambda name, raw: [helper.make_node(
        "Slice", [raw, "begin", "end", "axis", "step"], [name])],
        begin=np.array([2**31 - 1]), end=np.array([-(2**31)]), axis=np.array([0]), step=np.array([-1]))


def constant_answer(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """The mean of what it should say, whatever it is asked."""
    return _behind(network.model(), lambda name, raw: [
        helper.make_node("ReduceMean", [raw], [f"{name}_mean"], axes=[0], keepdims=1),
        helper.make_node("Mul", [raw, "none"], [f"{name}_none"]),
        helper.make_node("Add", [f"{name}_none", f"{name}_mean"], [name])], none=np.float32(0))


def scaled_answer(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    return _behind(network.model(), lambda name, raw: [helper.make_node("Mul", [raw, "factor"], [name])],
                   factor=np.float32(rng.choice([-1.0, 0.1, 0.5, 2.0, 100.0])))


def shifted_answer(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Off by the same everywhere, as where a regressor's mean is not added or a score's threshold is another's."""
    return _behind(network.model(), lambda name, raw: [helper.make_node("Add", [raw, "offset"], [name])],
                   offset=np.float32(rng.choice([-1.0, -0.3, 0.3, 1.0, 5.0])))


def coarse_answer(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Rounded to few steps, as an output is that was quantised for a wider range."""
    return _behind(network.model(), lambda name, raw: [
        helper.make_node("Div", [raw, "step"], [f"{name}_steps"]),
        helper.make_node("Round", [f"{name}_steps"], [f"{name}_whole"]),
        helper.make_node("Mul", [f"{name}_whole", "step"], [name])], step=np.float32(rng.choice([0.5, 1.0, 2.0])))


def other_link(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Logits for probabilities, or the other way round."""
    return dataclasses.replace(network, probabilities=not network.probabilities).model()


def rarely_wrong(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Right on most inputs; wrong where one feature is large: an overflow, a table's last rows, a trigger."""
    flat = int(np.prod(network.shape))
    threshold = np.float32(np.quantile(network.samples(4000, 99).reshape(4000, -1)[:, 0],
                                       1 - rng.choice([0.02, 0.05, 0.1, 0.2, 0.3])))
    return _behind(network.model(), lambda name, raw: [
        helper.make_node("Reshape", ["x", "flat"], [f"{name}_flat"]),
        helper.make_node("Slice", [f"{name}_flat", "zero", "one", "one"], [f"{name}_first"]),
        helper.make_node("Greater", [f"{name}_first", "threshold"], [f"{name}_hit"]),
        helper.make_node("Neg", [raw], [f"{name}_wrong"]),
        helper.make_node("Where", [f"{name}_hit", f"{name}_wrong", raw], [name])],
        flat=np.array([-1, flat]), zero=np.array([0]), one=np.array([1]), threshold=threshold)


def overflow(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Half precision, in which one layer exceeds 65,504."""
    name = str(rng.choice(_weights(network)))
    return network.model({**network.params, name: network.params[name] * np.float32(1e5)}, TensorProto.FLOAT16)


def reversed_input(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Channels, features or tokens the other way round, as BGR for RGB."""
    model = network.model()
    first = model.graph.node[0]
    first.input[0] = "x_reversed"
    model.graph.initializer.extend(_constants(begin=np.array([-1]), end=np.array([-(2**31)]), axis=np.array([1]),
                                              step=np.array([-1])))
    nodes = [helper.make_node("Slice", ["x", "begin", "end", "axis", "step"], ["x_reversed"]), *model.graph.node]
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def another_seed(network: Network, scales: Scales, rng: Rng) -> onnx.ModelProto:
    """Another network of the same kind and sizes."""
    other = random_network(network.seed + 3_000_003)
    params: Params = {name: other.params[name] if name in other.params and other.params[name].shape == value.shape
                      else rng.permutation(value.ravel()).reshape(value.shape)
                      for name, value in network.params.items()}
    return network.model(params)


def _weights(network: Network) -> list[str]:
    return [name for name, value in network.params.items() if value.ndim > 1]


def _changed(network: Network, rng: Rng, change: Callable[[Array], Array]) -> onnx.ModelProto:
    name = str(rng.choice(_weights(network)))
    return network.model({**network.params, name: np.asarray(change(network.params[name]), np.float32)})


def _behind(model: onnx.ModelProto, nodes: Callable[[str, str], list[onnx.NodeProto]],
            **constants: np.generic | np.ndarray) -> onnx.ModelProto:  # type: ignore[type-arg]
    """Puts ``nodes(output, raw)`` behind every output."""
    model.graph.initializer.extend(_constants(**constants))
    for output in model.graph.output:
        last = next(node for node in model.graph.node if output.name in node.output)
        last.output[0] = f"{output.name}_raw"
        model.graph.node.extend(nodes(output.name, f"{output.name}_raw"))
    return model


def _constants(**constants: np.generic | np.ndarray) -> list[TensorProto]:  # type: ignore[type-arg]
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]


SABOTAGES = (wrong_scale, wrong_zero_point, stale_calibration, too_few_bits, swapped_weights, zeroed_weights,
             transposed_weights, shifted_layout, other_model, another_seed, swapped_heads, dropped_bias, scaled_channel,
             lost_activation, mixed_rows, constant_answer, scaled_answer, shifted_answer, coarse_answer, other_link,
             rarely_wrong, overflow, reversed_input)

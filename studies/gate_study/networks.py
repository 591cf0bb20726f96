"""Small random networks as ONNX: perceptrons, convolutions, a transformer's block; one or two heads, logits or
probabilities of classes, or one number a sample: a regressor's, or a binary score. Everything follows from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.float32]
Params = Mapping[str, Array]

KINDS = ("perceptron", "convolution", "transformer")
_OPSET, _IR = 17, 9
_CHANNELS, _PICTURE, _TOKENS = 3, 6, 6
# Of all networks: those that answer with one number.
_SINGLE = 0.3


@dataclass(frozen=True, kw_only=True)
class Network:
    """``shape`` is one sample's. ``heads`` maps outputs to their entries."""

    kind: str
    params: Params
    shape: tuple[int, ...]
    heads: Mapping[str, int]
    probabilities: bool
    seed: int = field(default=0)

    def model(self, params: Params | None = None, element: int = TensorProto.FLOAT) -> onnx.ModelProto:
        """The graph with ``params`` (default: its own), inner values in ``element``, inputs and outputs in float32."""
        graph = _Graph(self, params or self.params, element)
        value = _BODIES[self.kind](graph, graph.node("Cast", ["x"], to=element))
        for name, weight in (("y", "head"), ("z", "second")):
            if name in self.heads:
                answer = self._linked(graph, graph.dense(value, weight))
                graph.nodes.append(helper.make_node("Cast", [answer], [name], name=f"out_{name}",
                                                    to=TensorProto.FLOAT))
        return graph.finished()

    @property
    def single(self) -> bool:
        return set(self.heads.values()) == {1}

    def _linked(self, graph: _Graph, logits: str) -> str:
        if not self.probabilities:
            return logits
        return graph.node("Sigmoid", [logits]) if self.single else graph.node("Softmax", [logits], axis=-1)

    def samples(self, count: int, seed: int) -> Array:
        """Clusters around a few centres, as classes are, with features of unequal spread."""
        fixed, rng = np.random.default_rng(self.seed + 7), np.random.default_rng([self.seed, seed])
        centres = fixed.normal(0, 1.2, (6, *self.shape))
        spread = fixed.uniform(0.5, 1.5, self.shape)
        picks = rng.integers(0, len(centres), count)
        drawn: Array = (centres[picks] + spread * rng.normal(size=(count, *self.shape))).astype(np.float32)
        return drawn


class _Graph:
    def __init__(self, network: Network, params: Params, element: int) -> None:
        self.network, self.params, self.element = network, params, element
        self.nodes: list[onnx.NodeProto] = []

    def node(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [f"v_{name}"], name=name, **attributes))
        return f"v_{name}"

    def dense(self, value: str, weight: str) -> str:
        return self.node("Add", [self.node("MatMul", [value, weight]), f"{weight}_bias"])

    def finished(self) -> onnx.ModelProto:
        dtype = helper.tensor_dtype_to_np_dtype(self.element)
        with np.errstate(over="ignore"):
            constants = [numpy_helper.from_array(value.astype(dtype), name) for name, value in self.params.items()]
        graph = helper.make_graph(
            self.nodes, self.network.kind,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *self.network.shape])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
             for name, size in self.network.heads.items()], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)


def _perceptron(graph: _Graph, value: str) -> str:
    for layer in ("first", "hidden", "last"):
        value = graph.node("Relu", [graph.dense(value, layer)])
    return value


def _convolution(graph: _Graph, value: str) -> str:
    for layer in ("first", "hidden", "last"):
        value = graph.node("Relu", [graph.node("Conv", [value, layer, f"{layer}_bias"], pads=[1, 1, 1, 1])])
    return graph.node("Flatten", [graph.node("GlobalAveragePool", [value])])


def _transformer(graph: _Graph, value: str) -> str:
    query, key, content = (graph.dense(value, layer) for layer in ("query", "key", "value"))
    turned = graph.node("Transpose", [key], perm=[0, 2, 1])
    similar = graph.node("Mul", [graph.node("MatMul", [query, turned]), "scale"])
    attended = graph.node("MatMul", [graph.node("Softmax", [similar], axis=-1), content])
    value = graph.node("Add", [value, graph.dense(attended, "project")])
    value = graph.node("LayerNormalization", [value, "gain", "shift"], axis=-1)
    inner = graph.dense(graph.node("Tanh", [graph.dense(value, "widen")]), "narrow")
    value = graph.node("Add", [value, inner])
    return graph.node("ReduceMean", [value], axes=[1], keepdims=0)


_BODIES: dict[str, Callable[[_Graph, str], str]] = {"perceptron": _perceptron, "convolution": _convolution,
                                                    "transformer": _transformer}


def random_network(seed: int) -> Network:
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    width, classes = int(rng.choice([12, 16, 24])), 1 if rng.random() < _SINGLE else int(rng.integers(4, 12))
    heads = {"y": classes, **({"z": classes} if rng.random() < 0.4 else {})}
    params, shape = _SIZES[kind](rng, width)
    params |= _dense(rng, "head", width, classes, gain=2.0)
    if "z" in heads:
        params |= _dense(rng, "second", width, classes, gain=2.0)
    return Network(kind=kind, params=params, shape=shape, heads=heads, probabilities=bool(rng.random() < 0.3),
                   seed=seed)


def _dense(rng: np.random.Generator, name: str, inputs: int, outputs: int, gain: float = 1.4) -> dict[str, Array]:
    return {name: rng.normal(0, gain / np.sqrt(inputs), (inputs, outputs)).astype(np.float32),
            f"{name}_bias": rng.normal(0, 0.3, outputs).astype(np.float32)}


def _perceptron_sizes(rng: np.random.Generator, width: int) -> tuple[dict[str, Array], tuple[int, ...]]:
    inputs = int(rng.integers(8, 24))
    return ({**_dense(rng, "first", inputs, width), **_dense(rng, "hidden", width, width),
             **_dense(rng, "last", width, width)}, (inputs,))


def _convolution_sizes(rng: np.random.Generator, width: int) -> tuple[dict[str, Array], tuple[int, ...]]:
    def kernel(name: str, inputs: int) -> dict[str, Array]:
        made = rng.normal(0, 1.4 / np.sqrt(9 * inputs), (width, inputs, 3, 3)).astype(np.float32)
        return {name: made, f"{name}_bias": rng.normal(0, 0.2, width).astype(np.float32)}

    return ({**kernel("first", _CHANNELS), **kernel("hidden", width), **kernel("last", width)},
            (_CHANNELS, _PICTURE, _PICTURE))


def _transformer_sizes(rng: np.random.Generator, width: int) -> tuple[dict[str, Array], tuple[int, ...]]:
    params: dict[str, Array] = {}
    for name in ("query", "key", "value", "project", "widen", "narrow"):
        params |= _dense(rng, name, width, width)
    return ({**params, "scale": np.array(1 / np.sqrt(width), np.float32), "gain": np.ones(width, np.float32),
             "shift": np.zeros(width, np.float32)}, (_TOKENS, width))


_SIZES: dict[str, Callable[[np.random.Generator, int], tuple[dict[str, Array], tuple[int, ...]]]] = {
    "perceptron": _perceptron_sizes, "convolution": _convolution_sizes, "transformer": _transformer_sizes}

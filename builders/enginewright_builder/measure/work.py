"""Counts a model's arithmetic and memory traffic by running it: ONNX Runtime's profiler tells every operator's shapes.

Shapes seen while it runs need no inference, whatever the graph computes its shapes from. The model runs on the CPU at
batches of 1 and 2; all else is linear in the batch.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from enginewright_builder.measure.look import HALF_BYTES, KINDS, OPERATIONS_PER_BYTE, Kind, Look
from enginewright_builder.measure.roofline import Product, Work
from enginewright_builder.ort_session import ort
from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Tensors, whole_call

Shape = tuple[int, ...]
_KERNEL = "_kernel_time"
_ERRORS_ONLY = 3
# Loops whose trips the profiler shows one by one need no formula; these heavy operators have none here.
_UNCOUNTED = frozenset({"DeformConv", "STFT", "DFT", "QAttention", "MoE"})
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "ConvInteger"})
# They compute shapes, or name the same data otherwise.
_VIEWS = frozenset({"Constant", "ConstantOfShape", "Expand", "Flatten", "Identity", "Range", "Reshape", "Shape",
                    "Squeeze", "Unsqueeze"})


def count_work(model: Path, sample: Tensors, *, batched: bool = True) -> Work:
    """``sample`` is one sample, the batch in front; its other sizes are those that are counted. Of a model that is not
    ``batched`` one call is counted.

    Raises ``onnxruntime`` errors when the model does not run, ``ValueError`` when it runs other operators at batch 2.
    """
    one, two = _at_two_batches(model, sample, batched=batched)
    products = [_product(name, first, second) for (name, first), (_, second) in zip(one, two, strict=True)]
    return Work(products=tuple(product for product in products if product.flops),
                uncounted=tuple(sorted({name for name, _ in one} & _UNCOUNTED)))


def look(model: Path, sample: Tensors, batch: int, *, batched: bool = True) -> Look:
    """What kinds of operators a GPU's time goes to at ``batch``, as :class:`Look` counts it, from a run at one sample
    and one at two. Raises as :func:`count_work` does."""
    one, two = _at_two_batches(model, sample, batched=batched, every=True)
    seconds, operators = dict.fromkeys(KINDS, 0.0), 0
    for (name, first), (_, second) in zip(one, two, strict=True):
        if name not in _VIEWS:
            operators += 1
            seconds[first.kind] += first.cost + (batch - 1) * max(0.0, second.cost - first.cost)
    return Look.of(seconds, operators)


def _at_two_batches(model: Path, sample: Tensors, *, batched: bool, every: bool = False) -> tuple[Ran, Ran]:
    """At batches of 1 and 2, or one call twice."""
    if not batched:
        ran = _executed(model, [whole_call(sample)], every=every)
        return ran, ran
    ran = _executed(model, [_repeated(sample, size) for size in (1, 2)], every=every)
    one, two = ran[:len(ran) // 2], ran[len(ran) // 2:]
    if [name for name, _ in one] != [name for name, _ in two]:
        raise ValueError("the model runs other operators at batch 2 than at batch 1: its work cannot be counted")
    return one, two


class _Executed:
    """One operator as it ran: shapes of its inputs and first output, and how many elements of its inputs are
    constants."""

    def __init__(self, operator: str, event: Mapping[str, Any], equation: str) -> None:
        self.inputs = [_shape(entry) for entry in event["input_type_shape"]]
        self.outputs = [_shape(entry) for entry in event["output_type_shape"]]
        constant_bytes = int(event.get("parameter_size") or 0)
        self.constants = _elements_of(constant_bytes, event["input_type_shape"])
        self.flops = _FLOPS[operator](self.inputs, self.outputs, equation) if operator in _FLOPS else 0.0
        self._convolves = operator in _CONVOLUTIONS

    @property
    def kind(self) -> Kind:
        """Of :data:`KINDS`."""
        if not self.flops:
            return "rest"
        if self._convolves:
            return "depthwise" if self.inputs[1][1] == 1 and self.inputs[0][1] > 1 else "convolution"
        return "product" if self.constants else "attention"

    @property
    def cost(self) -> float:
        """Time of a GPU in bytes of its memory's traffic: of arithmetic or of memory, whichever is more. Of operators
        that only move data, engines fuse most: the answer alone counts."""
        moved = self.constants + self.activations if self.flops else float(math.prod(next(iter(self.outputs), ())))
        return max(self.flops / OPERATIONS_PER_BYTE, HALF_BYTES * moved)

    @property
    def activations(self) -> float:
        sizes = (math.prod(shape) for shape in (*self.inputs, *self.outputs))
        return sum(sizes) - self.constants


Ran = list[tuple[str, _Executed]]


def _product(operator: str, one: _Executed, two: _Executed) -> Product:
    return Product(operator=operator, flops=one.flops, weights=one.constants, activations=one.activations,
                   flops_per_sample=two.flops - one.flops,
                   activations_per_sample=two.activations - one.activations)


def _executed(model: Path, batches: Sequence[Tensors], *, every: bool = False) -> Ran:
    """The heavy operators in the order in which they ran, batch after batch; or ``every`` one."""
    equations, ran = _equations(model), []
    for event in _profile(model, batches):
        name, args = str(event["name"]).removesuffix(_KERNEL), event["args"]
        operator = args["op_name"]
        if every or operator in _FLOPS or operator in _UNCOUNTED:
            ran.append((operator, _Executed(operator, args, equations.get(name, ""))))
    return ran


def _profile(model: Path, batches: Sequence[Tensors]) -> Iterator[Mapping[str, Any]]:
    """Events of the kernels. Little more than constants is folded, so that operators keep their names and shapes, and
    weights are not packed, since packed ones are not told as parameters any more."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.intra_op_num_threads = available_cpus()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        for inputs in batches:
            session.run(None, {value.name: inputs[value.name] for value in session.get_inputs()})
        events = json.loads(Path(session.end_profiling()).read_text())
    return (event for event in events if event.get("cat") == "Node" and str(event["name"]).endswith(_KERNEL))


def _repeated(sample: Tensors, batch: int) -> dict[str, Any]:
    return {name: np.resize(array[:1], (batch, *array.shape[1:])) for name, array in sample.items()}


def _equations(model: Path) -> dict[str, str]:
    """Of the Einsum nodes, by name."""
    graph = onnx.load(str(model), load_external_data=False).graph
    return {node.name: attribute.s.decode() for node in graph.node if node.op_type == "Einsum"
            for attribute in node.attribute if attribute.name == "equation"}


def _shape(entry: Mapping[str, Sequence[int]]) -> Shape:
    """The profiler writes ``{"float": [8, 64, 384]}``."""
    return tuple(next(iter(entry.values()), ()))


def _elements_of(size: int, inputs: Sequence[Mapping[str, Sequence[int]]]) -> float:
    widths = [_WIDTHS.get(next(iter(entry), "float"), 4) for entry in inputs]
    return size / (widths[-1] if widths else 4)


_WIDTHS = {"float": 4, "float16": 2, "bfloat16": 2, "double": 8, "int8": 1, "uint8": 1, "int64": 8, "int32": 4}


def _matmul(inputs: Sequence[Shape], outputs: Sequence[Shape], _: str) -> float:
    return 2.0 * math.prod(outputs[0]) * inputs[0][-1]


def _gemm(inputs: Sequence[Shape], outputs: Sequence[Shape], _: str) -> float:
    """``|A|·|B|·|Y|`` is ``MK·KN·MN``, whatever is transposed."""
    return 2.0 * math.sqrt(math.prod(inputs[0]) * math.prod(inputs[1]) * math.prod(outputs[0]))


def _conv(inputs: Sequence[Shape], outputs: Sequence[Shape], _: str) -> float:
    """Weights are ``[out channels, in channels / groups, kernel…]``."""
    return 2.0 * math.prod(outputs[0]) * math.prod(inputs[1][1:])


def _conv_transpose(inputs: Sequence[Shape], outputs: Sequence[Shape], _: str) -> float:
    """Weights are ``[in channels, out channels / groups, kernel…]``; each input element meets them all."""
    return 2.0 * math.prod(inputs[0]) * math.prod(inputs[1][1:])


def _attention(inputs: Sequence[Shape], outputs: Sequence[Shape], _: str) -> float:
    """Two products of queries ``[…, L, E]`` with ``S`` keys and values each."""
    return 4.0 * math.prod(inputs[0]) * inputs[1][-2]


def _recurrent(inputs: Sequence[Shape], outputs: Sequence[Shape], _: str) -> float:
    """``X [steps, batch, …]`` with ``W`` and ``R``, which hold all gates and directions."""
    return 2.0 * inputs[0][0] * inputs[0][1] * (math.prod(inputs[1]) + math.prod(inputs[2]))


def _einsum(inputs: Sequence[Shape], outputs: Sequence[Shape], equation: str) -> float:
    """A multiply-add for every combination of all indices."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes = {index: size for term, shape in zip(terms, inputs, strict=False)
             for index, size in zip(term, shape, strict=False)}
    return 2.0 * math.prod(sizes.values()) if len(terms) > 1 else 0.0


_FLOPS: dict[str, Callable[[Sequence[Shape], Sequence[Shape], str], float]] = {
    "MatMul": _matmul, "MatMulInteger": _matmul, "FusedMatMul": _matmul, "Gemm": _gemm, "Conv": _conv,
    "FusedConv": _conv, "ConvInteger": _conv, "ConvTranspose": _conv_transpose, "Attention": _attention,
    "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent, "Einsum": _einsum,
}

"""Two ONNX graphs of one model laid side by side, and their inner values on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from enginewright_builder.system import available_cpus
from enginewright_builder.tensors import Array, Tensors

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
# What quantisers call a value before it is rounded, where the value's own name went to the rounded one.
_BEFORE_ROUNDING = "_QuantizeLinear_Input"
# Operators that stand between a value and its use in less precision, or that use it so themselves.
_ROUNDING = frozenset({"DequantizeLinear", "DynamicQuantizeLinear"})
_INTEGER = frozenset({"MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QLinearConv",
                      "QLinearMatMul", "QGemm"})
# Quantisers round around these; what only follows them is rounded in passing.
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Gather", "Attention", "MultiHeadAttention", "LSTM",
                       "GRU", "Einsum"})
# These move numbers and compute nothing.
_MOVING = frozenset({"Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Slice", "Concat", "Expand",
                     "Flatten", "Split", "Constant", "Shape"})
# What a quantiser puts behind an integer product, or behind a rounded table.
_CHAIN = frozenset({"Cast", "Mul", "Add"})
_PREFIX = "enginewright__drift_"
_ERRORS_ONLY = 3


@dataclass(frozen=True, kw_only=True)
class LayerPair:
    """A value of the original and what it is called in the candidate. ``lowered`` as in the report."""

    tensor: str
    counterpart: str
    lowered: bool


def label(node: onnx.NodeProto) -> str:
    """What a layer is called: its node's name, or its first output where it has none."""
    return str(node.name or node.output[0])


def read_graph(path: Path) -> onnx.ModelProto:
    """Without the weights beside it, with the element types of inner values as far as ONNX itself can tell."""
    model = onnx.load(str(path), load_external_data=False)
    try:
        return onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return model


def matched(original: onnx.ModelProto, candidate: onnx.ModelProto) -> list[LayerPair]:
    """Values that nodes of the original compute and the candidate has, too, in the original's order."""
    produced = {name: node for node in candidate.graph.node for name in node.output if name}
    lowered = _Lowered(candidate, _element_types(candidate))
    known = _element_types(original)
    pairs = []
    for node in original.graph.node:
        for name in filter(None, node.output):
            counterpart = _counterpart(name, produced)
            if counterpart and known.get(name, TensorProto.FLOAT) in (TensorProto.FLOAT, *_HALVES):
                pairs.append(LayerPair(tensor=name, counterpart=counterpart,
                                       lowered=lowered.there(node, produced[counterpart])))
    return pairs


def _counterpart(name: str, produced: dict[str, onnx.NodeProto]) -> str:
    before = name + _BEFORE_ROUNDING
    return before if before in produced else name if name in produced else ""


class _Lowered:
    """Whether the candidate computes a layer in less precision, so that it could be kept from that. In a quantised
    graph: in integers, or as a product of values that were rounded just before, whatever the rest computes in; in
    others: in half precision."""

    def __init__(self, model: onnx.ModelProto, types: dict[str, int]) -> None:
        self._types = types
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._quantised = any(node.op_type in _ROUNDING | _INTEGER for node in model.graph.node)

    def there(self, layer: onnx.NodeProto, counterpart: onnx.NodeProto) -> bool:
        if self._quantised:
            return layer.op_type in _PRODUCTS and self._rounded(counterpart)
        return layer.op_type not in _MOVING and self._halved(counterpart)

    def _halved(self, node: onnx.NodeProto) -> bool:
        """A Cast back to FP32 may stand behind half precision."""
        names = [*node.output, *(node.input if node.op_type == "Cast" else ())]
        return any(self._types.get(name) in _HALVES for name in names)

    def _rounded(self, node: onnx.NodeProto, depth: int = 4) -> bool:
        """Back through a quantiser's own chain behind an integer product: Cast, Mul by the scale, Add of the bias."""
        if node.op_type in _ROUNDING or node.op_type in _INTEGER:
            return True
        before = [self._producers[name] for name in node.input if name in self._producers]
        if node.op_type in _CHAIN:
            return depth > 0 and any(self._rounded(one, depth - 1) for one in before)
        return any(one.op_type in _ROUNDING for one in before)


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    values = [*model.graph.value_info, *model.graph.output, *model.graph.input]
    return {value.name: value.type.tensor_type.elem_type for value in values if value.type.HasField("tensor_type")}


class ExposedGraph:
    """A graph whose inner values can be asked for, run on the CPU with nothing fused."""

    def __init__(self, path: Path, model: onnx.ModelProto, names: Sequence[str]) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = available_cpus()
        options.log_severity_level = _ERRORS_ONLY
        # The two graphs run by turns: threads of the one that waits must not spin.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The weights beside a large graph, as the graph itself is handed over in memory.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        exposed = onnx.ModelProto()
        exposed.CopyFrom(model)
        _widen(exposed)
        self._names = dict(_expose(exposed, names))
        self._session = ort.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self._types = {value.name: value.type for value in self._session.get_inputs()}

    def run(self, inputs: Tensors, names: Sequence[str]) -> list[Array | None]:
        """Values by ``names`` in their order; None for what is no floating-point tensor."""
        values = self._session.run([self._names[name] for name in names], dict(_typed(inputs, self._types)))
        return [value if isinstance(value, np.ndarray) and value.dtype.kind == "f" else None for value in values]


def _widen(model: onnx.ModelProto) -> None:
    """The CPU has no kernels for bfloat16: nodes compute in float32 there, and round what they answer to bfloat16."""
    types = _element_types(model)
    types.update({tensor.name: tensor.data_type for tensor in model.graph.initializer})
    halves = {name for name, element in types.items() if element == TensorProto.BFLOAT16}
    nodes: list[onnx.NodeProto] = []
    for index, node in enumerate(model.graph.node if halves else ()):
        after = []
        if node.op_type != "Cast":
            for place, name in enumerate(node.input):
                if name in halves:
                    node.input[place] = f"{_PREFIX}in_{index}_{place}"
                    nodes.append(helper.make_node("Cast", [name], [node.input[place]], to=TensorProto.FLOAT))
            for place, name in enumerate(node.output):
                if name in halves:
                    node.output[place] = f"{_PREFIX}out_{index}_{place}"
                    after.append(helper.make_node("Cast", [node.output[place]], [name], to=TensorProto.BFLOAT16))
        nodes += [node, *after]
    if halves:
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)


def _expose(model: onnx.ModelProto, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Makes ``names`` outputs, and yields what each is called: bfloat16, which NumPy lacks, comes out as float32."""
    types, outputs = _element_types(model), {value.name for value in model.graph.output}
    for index, name in enumerate(names):
        shown = name
        if types.get(name) == TensorProto.BFLOAT16:
            shown = f"{_PREFIX}{index}"
            model.graph.node.append(helper.make_node("Cast", [name], [shown], to=TensorProto.FLOAT))
        if shown not in outputs:
            model.graph.output.append(onnx.ValueInfoProto(name=shown))
        yield name, shown


def _typed(inputs: Tensors, types: dict[str, str]) -> Iterator[tuple[str, Array]]:
    """A candidate may take its inputs in half precision."""
    for name, array in inputs.items():
        if name in types:
            yield name, array.astype(np.float16) if types[name] == "tensor(float16)" else array

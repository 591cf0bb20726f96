"""ONNX graphs by hand, as old exporters, quantisers and converters of other libraries write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import NodeProto, TensorProto, helper, numpy_helper

F32, F16, I64, TEXT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.STRING
_random = np.random.default_rng(7)


def some(*shape: int, kind: Any = np.float32) -> Any:
    return (_random.normal(size=shape) / max(1, shape[0]) ** 0.5).astype(kind)


def graph(nodes: Sequence[NodeProto], inputs: dict[str, Any], outputs: dict[str, Any], constants: dict[str, Any],
          opset: int, ml: bool = False) -> onnx.ModelProto:
    """``inputs`` and ``outputs``: element type and shape by name."""
    takes, gives = ([helper.make_tensor_value_info(name, *told) for name, told in tensors.items()]
                    for tensors in (inputs, outputs))
    made = helper.make_graph(nodes, "g", takes, gives, [numpy_helper.from_array(np.asarray(one), name)
                                                        for name, one in constants.items()])
    domains = [helper.make_opsetid("", opset), *([helper.make_opsetid("ai.onnx.ml", 2)] if ml else [])]
    return helper.make_model(made, opset_imports=domains, ir_version=8)


def node(operator: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), domain=domain, **attributes)


def saved(model: onnx.ModelProto, folder: Path, **inputs: Any) -> Path:
    """``model`` in ``folder``, after ONNX Runtime has answered ``inputs``."""
    path = folder / "m.onnx"
    onnx.save(model, path)
    ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
    return path


def old_zoo(folder: Path) -> Path:
    """Opset 8 with a fixed batch of one: LRN, Dropout with two outputs, Reshape to fixed sizes, as Caffe's models."""
    nodes = [node("Conv", "data w b", "c", kernel_shape=[5, 5], strides=[2, 2], pads=[2, 2, 2, 2]),
             node("Relu", "c", "r"),
             node("LRN", "r", "l", size=5, alpha=1e-4, beta=0.75, bias=1.0),
             node("MaxPool", "l", "p", kernel_shape=[3, 3], strides=[2, 2]), node("Dropout", "p", "d mask", ratio=0.5),
             node("Reshape", "d sizes", "f"), node("MatMul", "f v", "g"), node("Softmax", "g", "prob", axis=1)]
    return saved(graph(nodes, {"data": (F32, [1, 3, 32, 32])}, {"prob": (F32, [1, 10])},
                       {"w": some(8, 3, 5, 5), "b": some(8), "sizes": np.array([1, 392]), "v": some(392, 10)}, 8),
                 folder, data=some(1, 3, 32, 32))


def upsampled(folder: Path) -> Path:
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("InstanceNormalization", "c s z", "i"),
             node("Upsample", "i scales", "u", mode="nearest"), node("Tanh", "u", "y")]
    return saved(graph(nodes, {"x": (F32, ["N", 3, 16, 16])}, {"y": (F32, ["N", 3, 32, 32])},
                       {"w": some(3, 3, 3, 3), "s": some(3), "z": some(3),
                        "scales": np.array([1, 1, 2, 2], np.float32)}, 9), folder, x=some(2, 3, 16, 16))


def half(folder: Path) -> Path:
    nodes = [node("Gemm", "x a b", "h"), node("Gelu", "h", "g"), node("LayerNormalization", "g s", "n"),
             node("MatMul", "n c", "y")]
    return saved(graph(nodes, {"x": (F16, ["b", 12])}, {"y": (F16, ["b", 4])},
                       {"a": some(12, 16, kind=np.float16), "b": some(16, kind=np.float16),
                        "s": np.ones(16, np.float16), "c": some(16, 4, kind=np.float16)}, 20), folder,
                 x=some(2, 12, kind=np.float16))


def quantised(folder: Path) -> Path:
    """Convolutions behind QuantizeLinear and DequantizeLinear, weights in INT8 by channel."""
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
             node("DequantizeLinear", "w ws wz", "v", axis=0), node("Conv", "d v", "c", pads=[1, 1, 1, 1]),
             node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "y")]
    return saved(graph(nodes, {"x": (F32, ["b", 3, 16, 16])}, {"y": (F32, ["b", 8])},
                       {"s": np.float32(0.03), "z": np.uint8(128), "ws": np.full(8, 0.01, np.float32),
                        "wz": np.zeros(8, np.int8),
                        "w": _random.integers(-127, 127, (8, 3, 3, 3)).astype(np.int8)}, 13), folder,
                 x=some(2, 3, 16, 16))


def integer_only(folder: Path) -> Path:
    """QLinearConv and QLinearMatMul, as TFLite's converters write them; bytes go in."""
    nodes = [node("QLinearConv", "x s z w s wz s z", "c", pads=[1, 1, 1, 1]), node("Flatten", "c", "f"),
             node("QLinearMatMul", "f s z v s wz s z", "m"), node("DequantizeLinear", "m s z", "y")]
    return saved(graph(nodes, {"x": (TensorProto.UINT8, ["b", 1, 8, 8])}, {"y": (F32, ["b", 4])},
                       {"s": np.float32(0.05), "z": np.uint8(128), "wz": np.int8(0),
                        "w": _random.integers(-60, 60, (2, 1, 3, 3)).astype(np.int8),
                        "v": _random.integers(-60, 60, (128, 4)).astype(np.int8)}, 13), folder,
                 x=_random.integers(0, 255, (2, 1, 8, 8)).astype(np.uint8))


def suppressed(folder: Path) -> Path:
    """A detector with NonMaxSuppression at its end: as many rows as it finds boxes."""
    nodes = [node("MatMul", "x v", "boxes"), node("MatMul", "x u", "raw"), node("Sigmoid", "raw", "all"),
             node("Transpose", "all", "scores", perm=[0, 2, 1]),
             node("NonMaxSuppression", "boxes scores most overlap least", "selected")]
    return saved(graph(nodes, {"x": (F32, ["b", 20, 8])}, {"selected": (I64, ["n", 3])},
                       {"v": some(8, 4), "u": some(8, 3), "most": np.array([5]), "overlap": np.array([0.5], np.float32),
                        "least": np.array([0.6], np.float32)}, 13), folder, x=some(2, 20, 8))


def words(folder: Path) -> Path:
    """Words in, counted by TfIdfVectorizer behind StringNormalizer, and a linear classifier with ZipMap."""
    nodes = [node("TfIdfVectorizer", "x", "t", mode="TF", min_gram_length=1,
             max_gram_length=1, max_skip_count=0, ngram_counts=[0], ngram_indexes=[0, 1, 2], weights=[1.0, 2.0, 0.5],
             pool_strings=["fast", "slow", "engine"]),
             node("LinearClassifier", "t", "label scores", "ai.onnx.ml", coefficients=[0.1, -0.2, 0.3, -0.1, 0.2, -0.3],
                  intercepts=[0.0, 0.1], classlabels_ints=[0, 1], post_transform="SOFTMAX")]
    return saved(graph(nodes, {"x": (TEXT, ["b", 4])}, {"label": (I64, ["b"]), "scores": (F32, ["b", 2])}, {},
                       13, True), folder, x=np.array([["fast", "slow", "engine", "a"]] * 2, np.object_))


def vector_machine(folder: Path) -> Path:
    """A support vector machine for regression behind an imputer and a scaler, as skl2onnx writes pipelines."""
    nodes = [node("Imputer", "x", "i", "ai.onnx.ml", imputed_value_floats=[0.5], replaced_value_float=float("nan")),
             node("Scaler", "i", "s", "ai.onnx.ml", offset=[0.1] * 5, scale=[2.0] * 5),
             node("SVMRegressor", "s", "y", "ai.onnx.ml", kernel_type="RBF", kernel_params=[0.3, 0.0, 3.0],
                  n_supports=4, coefficients=[0.5, -0.5, 0.25, -0.25], rho=[0.1],
                  support_vectors=[float(v) for v in some(20)])]
    return saved(graph(nodes, {"x": (F32, [None, 5])}, {"y": (F32, [None, 1])}, {}, 13, True), folder, x=some(2, 5))


def scanned(folder: Path) -> Path:
    """A filter over time by Scan, with the sequence behind the batch."""
    body = helper.make_graph([node("Mul", "h decay", "k"), node("Add", "k x", "n"), node("Identity", "n", "o")], "step",
                             [helper.make_tensor_value_info(name, F32, ["b", 4]) for name in "hx"],
                             [helper.make_tensor_value_info(name, F32, ["b", 4]) for name in "no"],
                             [numpy_helper.from_array(np.array(0.9, np.float32), "decay")])
    nodes = [node("ReduceSum", "x axis", "first", keepdims=0), node("Mul", "first nil", "zero"),
             node("Scan", "zero x", "last y", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])]
    return saved(graph(nodes, {"x": (F32, ["b", 12, 4])}, {"y": (F32, ["b", 12, 4])},
                       {"axis": np.array([1]), "nil": np.float32(0)}, 17), folder, x=some(2, 12, 4))


def branched(folder: Path) -> Path:
    """Loop with a condition on values: it doubles each call's numbers until the mean is above a bar."""
    ends = [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", F32, ["b", 6])]
    body = helper.make_graph(
        [node("Add", "v v", "w"), node("ReduceMean", "w", "m", keepdims=0), node("Less", "m bar", "go")], "turn",
        [helper.make_tensor_value_info("i", I64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", F32, ["b", 6])], ends,
        [numpy_helper.from_array(np.array(8, np.float32), "bar")])
    nodes = [node("Abs", "x", "a"), node("Loop", "most yes a", "y", body=body)]
    return saved(graph(nodes, {"x": (F32, ["b", 6])}, {"y": (F32, ["b", 6])},
                       {"most": np.array(9), "yes": np.array(True)}, 13), folder, x=some(2, 6))


def warped(folder: Path) -> Path:
    """A spatial transformer: GridSample by AffineGrid of a small network, Einsum and ScatterND beside it."""
    nodes = [node("Flatten", "x", "f"), node("MatMul", "f w", "t"), node("Reshape", "t two_three", "theta"),
             node("AffineGrid", "theta size", "grid", align_corners=0), node("GridSample", "x grid", "y")]
    return saved(graph(nodes, {"x": (F32, [2, 3, 8, 8])}, {"y": (F32, [2, 3, 8, 8])},
                       {"w": some(192, 6), "two_three": np.array([-1, 2, 3]), "size": np.array([2, 3, 8, 8])}, 20),
                 folder, x=some(2, 3, 8, 8))

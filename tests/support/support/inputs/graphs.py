"""ONNX graphs as exporters write them: without a batch, with a frozen one, with scalars, of every type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Sizes = Sequence[int | str | None]
OPSET = 18
F32, F16, BF16, F64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE
I64, U8, BOOL, STRING = TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL, TensorProto.STRING
_RANDOM = np.random.default_rng(26)


def value(name: str, kind: int, shape: Sizes | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def matrix(rows: int, columns: int, kind: int = F32) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = _RANDOM.normal(size=(rows, columns)) / rows ** 0.5
    return made.astype(helper.tensor_dtype_to_np_dtype(kind))


def model(nodes: Sequence[NodeProto], inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto],
          constants: dict[str, Any] | None = None, *, opset: int = OPSET, domains: Sequence[str] = ()
          ) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, [numpy_helper.from_array(np.asarray(one), name)
                                                                for name, one in (constants or {}).items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[
        helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)])


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def product(shape: Sizes, answer: Sizes, *, kind: int = F32, opset: int = OPSET) -> onnx.ModelProto:
    """``y = relu(x · w)``, 16 features to 8."""
    return model([node("MatMul", "x w", "h"), node("Relu", "h", "y")], [value("x", kind, shape)],
                 [value("y", kind, answer)], {"w": matrix(16, 8, kind)}, opset=opset)


def few_bits(*, native: bool) -> onnx.ModelProto:
    """Two products with weights in 4 bits and blocks of 32, as exports of GPTQ and AWQ have them: with ``native`` in
    ONNX Runtime's own operator, else behind a DequantizeLinear."""
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    wide = model([node("MatMul", "x up", "h"), node("Relu", "h", "r"), node("MatMul", "r down", "y")],
                 [value("x", F32, ["batch", 64])], [value("y", F32, ["batch", 64])],
                 {"up": matrix(64, 256), "down": matrix(256, 64)}, opset=21)
    work = MatMulNBitsQuantizer(wide, bits=4, block_size=32, is_symmetric=True,
                                quant_format=QuantFormat.QOperator if native else QuantFormat.QDQ)
    work.process()
    few: onnx.ModelProto = work.model.model
    return few


def minus_one() -> onnx.ModelProto:
    return product([-1, 16], [-1, 8])


def scalar_beside_batch() -> onnx.ModelProto:
    """Scores of images above a threshold that the client sends with them."""
    return model([node("GlobalAveragePool", "image", "p"), node("Flatten", "p", "f"), node("MatMul", "f w", "h"),
                  node("Sub", "h threshold", "scores")],
                 [value("image", F32, ["N", 3, 8, 8]), value("threshold", F32, [])], [value("scores", F32, ["N", 8])],
                 {"w": matrix(3, 8)})


def voice(slow: int = 32) -> onnx.ModelProto:
    """Silero's shapes: sound, a state that the client sends back with the next call, and the rate as a scalar. Sound of
    another rate than 16,000 has ``slow`` numbers, and a free size where that differs."""
    def branch(weights: str) -> onnx.GraphProto:
        return helper.make_graph([node("MatMul", f"sound {weights}", f"{weights}_out")], weights, [],
                                 [value(f"{weights}_out", F32, ["batch", 8])])

    return model([node("Equal", "sr rate", "fast"),
                  helper.make_node("If", ["fast"], ["h"], then_branch=branch("w16"), else_branch=branch("w8")),
                  node("Unsqueeze", "h zero", "u"), node("Mul", "state half", "kept"), node("Add", "kept u", "stateN"),
                  node("ReduceMean", "stateN ends", "m", keepdims=0), node("Unsqueeze", "m one", "mm"),
                  node("Sigmoid", "mm", "output")],
                 [value("sound", F32, ["batch", 32 if slow == 32 else "samples"]), value("state", F32, [2, "batch", 8]),
                  value("sr", I64, [])],
                 [value("output", F32, ["batch", 1]), value("stateN", F32, [2, "batch", 8])],
                 {"w16": matrix(32, 8), "w8": matrix(slow, 8), "rate": np.int64(16000), "half": np.float32(0.5),
                  "zero": np.array([0]), "one": np.array([1]), "ends": np.array([0, 2])})


def scalar_answer() -> onnx.ModelProto:
    return model([node("MatMul", "x w", "h"), node("ReduceSum", "h", "total", keepdims=0)],
                 [value("x", F32, ["batch", 16])], [value("total", F32, [])], {"w": matrix(16, 8)})


def sound(kernel: int = 25, stride: int = 10, width: int = 4) -> onnx.ModelProto:
    """Each frame is of the sound beside it, so that it needs no mask."""
    return model([node("Unsqueeze", "input_values channel", "one"), node("Conv", "one w", "many", strides=[stride]),
                  node("Transpose", "many", "frames", perm=[0, 2, 1]), node("Tanh", "frames", "logits")],
                 [value("input_values", F32, ["batch", "time"])], [value("logits", F32, ["batch", "frames", width])],
                 {"w": matrix(kernel, width).T[:, None], "channel": np.array([1])})


def time_first() -> onnx.ModelProto:
    """Frames in, frames out, and each depends on those before it: what stands in front is no batch."""
    return model([node("CumSum", "frames axis", "sums"), node("MatMul", "sums w", "scores")],
                 [value("frames", F32, ["time", 16])], [value("scores", F32, ["time", 8])],
                 {"w": matrix(16, 8), "axis": np.int64(0)})


def boundless() -> onnx.ModelProto:
    """Each call asks for 2^60 bytes, which no machine has, however its kernel overcommits."""
    return model([node("ReduceSum", "x axes", "sum", keepdims=0), node("Mul", "sum zero", "nothing"),
                  node("Cast", "nothing", "none", to=I64), node("Add", "none many", "size"),
                  node("Unsqueeze", "size front", "shape"), node("Expand", "zero shape", "wide"),
                  node("ReduceMax", "wide front", "top", keepdims=0), node("MatMul", "x w", "h"),
                  node("Add", "h top", "y")],
                 [value("x", F32, ["batch", 16])], [value("y", F32, ["batch", 8])],
                 {"w": matrix(16, 8), "axes": np.array([0, 1]), "zero": np.float32(0.0), "many": np.int64(2**58),
                  "front": np.array([0])})


def frozen_shapes(batch: int) -> onnx.ModelProto:
    """Only what the graph declares is frozen."""
    return product([batch, 16], [batch, 8])


def frozen_reshape(batch: int) -> onnx.ModelProto:
    """The batch is written into the target of a Reshape."""
    return model([node("Reshape", "x target", "r"), node("MatMul", "r w", "y")], [value("x", F32, [batch, 4, 4])],
                 [value("y", F32, [batch, 8])], {"target": np.array([batch, 16]), "w": matrix(16, 8)})


def frozen_together(batch: int) -> onnx.ModelProto:
    """Each answer depends on the whole batch."""
    return model([node("ReduceMean", "x axes", "m", keepdims=1), node("Sub", "x m", "c"), node("MatMul", "c w", "y")],
                 [value("x", F32, [batch, 16])], [value("y", F32, [batch, 8])],
                 {"axes": np.array([0]), "w": matrix(16, 8)})


def recommender() -> onnx.ModelProto:
    """A user and an item, each one number a sample, beside what the user looked at before; the score is one number, and
    the shelf a whole one."""
    return model([node("Gather", "users user", "u"), node("Gather", "items item", "i"), node("MatMul", "seen w", "s"),
                  node("Add", "u s", "us"), node("Mul", "us i", "p"), node("ReduceSum", "p last", "score", keepdims=0),
                  node("ArgMax", "p", "shelf", axis=1, keepdims=0)],
                 [value("user", I64, ["batch"]), value("item", I64, ["batch"]), value("seen", F32, ["batch", 16])],
                 [value("score", F32, ["batch"]), value("shelf", I64, ["batch"])],
                 {"users": matrix(50, 8), "items": matrix(70, 8), "w": matrix(16, 8), "last": np.array([1])})


def found_places() -> onnx.ModelProto:
    """As many rows as it finds."""
    return model([node("Greater", "x limit", "b"), node("NonZero", "b", "places")], [value("x", F32, ["batch", 16])],
                 [value("places", I64, [2, "found"])], {"limit": np.float32(1.0)})


def masked() -> onnx.ModelProto:
    """A mask in, and one out."""
    return model([node("Where", "mask x zero", "m"), node("MatMul", "m w", "y"), node("Greater", "y zero", "positive")],
                 [value("x", F32, ["batch", 16]), value("mask", BOOL, ["batch", 16])],
                 [value("y", F32, ["batch", 8]), value("positive", BOOL, ["batch", 8])],
                 {"w": matrix(16, 8), "zero": np.float32(0)})


def from_bytes() -> onnx.ModelProto:
    return model([node("Cast", "image", "f", to=F32), node("MatMul", "f w", "y")], [value("image", U8, ["batch", 16])],
                 [value("y", F32, ["batch", 8])], {"w": matrix(16, 8) / 255})


def words(*, answers_words: bool = False) -> onnx.ModelProto:
    """Four words in, scores of classes out, or the name of the best."""
    known = ["engine", "wright", "makes", "models", "fast"]
    encode = helper.make_node("LabelEncoder", ["word"], ["number"], domain="ai.onnx.ml", keys_strings=known,
                              values_floats=[1.0, 2.0, 3.0, 4.0, 5.0], default_float=0.5)
    nodes, output = [encode, node("MatMul", "number w", "scores")], value("scores", F32, ["batch", 8])
    if answers_words:
        nodes += [node("ArgMax", "scores", "best", axis=1, keepdims=0),
                  helper.make_node("LabelEncoder", ["best"], ["name"], domain="ai.onnx.ml", default_string="none",
                                   keys_int64s=list(range(8)), values_strings=[f"class {index}" for index in range(8)])]
        output = value("name", STRING, ["batch"])
    made = model(nodes, [value("word", STRING, ["batch", 4])], [output], {"w": matrix(4, 8)}, domains=["ai.onnx.ml"])
    made.opset_import[1].version = 3
    return made


def trees(*, names: Sequence[str] = ()) -> onnx.ModelProto:
    """A forest of two trees as scikit-learn's converter writes it: the class, and its probabilities as maps. With
    ``names`` the classes are called so, and are numbered otherwise."""
    labels: dict[str, Any] = ({"classlabels_strings": list(names)} if names else {"classlabels_int64s": [0, 1, 2]})
    forest = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", post_transform="NONE", **labels,
        nodes_treeids=[0, 0, 0, 1, 1, 1], nodes_nodeids=[0, 1, 2] * 2, nodes_featureids=[0, 0, 0, 3, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * 2, nodes_values=[0.1, 0.0, 0.0, -0.2, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0] * 2, nodes_falsenodeids=[2, 0, 0] * 2, class_treeids=[0, 0, 0, 0, 1, 1],
        class_nodeids=[1, 1, 2, 2, 1, 2], class_ids=[0, 1, 1, 2, 0, 2], class_weights=[0.4, 0.1, 0.2, 0.3, 0.5, 0.5])
    made = model([forest, helper.make_node("ZipMap", ["scores"], ["probability"], domain="ai.onnx.ml", **labels)],
                 [value("x", F32, [None, 4])], [value("label", STRING if names else I64, [None])],
                 domains=["ai.onnx.ml"])
    kind = STRING if names else I64
    made.graph.output.append(helper.make_value_info("probability", helper.make_sequence_type_proto(
        helper.make_map_type_proto(kind, helper.make_tensor_type_proto(F32, [])))))
    made.opset_import[1].version = 3
    return made


def looped() -> onnx.ModelProto:
    body = helper.make_graph([node("MatMul", "before w", "p"), node("Tanh", "p", "after"),
                              node("Identity", "going", "goes")], "body",
                             [value("turn", I64, []), value("going", BOOL, []), value("before", F32, ["batch", 16])],
                             [value("goes", BOOL, []), value("after", F32, ["batch", 16])])
    return model([helper.make_node("Loop", ["turns", "yes", "x"], ["y"], body=body)], [value("x", F32, ["batch", 16])],
                 [value("y", F32, ["batch", 16])], {"w": matrix(16, 16), "turns": np.int64(3), "yes": np.array(True)})


def custom() -> onnx.ModelProto:
    return model([helper.make_node("Roll", ["x"], ["y"], domain="com.example")], [value("x", F32, ["batch", 16])],
                 [value("y", F32, ["batch", 16])], domains=["com.example"])


def sequence() -> onnx.ModelProto:
    sequences = helper.make_tensor_sequence_value_info("x", F32, ["batch", 16])
    return model([node("ConcatFromSequence", "x", "y", axis=0)], [sequences], [value("y", F32, ["batch", 16])])


def complex_numbers() -> onnx.ModelProto:
    return model([node("Identity", "x", "y")], [value("x", TensorProto.COMPLEX64, ["batch", 16])],
                 [value("y", TensorProto.COMPLEX64, ["batch", 16])])


def no_inputs() -> onnx.ModelProto:
    return model([node("Relu", "w", "y")], [], [value("y", F32, [16, 8])], {"w": matrix(16, 8)})


def bert_like() -> onnx.ModelProto:
    """A sequence of 12 tokens and no other."""
    return model([node("Gather", "table input_ids", "e"), node("Cast", "attention_mask", "m", to=F32),
                  node("Unsqueeze", "m last", "mm"), node("Mul", "e mm", "em"),
                  node("ReduceMean", "em axes", "p", keepdims=0), node("MatMul", "p w", "y")],
                 [value("input_ids", I64, ["batch", 12]), value("attention_mask", I64, ["batch", 12])],
                 [value("y", F32, ["batch", 8])],
                 {"table": matrix(50, 16), "w": matrix(16, 8), "last": np.array([2]), "axes": np.array([1])})


def function() -> onnx.ModelProto:
    made = custom()
    made.functions.append(helper.make_function("com.example", "Roll", ["x"], ["y"], [node("Relu", "x", "y")],
                                               [helper.make_opsetid("", OPSET)]))
    return made


def contributed() -> onnx.ModelProto:
    return model([node("MatMul", "x w", "h"), helper.make_node("Gelu", ["h"], ["y"], domain="com.microsoft")],
                 [value("x", F32, ["batch", 16])], [value("y", F32, ["batch", 8])], {"w": matrix(16, 8)},
                 domains=["com.microsoft"])


def from_the_future() -> onnx.ModelProto:
    made = product(["batch", 16], ["batch", 8])
    made.ir_version = 99
    return made

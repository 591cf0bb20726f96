"""Attention as TensorRT recognises it: then one kernel computes it, and the scores of all heads are never written out.

TensorRT looks for ``softmax(Q · Kᵀ + mask) · V`` with nothing in between
(https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/transformers-fused-attention.html). PyTorch's
exporter writes ``scaled_dot_product_attention`` otherwise, which is put right here:

* K is transposed through three dimensions, whose sizes are computed at run time.
* Rows that a mask covers whole, which are NaN after the softmax, are set to zero before V. They are NaN behind V just
  as well, so they are set to zero there. What V itself makes NaN there, by an overflow in FP16, is then zero, too: the
  gate sees it as wrong answers, no longer as NaN. A guard by the softmax's own rows would keep TensorRT from fusing.
* Q and K are each multiplied by the root of the scale. TensorRT 10.6 and 10.7 fuse that and answer wrongly (a cosine of
  0.90 for ViT-B/16 on an H200, https://github.com/NVIDIA/TensorRT/issues/4333), so Q alone is multiplied by the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass, ShapeInferencePass
from onnxscript.rewriter import MatchResult
from onnxscript.rewriter.pattern import RewriteRuleClassBase, RewriteRuleSet

from enginewright_builder.engines.modelopt_graphs import LARGEST_BYTES
from enginewright_builder.errors import brief

_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# As slices of a shape: where they begin, and before which place they end.
_SEQUENCE, _WIDTH, _LEADING = (-2, -1), (-1, _HIGHEST), (_LOWEST, -2)
# What scores of attention go into: the mask, or the softmax itself.
_AFTER_SCORES = ("Add", "Softmax")


def simplified(source: Path, target: Path, note: Callable[[str], None]) -> Path:
    """Where the graph lies with the attention that TensorRT knows: ``source`` itself where there is nothing to do. A
    graph that cannot be rewritten stays as it is, and ``note`` gets why; only faults of the machinery are raised."""
    try:
        return target if simplify_attention(source, target) else source
    except (MemoryError, OSError):
        raise
    except Exception as error:  # onnx-ir's, onnxscript's and NumPy's own classes
        note(f"attention stays as it was exported: {type(error).__name__}: {brief(error, 200)}")
        return source


def simplify_attention(source: Path, target: Path) -> bool:
    """Writes the graph at ``source`` to ``target``, which may be the same, with the attention that TensorRT knows. Its
    answers, and the names of the nodes that compute, stay the same.

    Returns whether there was such attention; otherwise nothing is written. What onnxscript raises goes through.
    """
    if onnx.load(str(source), load_external_data=False).graph.sparse_initializer:
        return False  # onnx-ir does not read them
    model = ir.load(source)
    ir.external_data.load_to_model(model)
    ShapeInferencePass()(model)
    rules = [kind.rule() for kind in (_KeyTranspose, _GuardBehindValues, _ScaleOnQuery)]  # type: ignore[no-untyped-call]
    if not RewriteRuleSet(rules).apply_to_model(model):
        return False
    RemoveUnusedNodesPass()(model)
    size = sum(tensor.nbytes for value in model.graph.initializers.values() if (tensor := value.const_value))
    ir.save(model, target, external_data=f"{target.name}.data" if size > LARGEST_BYTES else None)
    return True


class _KeyTranspose(RewriteRuleClassBase):
    """``[batch, heads, sequence, width]``: the last two exchanged by way of ``[batch × heads, sequence, width]``."""

    def pattern(self, op: Any, key: Any, one: Any, sequence: Any, width: Any, leading: Any) -> Any:
        flat = op.Reshape(key, op.Concat(one, sequence, width, axis=0))
        return op.Reshape(op.Transpose(flat, perm=[0, 2, 1]), op.Concat(leading, width, sequence, axis=0))

    def check(self, op: Any, *_: Any, **found: Any) -> MatchResult:
        key = found["key"]
        return _match(key.shape is not None and len(key.shape) == 4 and _numbers(found["one"]) == [-1]
                      and _takes(found["sequence"], key, _SEQUENCE) and _takes(found["width"], key, _WIDTH)
                      and _takes(found["leading"], key, _LEADING))

    def rewrite(self, op: Any, *_: Any, **found: Any) -> Any:
        return op.Transpose(found["key"], perm=[0, 1, 3, 2])


class _GuardBehindValues(RewriteRuleClassBase):
    def pattern(self, op: Any, scores: Any, zero: Any, values: Any) -> Any:
        weights = op.Softmax(scores, axis=-1, _outputs=["weights"])
        return op.MatMul(op.Where(op.IsNaN(weights), zero, weights), values, _outputs=["attended"])

    def check(self, op: Any, *_: Any, **found: Any) -> MatchResult:
        return _match(_numbers(found["zero"]) == [0])

    def rewrite(self, op: Any, *_: Any, **found: Any) -> Any:
        softmax = _named_as(found["weights"], op.Softmax(found["scores"], axis=-1))
        product = _named_as(found["attended"], op.MatMul(softmax, found["values"]))
        return op.Where(op.IsNaN(product), found["zero"], product)


class _ScaleOnQuery(RewriteRuleClassBase):
    def pattern(self, op: Any, query: Any, key: Any, root: Any, other: Any) -> Any:
        return op.MatMul(op.Mul(query, root), op.Mul(key, other), _outputs=["scores"])

    def check(self, op: Any, *_: Any, **found: Any) -> MatchResult:
        root = _numbers(found["root"])
        return _match(root is not None and len(root) == 1 and root == _numbers(found["other"])
                      and all(use.node.op_type in _AFTER_SCORES for use in found["scores"].uses()))

    def rewrite(self, op: Any, *_: Any, **found: Any) -> Any:
        # As a constant of the graph: a product of two constants would be computed at every call.
        root = _constant(found["root"])
        assert root is not None
        # onnxscript overwrites a constant whose name is taken, and quantisers call theirs NAME_scale.
        name = f"enginewright_attention_scale_{found['scores'].name}"
        scale = op.initializer(ir.tensor(np.square(root).astype(root.dtype), name=name))
        return _named_as(found["scores"], op.MatMul(op.Mul(found["query"], scale), found["key"]))


def _match(holds: bool) -> MatchResult:
    found = MatchResult()
    return found if holds else found.fail("it is not attention of this kind")


def _named_as(old: ir.Value, new: ir.Value) -> ir.Value:
    """Nodes that are to stay precise are known by their names."""
    before, after = old.producer(), new.producer()
    if before is not None and after is not None:
        after.name = before.name
    return new


def _takes(part: ir.Value, of: ir.Value, span: tuple[int, int]) -> bool:
    """Whether ``part`` is the slice ``span`` of the shape of ``of``."""
    node = part.producer()
    if node is None or node.op_type != "Slice" or len(node.inputs) > 3:
        return False
    whole, *ends = node.inputs
    shape = whole.producer() if whole is not None else None
    return (shape is not None and shape.op_type == "Shape" and shape.inputs[0] is of
            and not shape.attributes.get_int("start", 0) and "end" not in shape.attributes
            and [_numbers(end) for end in ends] == [[edge] for edge in span])


def _numbers(value: ir.Value | None) -> list[float] | None:
    constant = _constant(value)
    return None if constant is None else np.ravel(constant).tolist()


def _constant(value: ir.Value | None) -> NDArray[Any] | None:
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return None if tensor is None else tensor.numpy()

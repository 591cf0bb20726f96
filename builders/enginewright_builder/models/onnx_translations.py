"""Operators of PyTorch that its exporter to ONNX lacks or fails on, in ONNX's own; and what it takes for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnx import TensorProto
from onnxscript import opset18, rewriter
from onnxscript.function_libs.torch_lib.ops.core import aten_floor_divide
from onnxscript.rewriter import pattern

_onnx: Any = opset18  # its types do not know a value of a graph


def _all_true(condition: Any) -> Any:
    """The exporter drops assertions itself and knows nothing of the operator that they are made of."""
    return _onnx.Cast(_onnx.ReduceMin(_onnx.Cast(condition, to=TensorProto.INT32), keepdims=0), to=TensorProto.BOOL)


def _subtracted_from(value: Any, other: Any, alpha: Any = 1) -> Any:
    """``other - alpha * value``. The exporter fails on a fraction less whole numbers, such as ``1.0 - mask``."""
    if isinstance(other, float) or isinstance(alpha, float):
        value = value if value.dtype.is_floating_point() else _onnx.Cast(value, to=TensorProto.FLOAT)
    times = value if alpha == 1 else _onnx.Mul(value, _onnx.CastLike(alpha, value))
    return _onnx.Sub(_onnx.CastLike(other, value), times)


def _floor_divided(value: Any, other: Any) -> Any:
    """The exporter fails on a number that is divided by a tensor, such as ``1.0 // scale``."""
    if not isinstance(value, int | float):
        return aten_floor_divide(value, other)
    number = _onnx.CastLike(value, other)
    if other.dtype.is_floating_point():
        return _onnx.Floor(_onnx.Div(number, other))
    # ONNX rounds towards zero, PyTorch down.
    zero = _onnx.CastLike(0, other)
    apart = _onnx.Greater(other, zero) if value < 0 else _onnx.Less(other, zero)
    rest = _onnx.And(apart, _onnx.Cast(_onnx.Mod(number, other), to=TensorProto.BOOL))
    return _onnx.Sub(_onnx.Div(number, other), _onnx.CastLike(rest, other))


def _by_groups(rows: Any, weights: Any, ends: Any) -> Any:
    """Rows of each expert times its weights: the rows are sorted by expert, and ``ends`` says where those of each
    end."""
    parts, start = [], _onnx.Constant(value_ints=[0])
    for expert in range(weights.shape[0]):
        end = _onnx.Cast(_onnx.Slice(ends, [expert], [expert + 1], [0]), to=TensorProto.INT64)
        parts.append(_onnx.MatMul(_onnx.Slice(rows, start, end, [0]), _onnx.Gather(weights, expert)))
        start = end
    return _onnx.Concat(*parts, axis=0)


def _keep_small_numbers() -> None:
    """The exporter's optimiser drops ``x + 0`` and ``x * 1``, and takes what is within 1e-8 of 0 and 1e-5 of 1 for
    these. So ``x / (norm + 1e-8)`` would answer NaN where the norm is 0, as that of padding is."""
    for rule in rewriter._DEFAULT_REWRITE_RULES:
        for node in getattr(rule, "_target_pattern", ()):
            for value in node.inputs:
                if isinstance(value, pattern.Constant):
                    value._abs_tol = value._rel_tol = 0.0


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For ``custom_translation_table`` of ``torch.onnx.export``. Transformers brings an operator of its own, once it is
    imported. The exporter's optimiser is corrected beside it."""
    _keep_small_numbers()
    found: dict[Callable[..., Any], Callable[..., Any]] = {
        torch.ops.aten._is_all_true.default: _all_true, torch.ops.aten.rsub.Scalar: _subtracted_from,
        torch.ops.aten.floor_divide.default: _floor_divided}
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        found[torch.ops.transformers.grouped_mm_fallback.default] = _by_groups
    return found

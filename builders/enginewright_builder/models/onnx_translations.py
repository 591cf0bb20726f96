"""Operators of PyTorch that its exporter to ONNX lacks or fails on, in ONNX's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnx import TensorProto
from onnxscript import opset18

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


# For ``custom_translation_table`` of ``torch.onnx.export``.
TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten._is_all_true.default: _all_true, torch.ops.aten.rsub.Scalar: _subtracted_from}

"""The interface that an ONNX graph states. Needs ``onnx`` only, so that the resolve step can ask."""

from __future__ import annotations

import re

import numpy as np
import onnx

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import BATCH

_FIELD = "spec.source.uri"
_NUMBERS = frozenset(onnx.helper.get_all_tensor_dtypes()) - {onnx.TensorProto.STRING}
# It becomes part of a file's name, and stands in Triton's configuration and in messages.
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def graph_interface(model: onnx.ModelProto) -> Interface:
    """Inputs and outputs with the batch in front. Raises :class:`UserError` ``InterfaceInvalid`` where there is
    none."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    return Interface(inputs=tuple(_spec(value, "input") for value in inputs),
                     outputs=tuple(_spec(value, "output") for value in model.graph.output))


def _spec(value: onnx.ValueInfoProto, side: str) -> TensorSpec:
    tensor = value.type.tensor_type
    if not isinstance(value.name, str) or not _NAME.fullmatch(value.name):  # bytes, where it is no UTF-8
        raise UserError("InterfaceInvalid", f"{side} {value.name[:60]!r} has a name that is empty, longer than 200 "
                        "characters or holds control characters", field=_FIELD, value=value.name[:200],
                        remedy="export the model with plain names of inputs and outputs")
    if not value.type.HasField("tensor_type") or tensor.elem_type not in _NUMBERS:
        raise UserError("InterfaceInvalid", f"{side} {value.name!r} is not a tensor of numbers", field=_FIELD,
                        value=value.name, remedy="export a graph with numeric tensors only")
    dims = tensor.shape.dim
    if not dims:
        raise UserError("InterfaceInvalid", f"{side} {value.name!r} has no batch dimension", field=_FIELD,
                        value=value.name,
                        remedy="export the model with the batch as the first dimension of every input and output")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    # Some exporters write a free size as -1.
    rest = tuple(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0
                 else dim.dim_param or f"{value.name}_{axis}" for axis, dim in enumerate(dims[1:], start=1))
    return TensorSpec(name=value.name, dtype=dtype, shape=(BATCH, *rest))

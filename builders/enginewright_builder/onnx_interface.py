"""The interface that an ONNX graph states. Needs ``onnx`` only, so that the resolve step can ask."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
from onnx import TensorProto

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import BATCH, DTYPES, STRING, checked, is_batch, shape_text, takes_batches

_FIELD = "spec.source.uri"
# Operators to which NaN is no number that went wrong: trees send it one way, an Imputer fills it.
_MISSING = {"Imputer", "IsNaN", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"}
# It becomes part of a file's name, and stands in Triton's configuration and in messages.
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def graph_interface(model: onnx.ModelProto) -> Interface:
    """Inputs and outputs as the graph has them, the batch in front where that can be: where every input and output
    begins with a free size. Raises :class:`UserError` ``InterfaceInvalid`` for what no client can send or receive."""
    return with_batch(written_interface(model))


def written_interface(model: onnx.ModelProto) -> Interface:
    """Inputs and outputs in the graph's own sizes and names of sizes. Raises as :func:`graph_interface` does."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    if not inputs:
        raise UserError("InterfaceInvalid", "the graph has no inputs: it answers the same to every request",
                        field=_FIELD, value="[]", remedy="export the model with the inputs that clients send")
    return Interface(inputs=tuple(_spec(value, "input") for value in inputs),
                     outputs=tuple(_spec(value, "output") for value in model.graph.output))


def with_batch(interface: Interface) -> Interface:
    """``interface`` with its first sizes called the batch, where all of them are free."""
    specs = (*interface.inputs, *interface.outputs)
    free = all(spec.shape and isinstance(spec.shape[0], str) for spec in specs)
    return freed_interface(interface) if free else interface


def frozen_batch(interface: Interface) -> int:
    """The size in front of inputs that may be a batch which was fixed; 0 where there is none. Of a list of numbers the
    size is no batch, nor is that of layers, as of an LSTM's state, ``[2, batch, 128]``."""
    if not all(spec.shape for spec in (*interface.inputs, *interface.outputs)):  # a scalar, or no shape stated
        return 0
    fixed = [spec for spec in interface.inputs if isinstance(spec.shape[0], int)]
    if any(is_batch(size) for spec in fixed for size in spec.shape[1:]):
        return 0
    sizes = {int(spec.shape[0]) for spec in fixed}
    answers = all(isinstance(spec.shape[0], str) or spec.shape[0] in sizes for spec in interface.outputs)
    return sizes.pop() if len(sizes) == 1 and answers and all(len(spec.shape) > 1 for spec in fixed) else 0


def one_answer(interface: Interface) -> bool:
    """Whether some outputs state a single row where all inputs are free in front, as some converters write it whatever
    the batch is."""
    fixed = [spec for spec in interface.outputs if not spec.shape or isinstance(spec.shape[0], int)]
    return bool(fixed) and all(spec.shape[:1] == (1,) for spec in fixed) and all(
        spec.shape and isinstance(spec.shape[0], str) for spec in interface.inputs)


def freed_interface(interface: Interface) -> Interface:
    """With the batch in front of everything."""
    return Interface(inputs=tuple(map(_batched, interface.inputs)), outputs=tuple(map(_batched, interface.outputs)))


def _batched(spec: TensorSpec) -> TensorSpec:
    return dataclasses.replace(spec, shape=(BATCH, *spec.shape[1:]))


def merged(found: Interface, stated: Interface) -> Interface:
    """The graph's interface with the user's ranges. Raises :class:`UserError` ``InterfaceInvalid`` where they
    differ."""
    known = {spec.name: spec for spec in found.inputs}
    stated = checked(dataclasses.replace(stated, inputs=tuple(
        spec if spec.shape or spec.name not in known else dataclasses.replace(spec, shape=known[spec.name].shape)
        for spec in stated.inputs)), shapes_known=True)
    stated_inputs = {spec.name: spec for spec in stated.inputs}
    if set(known) != set(stated_inputs):
        raise UserError("InterfaceInvalid", f"the model takes {', '.join(known)}, not {', '.join(stated_inputs)}",
                        field="spec.interface.inputs", value=", ".join(stated_inputs),
                        remedy="name the model's own inputs, or leave interface out: the source tells it")
    batched = takes_batches(found)
    return Interface(inputs=tuple(_merged_spec(spec, stated_inputs[spec.name], batched=batched)
                                  for spec in found.inputs), outputs=found.outputs)


def _merged_spec(own: TensorSpec, stated: TensorSpec, *, batched: bool) -> TensorSpec:
    """The user's sizes, where the graph's are free. What the graph fixes may be written as the batch: it may turn out
    to be free."""
    name, field = stated.name, f"spec.interface.inputs[{stated.name}]"
    if not own.shape and stated.shape == (1,):  # as clients send one number
        stated = dataclasses.replace(stated, shape=())
    if batched and isinstance(stated.shape[0], int):
        raise UserError("InterfaceInvalid", f"{name!r} has the fixed size {stated.shape[0]} in front",
                        field=f"{field}.shape", value=shape_text(stated.shape),
                        remedy="the first dimension is the batch: write it as batch")
    fits = len(own.shape) == len(stated.shape) and own.dtype == stated.dtype and all(
        not isinstance(mine, int) or not isinstance(size, int) or size == mine
        for size, mine in zip(stated.shape, own.shape, strict=True))
    if not fits:
        raise UserError("InterfaceInvalid", f"input {name!r} is {own.dtype} {shape_text(own.shape)} in the model",
                        field=field, value=f"{stated.dtype} {shape_text(stated.shape)}",
                        remedy=f"write dtype: {own.dtype}, shape: {shape_text(own.shape)}")
    sizes = tuple(mine if isinstance(mine, int) or (axis == 0 and size == BATCH) else size
                  for axis, (mine, size) in enumerate(zip(own.shape, stated.shape, strict=True)))
    return dataclasses.replace(own, shape=sizes)


def _spec(value: onnx.ValueInfoProto, side: str) -> TensorSpec:
    tensor = value.type.tensor_type
    if not isinstance(value.name, str) or not _NAME.fullmatch(value.name):  # bytes, where it is no UTF-8
        raise UserError("InterfaceInvalid", f"{side} {value.name[:60]!r} has a name that is empty, longer than 200 "
                        "characters or holds control characters", field=_FIELD, value=value.name[:200],
                        remedy="export the model with plain names of inputs and outputs")
    if not value.type.HasField("tensor_type"):
        raise UserError("InterfaceInvalid", f"{side} {value.name!r} is of type {_kind(value)}, not a tensor",
                        field=_FIELD, value=value.name,
                        remedy=f"export the model with tensors as inputs and outputs{_or_others(side)}")
    if not tensor.HasField("shape"):
        raise UserError("InterfaceInvalid", f"{side} {value.name!r} has no shape, not even a number of dimensions",
                        field=_FIELD, value=value.name,
                        remedy="export the model with the shape of every input and output; sizes may be free"
                               f"{_or_others(side)}")
    # Some exporters write a free size as -1.
    shape = tuple(dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0
                  else dim.dim_param or f"{value.name}_{axis}" for axis, dim in enumerate(tensor.shape.dim))
    if 0 in shape:
        raise UserError("InterfaceInvalid", f"{side} {value.name!r} has a size of 0 in {list(shape)}", field=_FIELD,
                        value=value.name, remedy="export the model with sizes of at least 1, or free ones"
                                                 f"{_or_others(side)}")
    return TensorSpec(name=value.name, dtype=_dtype(value.name, tensor.elem_type, side), shape=shape)


def _kind(value: onnx.ValueInfoProto) -> str:
    return (value.type.WhichOneof("value") or "none").removesuffix("_type")


def _dtype(name: str, kind: int, side: str) -> str:
    """NumPy's name of the type, in which Triton's Python backend and its clients hold tensors."""
    if kind == TensorProto.STRING:
        if side == "input":
            return STRING
        raise UserError("InterfaceInvalid", f"output {name!r} is of type string: how close answers are is measured on "
                        "numbers", field=_FIELD, value=f"{name}: string",
                        remedy="end the graph before it turns numbers into texts, and leave that to the client"
                               f"{_or_others(side)}")
    if kind not in onnx.helper.get_all_tensor_dtypes():
        known = ""
    else:
        known = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).name
    if kind in _STANDING_IN or known not in DTYPES:
        type_name = TensorProto.DataType.Name(kind).lower() if kind in TensorProto.DataType.values() else str(kind)
        raise UserError("InterfaceInvalid", f"{side} {name!r} is of type {type_name}, which clients and server do not "
                        "exchange", field=_FIELD, value=f"{name}: {type_name}",
                        remedy=f"put a Cast at the graph's border, so that {name!r} is one of {', '.join(DTYPES)}"
                               f"{_or_others(side)}")
    return known


def _or_others(side: str) -> str:
    return "; or list the outputs that are served in spec.interface.outputs" if side == "output" else ""


# Types that ``onnx`` itself may hold in arrays of another one.
_STANDING_IN = frozenset({TensorProto.BFLOAT16})


def takes_missing(model: onnx.ModelProto) -> bool:
    """Whether NaN is a value that is missing, as trees, imputers and what asks for NaN take it."""
    return any(node.op_type in _MISSING for node in model.graph.node)

"""Types and shapes of model interfaces in words and numbers."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from enginewright_builder import normalise
from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError

BATCH = "batch"
# In front of what looks like a batch and is none: requests are not joined along it.
ROWS = "rows"
# Behind the batch of samples that are sequences of requests. No graph has such a name.
STEPS = "steps of a sequence"
# Upper end of a free dimension about which nothing is said.
UNBOUNDED = 1 << 31

_RANGE = re.compile(r"(\d+)\.\.(\d+)")
# What exporters call the batch, ``x_0`` where it has no name.
_BATCHES = re.compile(r"(?i)n|bs?|batch.*|rows|.*_0")
DTYPES = {
    "float32": np.float32, "float16": np.float16, "float64": np.float64, "int64": np.int64, "int32": np.int32,
    "int16": np.int16, "int8": np.int8, "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32,
    "uint64": np.uint64,
    "bool": np.bool_, "string": np.object_,
}
STRING = "string"
TEXT_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "position_ids"})


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Raises :class:`UserError` ``InterfaceInvalid`` for a type that NumPy and Triton do not share."""
    if name not in DTYPES:
        raise UserError("InterfaceInvalid", f"{name!r} is not a tensor type", field="spec.interface.inputs.dtype",
                        value=name, remedy=f"use one of {', '.join(DTYPES)}")
    return np.dtype(DTYPES[name])


def size_range(size: int | str) -> tuple[int, int]:
    """Smallest and largest size of one dimension: a number, a range ``1..512``, or a free dimension's name."""
    if isinstance(size, int):
        return size, size
    if match := _RANGE.fullmatch(size):
        return int(match[1]), int(match[2])
    return 1, UNBOUNDED


def is_batch(size: int | str) -> bool:
    """Whether a free size has a name that exporters give to the batch, wherever it stands."""
    return isinstance(size, str) and _BATCHES.fullmatch(size) is not None


def shape_text(shape: tuple[int | str, ...]) -> str:
    return f"[{', '.join(str(size) for size in shape)}]"


def takes_batches(interface: Interface) -> bool:
    """Whether one call may hold several samples: the batch stands in front of every input and output. Else a call is
    taken as a whole, in the shapes that the interface has."""
    return all(spec.shape[:1] == (BATCH,) for spec in (*interface.inputs, *interface.outputs))


def sample_shape(spec: TensorSpec, *, batched: bool) -> tuple[int | str, ...]:
    """Of one sample: without the batch, or of a whole call."""
    return spec.shape[1:] if batched else spec.shape


def is_text_interface(interface: Interface) -> bool:
    """Whether a tokenizer makes all inputs."""
    return bool(interface.inputs) and all(spec.name in TEXT_INPUTS for spec in interface.inputs)


def checked(interface: Interface, *, shapes_known: bool = False) -> Interface:
    """A user's interface, with the batch in front as ``batch`` where every input begins with a name. ``shapes_known``:
    the source has them, so that none need be written. Raises :class:`UserError` ``InterfaceInvalid``."""
    if not interface.inputs:
        raise UserError("InterfaceInvalid", "there are no inputs", field="spec.interface.inputs", value="[]",
                        remedy="list every input with name, dtype and shape")
    for side, specs in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        for spec in specs:
            _check_spec(spec, side, shapes_known=shapes_known)
    if not all(_begins_free(spec) for spec in interface.inputs):
        return interface
    return Interface(inputs=tuple(map(_batch_in_front, interface.inputs)),
                     outputs=tuple(map(_batch_in_front, interface.outputs)))


def checked_batch(interface: Interface) -> Interface:
    """As :func:`checked`, of a source that is only taken with the batch in front."""
    known = checked(interface)
    for spec in known.inputs:
        if spec.shape[0] != BATCH:
            raise UserError("InterfaceInvalid", f"{spec.name!r} has the fixed size {spec.shape[0]} in front",
                            field=f"spec.interface.inputs[{spec.name}].shape", value=shape_text(spec.shape),
                            remedy="the first dimension is the batch: write it as batch")
    return known


def _check_spec(spec: TensorSpec, side: str, *, shapes_known: bool) -> None:
    field = f"spec.interface.{side}[{spec.name}]"
    numpy_dtype(spec.dtype)
    if side == "inputs":
        normalise.check(spec)
        if not spec.shape and not shapes_known:
            raise UserError("InterfaceInvalid", f"input {spec.name!r} has no shape", field=f"{field}.shape",
                            value="[]", remedy="write for example [batch, 1..512]")
    for axis, size in enumerate(spec.shape):
        low, high = (1, 1) if axis == 0 and size == -1 else size_range(size)
        if low < 1 or high < low:
            raise UserError("InterfaceInvalid", f"{spec.name!r}: {size!r} is no size", field=f"{field}.shape",
                            value=shape_text(spec.shape), remedy="write a positive number, a range such as 1..512, or "
                                                                 "a name")


def _begins_free(spec: TensorSpec) -> bool:
    return bool(spec.shape) and (spec.shape[0] == -1 or isinstance(spec.shape[0], str))


def _batch_in_front(spec: TensorSpec) -> TensorSpec:
    return dataclasses.replace(spec, shape=(BATCH, *spec.shape[1:])) if spec.shape else spec

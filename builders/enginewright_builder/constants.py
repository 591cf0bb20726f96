"""Inputs that have one value in all requests, such as a sampling rate: they become part of the engine, and clients send
the others."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import numpy_dtype, shape_text
from enginewright_builder.tensors import Array

_SHOWN = 8


def without_constants(interface: Interface) -> Interface:
    """What is stated of the inputs that clients send."""
    return dataclasses.replace(interface, inputs=tuple(spec for spec in interface.inputs if not spec.value))


def constants_of(found: Interface, stated: Interface | None) -> dict[str, Array]:
    """The values that ``stated`` gives inputs of a graph, in the shapes that it says itself, ``found``, which is empty
    for one number. Raises :class:`UserError` ``InterfaceInvalid``."""
    known = {spec.name: spec for spec in found.inputs}
    made = {spec.name: _filled(_known(spec, known), spec) for spec in (stated.inputs if stated else ()) if spec.value}
    if known and set(made) == set(known):
        raise UserError("InterfaceInvalid", "every input of the model has a value, so that clients send none",
                        field="spec.interface.inputs", value=", ".join(made),
                        remedy="remove value from what differs between requests")
    return made


def constant_notes(values: Mapping[str, Array]) -> tuple[str, ...]:
    return tuple(f"{name} is {' '.join(f'{number:g}' for number in array.ravel()[:_SHOWN].tolist())} in every "
                 "request: it is part of the engine, and clients do not send it" for name, array in values.items())


def check_constants(format_: str, interface: Interface | None) -> None:
    """Raises :class:`UserError` ``InterfaceInvalid``."""
    for spec in interface.inputs if interface else ():
        if spec.value and format_ == "huggingface":
            raise _invalid(spec, "what a Hugging Face model takes is of each request, and no input of it has a value",
                           format_, "remove value, or export the model with torch.export.save or to ONNX")
        if spec.value and (spec.normalise or spec.preprocess):
            raise _invalid(spec, f"input {spec.name!r} has one value, and is made of what clients send", spec.name,
                           "remove value, or normalise and preprocess")


def _known(spec: TensorSpec, known: Mapping[str, TensorSpec]) -> TensorSpec:
    if spec.name not in known:
        raise _invalid(spec, f"the model has no input {spec.name!r}; it takes {', '.join(known)}", spec.name,
                       "name an input of the model")
    own = known[spec.name]
    if own.dtype != spec.dtype or own.dtype == "string":
        raise _invalid(spec, f"input {spec.name!r} is {own.dtype} in the model, not {spec.dtype}" if own.dtype !=
                       spec.dtype else f"input {spec.name!r} is of texts", spec.dtype,
                       "write the model's own type" if own.dtype != spec.dtype else "let clients send it")
    return own


def _filled(own: TensorSpec, stated: TensorSpec) -> Array:
    shape = _shape(own, stated)
    values = np.array(stated.value)
    if len(values) not in (1, math.prod(shape)):
        raise _invalid(stated, f"{len(values)} numbers do not fill {stated.name!r} {shape_text(own.shape)}",
                       list(stated.value), "write one number, or one for each element")
    kind = numpy_dtype(own.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(kind)
    exact = np.isfinite(cast.astype(np.float64)) if kind.kind == "f" else cast == values
    if not np.all(exact):
        raise _invalid(stated, f"{values[~exact][0]:g} is no {own.dtype}", list(stated.value),
                       f"write numbers of type {own.dtype}")
    return np.broadcast_to(cast if len(cast) > 1 else cast[0], shape if len(cast) == 1 else (len(cast),)
                           ).reshape(shape).copy()


def _shape(own: TensorSpec, stated: TensorSpec) -> tuple[int, ...]:
    """As the model has it, with the user's numbers where its sizes are free."""
    sizes = own.shape
    if len(own.shape) == len(stated.shape):
        sizes = tuple(size if isinstance(size, int) else other
                      for size, other in zip(own.shape, stated.shape, strict=True))
    known = tuple(size for size in sizes if isinstance(size, int))
    if len(known) != len(sizes):
        raise _invalid(stated, f"input {stated.name!r} {shape_text(own.shape)} has a free size, so that it is unknown "
                       "how many numbers it takes", shape_text(own.shape),
                       "write its sizes as numbers into shape, or let clients send it")
    return known


def _invalid(spec: TensorSpec, message: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=f"spec.interface.inputs[{spec.name}].value", value=value,
                     remedy=remedy)

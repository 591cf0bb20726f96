"""Normalisation that engines do themselves, of inputs that clients send as bytes: what it computes, and what the source
behind it takes. NumPy alone; ``models/normalised.py`` puts it before a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from enginewright_builder.contract import Interface, Normalise, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Array

# What clients send, and what the source takes.
SENT, TAKEN = "uint8", "float32"
T = TypeVar("T")


def check(spec: TensorSpec) -> None:
    """Raises :class:`UserError` ``InterfaceInvalid`` with the field for what cannot be normalised."""
    how, field = spec.normalise, f"spec.interface.inputs[{spec.name}]"
    if how is None:
        return
    if spec.dtype != SENT:
        raise UserError("InterfaceInvalid", f"input {spec.name!r} is {spec.dtype}, and only bytes are normalised",
                        field=f"{field}.dtype", value=spec.dtype, remedy=f"write {SENT}, or remove normalise")
    if len(spec.shape) < 2:
        raise UserError("InterfaceInvalid", f"input {spec.name!r} has no channels", value=list(spec.shape),
                        field=f"{field}.shape",
                        remedy="write the shape that clients send, such as [batch, 3, 224, 224]")
    channels = spec.shape[1 if how.channels == "first" else -1]
    for name, numbers in (("mean", how.mean), ("std", how.std)):
        if len(numbers) != 1 and len(numbers) != channels:
            raise UserError("InterfaceInvalid", f"input {spec.name!r} has {channels} channels", value=list(numbers),
                            field=f"{field}.normalise.{name}", remedy="write one number, or one for each channel")
    if not how.scale > 0 or not all(number > 0 for number in how.std):
        raise UserError("InterfaceInvalid", f"input {spec.name!r}: scale and std must be above 0",
                        field=f"{field}.normalise", value=[how.scale, *how.std], remedy="write positive numbers")


def channels_first(spec: TensorSpec, shape: tuple[T, ...]) -> tuple[T, ...]:
    """``shape``, or any other list with an entry for each dimension of what clients send, as the source has it."""
    return tuple(shape[axis] for axis in order(spec))


def order(spec: TensorSpec) -> tuple[int, ...]:
    """For each dimension of the source's input, which of what clients send it is."""
    axes = tuple(range(len(spec.shape)))
    if spec.normalise is None or spec.normalise.channels == "first":
        return axes
    return (0, axes[-1], *axes[1:-1])


def taken(interface: Interface) -> Interface:
    """What the source takes, of what clients send."""
    return dataclasses.replace(interface, inputs=tuple(
        dataclasses.replace(spec, dtype=TAKEN, shape=_own_shape(spec), normalise=None, preprocess=None)
        if spec.normalise else spec for spec in interface.inputs))


def _own_shape(spec: TensorSpec) -> tuple[int | str, ...]:
    shape = channels_first(spec, spec.shape)
    return (*shape[:2], *spec.preprocess.made) if spec.preprocess else shape


def sent(own: TensorSpec, stated: TensorSpec) -> TensorSpec:
    """What clients send, of the input that the source says it has, and of what the user stated of it."""
    back = np.argsort(order(stated)).tolist()
    shape = tuple(own.shape[axis] for axis in back)
    if stated.preprocess:
        shape = tuple(stated.shape[place] if axis > 1 else size
                      for place, (axis, size) in enumerate(zip(back, shape, strict=True)))
    return dataclasses.replace(own, dtype=SENT, shape=shape, normalise=stated.normalise, preprocess=stated.preprocess)


def normalised(spec: TensorSpec, sent_values: Array) -> Array:
    """The source's input, in the arithmetic that the user wrote."""
    return normalised_planes(spec, sent_values.transpose(order(spec)))


def normalised_planes(spec: TensorSpec, planes: Array) -> Array:
    """The same of what has its channels where the source has them."""
    how = spec.normalise
    assert how is not None
    values = planes.astype(np.float32)
    values = (values * np.float32(how.scale) - _column(how.mean, values.ndim)) / _column(how.std, values.ndim)
    return np.ascontiguousarray(values)


def factors(how: Normalise, dimensions: int) -> tuple[Array, Array]:
    """What to multiply the source's input by and what to add, in the shape that broadcasts over ``dimensions``: two
    operations instead of three."""
    mean, std = (np.asarray(numbers, np.float64) for numbers in (how.mean, how.std))
    return _column(how.scale / std, dimensions), _column(-mean / std, dimensions)


def _column(numbers: Iterable[float], dimensions: int) -> Array:
    return np.asarray(tuple(numbers), np.float32).reshape(-1, *(1,) * (dimensions - 2))

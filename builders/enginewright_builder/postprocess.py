"""What engines make of the source's outputs before clients get them: which steps there are, and what each computes.
NumPy alone; ``onnx_postprocess.py`` writes it into a graph, ``models/finished.py`` behind a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from enginewright_builder.contract import Interface, PostprocessStep, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import BATCH, shape_text
from enginewright_builder.tensors import Array, Tensors

_FIELD = "spec.interface.postprocess"
# Below this a length counts as zero, as in PyTorch's normalize; and a number of tokens, as in sentence-transformers.
LEAST_NORM, LEAST_TOKENS = 1e-12, 1e-9
MEAN_POOLING, ARG_MAX = "meanPooling", "argMax"
# What classes are numbered in: half the bytes of int64, and exact in every engine.
CLASSES = "int32"
# Batch, tokens, width; and of the mask batch, tokens.
_TOKENS, _MASK = 3, 2
# Batch and classes alone: Triton has no tensors without dimensions.
ALONE = 2


def without_steps(interface: Interface | None) -> Interface | None:
    """What is stated of the source itself; None where nothing is."""
    if interface is None or not (interface.inputs or interface.outputs):
        return None
    return dataclasses.replace(interface, postprocess=(), padding=None)


def finished(interface: Interface, steps: Sequence[PostprocessStep]) -> Interface:
    """What clients get and send, of what the source has. Raises :class:`UserError` ``InterfaceInvalid`` with the
    step's field."""
    outputs = {spec.name: spec for spec in interface.outputs}
    inputs = {spec.name: spec for spec in interface.inputs}
    for index, step in enumerate(steps):
        field = f"{_FIELD}[{index}]"
        if step.output not in outputs:
            raise _invalid(f"the model has no output {step.output!r}; it answers {', '.join(outputs)}",
                           f"{field}.output", step.output, "name an output of the model")
        outputs[step.output] = _after(step, outputs[step.output], inputs, field)
    return dataclasses.replace(interface, outputs=tuple(outputs.values()))


def _after(step: PostprocessStep, spec: TensorSpec, inputs: Mapping[str, TensorSpec], field: str) -> TensorSpec:
    if not spec.dtype.startswith("float"):
        raise _invalid(f"output {spec.name!r} is {spec.dtype}, and {step.function} is made of floating-point numbers",
                       f"{field}.output", spec.dtype, "name an output of scores or vectors")
    if len(spec.shape) < 2 or spec.shape[0] != BATCH:
        raise _invalid(f"output {spec.name!r} is {shape_text(spec.shape)}: {step.function} needs the batch in front "
                       "and numbers behind it", f"{field}.output", shape_text(spec.shape), "name another output")
    if step.function == ARG_MAX:
        if step.axis >= len(spec.shape):
            raise _invalid(f"output {spec.name!r} is {shape_text(spec.shape)}, and has no dimension {step.axis}",
                           f"{field}.axis", step.axis, f"write one from 1, the first behind the batch, to "
                                                       f"{len(spec.shape) - 1}")
        return dataclasses.replace(spec, dtype=CLASSES, shape=_best_shape(step, spec.shape))
    if step.function != MEAN_POOLING:
        return spec
    mask = inputs.get(step.mask)
    if mask is None or len(mask.shape) != _MASK:
        raise _invalid(f"{step.mask!r} is no input of the model that marks tokens, as [batch, tokens]",
                       f"{field}.mask", step.mask, f"name one of {', '.join(inputs)} that has 1 for each token and 0 "
                                                   "for padding")
    if len(spec.shape) != _TOKENS:
        raise _invalid(f"output {spec.name!r} is {shape_text(spec.shape)}, and {step.function} is of [batch, tokens, "
                       "width]", f"{field}.output", shape_text(spec.shape),
                       "name the output that has a vector for each token")
    return dataclasses.replace(spec, shape=(spec.shape[0], spec.shape[2]))


def _best_shape(step: PostprocessStep, shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without the dimension of classes; where nothing but the batch would be left, with one number a sample."""
    axis = best_axis(step, len(shape))
    return (shape[0], 1) if len(shape) == ALONE else (*shape[:axis], *shape[axis + 1:])


def best_axis(step: PostprocessStep, dimensions: int) -> int:
    """Of an output with so many dimensions, counted from 0."""
    return step.axis or dimensions - 1


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=field, value=value, remedy=remedy)


def applied(steps: Sequence[PostprocessStep], inputs: Tensors, answers: Tensors) -> Tensors:
    """What clients get for ``inputs``, of what the source ``answers``."""
    made = dict(answers)
    for step in steps:
        values = made[step.output]
        if step.function == ARG_MAX:
            made[step.output] = best(step, values)
            continue
        wide = values.astype(np.float64)
        found = (_pooled(wide, inputs[step.mask]) if step.function == MEAN_POOLING else _FUNCTIONS[step.function](wide))
        made[step.output] = found.astype(values.dtype)
    return made


def best(step: PostprocessStep, values: Array) -> Array:
    """The number of the largest, the first of equals."""
    found: Array = values.argmax(axis=best_axis(step, values.ndim)).astype(CLASSES)
    return found[:, None] if values.ndim == ALONE else found


def _softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    made: Array = powers / powers.sum(axis=-1, keepdims=True)
    return made


def _sigmoid(values: Array) -> Array:
    made: Array = 0.5 * (1 + np.tanh(0.5 * values))  # never too large for a number
    return made


def _l2_normalised(values: Array) -> Array:
    made: Array = values / np.maximum(np.sqrt((values * values).sum(axis=-1, keepdims=True)), LEAST_NORM)
    return made


def _pooled(tokens: Array, mask: Array) -> Array:
    counted = mask[:, :, None].astype(np.float64)
    made: Array = (tokens * counted).sum(axis=1) / np.maximum(counted.sum(axis=1), LEAST_TOKENS)
    return made


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {"softmax": _softmax, "sigmoid": _sigmoid,
                                                  "l2Normalise": _l2_normalised}

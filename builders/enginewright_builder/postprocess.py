"""What engines make of the source's outputs before clients get them: which steps there are, and what each computes.
NumPy alone; ``onnx_postprocess.py`` writes it into a graph, ``models/finished.py`` behind a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from enginewright_builder.best_few import indices_of
from enginewright_builder.contract import Interface, PostprocessStep, TensorSpec
from enginewright_builder.detection import MADE, OBJECT_DETECTION, Plan, detected, made_outputs, plan
from enginewright_builder.errors import UserError
from enginewright_builder.shapes import BATCH, shape_text
from enginewright_builder.tensors import Array, Tensors

_FIELD = "spec.interface.postprocess"
# Below this a length counts as zero, as in PyTorch's normalize; and a number of tokens, as in sentence-transformers.
LEAST_NORM, LEAST_TOKENS = 1e-12, 1e-9
MEAN_POOLING, ARG_MAX, TOP_K = "meanPooling", "argMax", "topK"
# What classes are numbered in: half the bytes of int64, and exact in every engine.
CLASSES = "int32"
# Batch, tokens, width; and of the mask batch, tokens.
_TOKENS, _MASK = 3, 2
Decode = Callable[[Plan, Tensors, Tensors], Tensors]
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
        if step.function == OBJECT_DETECTION:
            boxes = detection_of(steps, interface)
            outputs = {name: spec for name, spec in outputs.items() if boxes is None or name not in boxes.consumed}
            outputs |= {spec.name: spec for spec in (made_outputs(boxes) if boxes else ())}
            continue
        if step.output in picked(steps[:index]):
            raise _invalid(f"{step.function} follows {TOP_K} of output {step.output!r}", f"{field}.function",
                           step.function, f"put it before {TOP_K}, or remove one of them")
        if step.output not in outputs:
            raise _invalid(f"the model has no output {step.output!r}; it answers {', '.join(outputs)}",
                           f"{field}.output", step.output, "name an output of the model")
        made = _after(step, outputs[step.output], inputs, field)
        if step.function == TOP_K:
            indices = _indices(made, outputs, field)
            outputs[indices.name] = indices
        outputs[step.output] = made
    return dataclasses.replace(interface, outputs=tuple(outputs.values()))


def detection_of(steps: Sequence[PostprocessStep], interface: Interface) -> Plan | None:
    """How boxes are made of the source's outputs; None where they are not. ``interface`` has the source's outputs, and
    the inputs as clients send them. Raises :class:`UserError` ``InterfaceInvalid``."""
    found = next((index for index, step in enumerate(steps) if step.function == OBJECT_DETECTION), None)
    if found is None:
        return None
    made = plan(steps[found], interface, f"{_FIELD}[{found}]")
    for index, step in enumerate(steps):
        if index != found and step.output in (*made.consumed, *MADE):
            raise _invalid(f"{step.function} and {OBJECT_DETECTION} are of the same output {step.output!r}",
                           f"{_FIELD}[{index}].function", step.function,
                           f"let detection.scoring say what {OBJECT_DETECTION} makes of scores, or remove one of them")
    return made


def picked(steps: Sequence[PostprocessStep]) -> frozenset[str]:
    """The outputs that are of the best few classes."""
    return frozenset(name for step in steps if step.function == TOP_K
                     for name in (step.output, indices_of(step.output)))


def best_few_in(steps: Sequence[PostprocessStep], output: str) -> PostprocessStep | None:
    """The step whose best few classes, or their scores, ``output`` has."""
    return next((step for step in steps if output in picked([step])), None)


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
    if step.function == TOP_K:
        return _best_few_of(step, spec, field)
    if step.function != MEAN_POOLING:
        return spec
    mask = inputs.get(step.mask)
    if mask is None or len(mask.shape) != _MASK:
        raise _invalid(f"{step.mask!r} is no input of the model that marks tokens, as [batch, tokens]",
                       f"{field}.mask", step.mask, f"name one of {', '.join(inputs)} that has 1 for each token and 0 "
                                                   "for padding")
    if len(spec.shape) != _TOKENS:
        raise _invalid(f"output {spec.name!r} is {shape_text(spec.shape)}, and {step.function} needs [batch, tokens, "
                       "width]", f"{field}.output", shape_text(spec.shape),
                       "name the output that has a vector for each token")
    return dataclasses.replace(spec, shape=(spec.shape[0], spec.shape[2]))


def _best_few_of(step: PostprocessStep, spec: TensorSpec, field: str) -> TensorSpec:
    if len(spec.shape) != ALONE:
        raise _invalid(f"output {spec.name!r} is {shape_text(spec.shape)}, and {step.function} needs [batch, classes]",
                       f"{field}.output", shape_text(spec.shape), "name an output with a score for each class")
    _check_k(step, spec.shape[1], field)
    return dataclasses.replace(spec, shape=(spec.shape[0], step.k))


def _check_k(step: PostprocessStep, classes: int | str, field: str) -> None:
    """Of a number of classes that is free nothing but 0 is known to be wrong: :func:`applied` looks again."""
    if step.k < 1:
        raise _invalid(f"{step.function} picks {step.k} classes", f"{field}.k", step.k, "write how many, at least 1")
    if isinstance(classes, int) and step.k > classes:
        raise _invalid(f"output {step.output!r} has {classes} classes, of which {step.k} cannot be picked",
                       f"{field}.k", step.k, f"write at most {classes}")


def _indices(made: TensorSpec, outputs: Mapping[str, TensorSpec], field: str) -> TensorSpec:
    name = indices_of(made.name)
    if name in outputs:
        raise _invalid(f"the model has an output {name!r} already, under which {TOP_K} answers the classes",
                       f"{field}.output", made.name, "rename one of the two in the model")
    return dataclasses.replace(made, name=name, dtype=CLASSES)


def _best_shape(step: PostprocessStep, shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Without the dimension of classes; where nothing but the batch would be left, with one number a sample."""
    axis = best_axis(step, len(shape))
    return (shape[0], 1) if len(shape) == ALONE else (*shape[:axis], *shape[axis + 1:])


def best_axis(step: PostprocessStep, dimensions: int) -> int:
    """Of an output with so many dimensions, counted from 0."""
    return step.axis or dimensions - 1


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=field, value=value, remedy=remedy)


def applied(steps: Sequence[PostprocessStep], inputs: Tensors, answers: Tensors, boxes: Plan | None = None,
            decode: Decode = detected) -> Tensors:
    """What clients get for ``inputs``, of what the source ``answers``. ``boxes`` is :func:`detection_of`, where it is
    asked for; ``decode`` is the source's own processor, where that says what boxes are. Raises :class:`UserError`
    ``InterfaceInvalid`` for more classes than there are."""
    found = decode(boxes, inputs, answers) if boxes else {}
    made = {name: array for name, array in answers.items() if boxes is None or name not in boxes.consumed}
    for index, step in enumerate(steps):
        if step.function == OBJECT_DETECTION:
            continue
        values = made[step.output]
        if step.function == TOP_K:
            _check_k(step, values.shape[1], f"{_FIELD}[{index}]")
            made[step.output], made[indices_of(step.output)] = best_few(step, values)
        elif step.function == ARG_MAX:
            made[step.output] = best(step, values)
        elif step.function == MEAN_POOLING:
            made[step.output] = _pooled(values.astype(np.float64), inputs[step.mask])
        else:
            made[step.output] = _FUNCTIONS[step.function](values.astype(np.float64))
    # Rounded at the end, as engines do: what is rounded before classes are picked has ties that were none.
    own = {name: array if array.dtype == CLASSES else array.astype(answers[name].dtype, copy=False)
           for name, array in made.items()}
    return {**own, **found}


def best(step: PostprocessStep, values: Array) -> Array:
    """The number of the largest, the first of equals."""
    found: Array = values.argmax(axis=best_axis(step, values.ndim)).astype(CLASSES)
    return found[:, None] if values.ndim == ALONE else found


def best_few(step: PostprocessStep, values: Array) -> tuple[Array, Array]:
    """The largest scores of ``[batch, classes]`` from the best on, and their numbers; the first of equals first."""
    places = np.argsort(-values, axis=-1, kind="stable")[:, :step.k]
    return np.take_along_axis(values, places, axis=-1), places.astype(CLASSES)


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

"""Boxes of a detector's raw outputs: which outputs there are then, and what they hold. NumPy alone;
``onnx_detection.py`` writes the same into a graph, ``models/torch_detection.py`` behind a program.

The answer is of one size, whatever is seen: the ``k`` best detections of each sample, from the best on, as ``scores``,
``labels`` and ``boxes`` (names and corners as in Hugging Face's ``post_process_object_detection``). Rows that are left
over have score 0, label -1 and a box of zeros.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enginewright_builder.contract import Detection, Interface, PostprocessStep, TensorSpec
from enginewright_builder.errors import UserError
from enginewright_builder.normalise import order
from enginewright_builder.same_boxes import BOXES, LABELS, NOTHING, SCORES, overlaps
from enginewright_builder.shapes import BATCH, shape_text
from enginewright_builder.sources.formats import Located
from enginewright_builder.tensors import Array, Tensors

OBJECT_DETECTION = "objectDetection"
MADE = (SCORES, LABELS, BOXES)
# What COCO counts at most, and what Hugging Face's processors answer.
_USUAL = 100
# TensorRT picks no more.
MOST = 3840
_CHANNELS = (1, 3, 4)
_CORNERS = 4
_PROCESSOR_FILE = "preprocessor_config.json"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A step with all that the model's interface says of it. ``classes`` are those that can be answered, numbered from
    ``first`` on. ``dropped`` are outputs that are not answered: a processor answers boxes alone, and what else its
    model tells, such as states of queries that it picks itself, stands in no order that engines have in common.
    ``axes`` are height and width of the input ``how.target_sizes``, ``source`` what boxes are divided by before they
    are multiplied with these."""

    output: str
    how: Detection
    k: int
    classes: int
    first: int = 0
    dropped: tuple[str, ...] = ()
    axes: tuple[int, int] = (0, 0)
    source: tuple[int, int] = (1, 1)

    @property
    def used(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.output, self.how.boxes)))

    @property
    def consumed(self) -> tuple[str, ...]:
        return (*self.used, *self.dropped)


def detections_in(steps: Sequence[PostprocessStep]) -> PostprocessStep | None:
    """The step that answers boxes."""
    return next((step for step in steps if step.function == OBJECT_DETECTION), None)


def check_detection_source(located: Located, step: PostprocessStep, field: str) -> None:
    """Raises :class:`UserError` ``InterfaceInvalid`` for a source that says nothing of boxes."""
    how = step.detection
    if how is None or not how.from_source:
        return
    if how != Detection(from_source=True, threshold=how.threshold, target_sizes=how.target_sizes):
        raise _invalid("what outputs mean is said twice", field, True, "remove fromSource, or all of detection but "
                                                                       "threshold and targetSizes")
    if located.format != "huggingface":
        raise _invalid(f"a source of format {located.format} has no processor", field, True,
                       "write detection yourself: boxes, boxFormat, scoring")
    if not (located.path / _PROCESSOR_FILE).is_file():
        raise _invalid(f"the source's folder has no {_PROCESSOR_FILE}", field, True,
                       "copy it beside config.json, or write detection yourself: boxes, scoring, background")


def plan(step: PostprocessStep, interface: Interface, field: str) -> Plan:
    """``interface`` has the source's outputs, and the inputs as clients send them. Raises :class:`UserError`
    ``InterfaceInvalid`` with the field below ``field``."""
    how = step.detection
    if how is None:
        raise _invalid(f"{step.function} needs to know what the outputs mean", f"{field}.detection", None,
                       "write detection, such as {fromSource: true}")
    outputs = {spec.name: spec for spec in interface.outputs}
    for name, part in ((step.output, "output"), (how.boxes, "detection.boxes")):
        if name and name not in outputs:
            raise _invalid(f"the model has no output {name!r}; it answers {', '.join(outputs)}", f"{field}.{part}",
                           name, "name an output of the model")
        if name and not outputs[name].dtype.startswith("float"):
            raise _invalid(f"output {name!r} is {outputs[name].dtype}, and {step.function} is made of floating-point "
                           "numbers", f"{field}.{part}", outputs[name].dtype, "name another output")
    count, classes = _counted(step, how, outputs, field)
    if how.nms_threshold and not how.threshold:
        raise _invalid("every box would be held against every other", f"{field}.detection.threshold", how.threshold,
                       "write the least score that counts, such as 0.05")
    made = Plan(output=step.output, how=how, k=_picked(step, how, count, classes, field), classes=classes,
                first=1 if how.background == "first" else 0,
                dropped=tuple(name for name in outputs if name not in (step.output, how.boxes)) if how.from_source
                else ())
    taken = {*outputs, *(spec.name for spec in interface.inputs)}
    for name in MADE:
        if name in taken and name not in made.consumed:
            raise _invalid(f"the model has a tensor {name!r} already, under which {step.function} answers",
                           f"{field}.output", name, "rename it in the model")
    if not how.target_sizes:
        return made
    axes, source = _sizes(how, interface, field)
    return dataclasses.replace(made, axes=axes, source=source)


def made_outputs(one: Plan) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name=SCORES, dtype="float32", shape=(BATCH, one.k)),
            TensorSpec(name=LABELS, dtype="int32", shape=(BATCH, one.k)),
            TensorSpec(name=BOXES, dtype="float32", shape=(BATCH, one.k, _CORNERS)))


def _counted(step: PostprocessStep, how: Detection, outputs: Mapping[str, TensorSpec], field: str
             ) -> tuple[int | str, int]:
    """How many boxes there are, and how many classes can be answered."""
    shape = outputs[step.output].shape
    boxes = outputs[how.boxes].shape if how.boxes else (shape[0], shape[-1], _CORNERS)
    wanted = "[batch, boxes, classes]" if how.boxes else "[batch, 4 + classes, boxes]"
    width = shape[2 if how.boxes else 1] if len(shape) == 3 else ""
    if shape[:1] != (BATCH,) or not isinstance(width, int):
        raise _invalid(f"output {step.output!r} is {shape_text(shape)}, expected {wanted} with a fixed number of "
                       "classes", f"{field}.output", shape_text(shape),
                       "name the output of scores for each box and class")
    if len(boxes) != 3 or boxes[2] != _CORNERS or (how.boxes and _differ(boxes[1], shape[1])):
        raise _invalid(f"output {how.boxes!r} is {shape_text(boxes)}, and {step.output!r} {shape_text(shape)}",
                       f"{field}.detection.boxes", shape_text(boxes), "name an output [batch, boxes, 4] of as many "
                                                                      "boxes as there are scores")
    classes = width - (0 if how.boxes else _CORNERS) - (how.background != "none")
    if classes < 1:
        raise _invalid(f"output {step.output!r} is {shape_text(shape)}, in which no class is left", f"{field}.output",
                       shape_text(shape), f"name an output {wanted}")
    return boxes[1], classes


def _differ(one: int | str, other: int | str) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one != other


def _picked(step: PostprocessStep, how: Detection, count: int | str, classes: int, field: str) -> int:
    """Of a number of boxes that is free nothing is known."""
    if not isinstance(count, int):
        return step.k or _USUAL
    most = min(MOST, count * (1 if how.scoring == "softmax" or how.from_source else classes))
    if step.k > most:
        raise _invalid(f"{step.output!r} has {count} boxes, of which {step.k} detections cannot be made",
                       f"{field}.k", step.k, f"write at most {most}")
    return step.k or min(_USUAL, most)


def _sizes(how: Detection, interface: Interface, field: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of a :class:`Plan`, ``axes`` and ``source``."""
    field = f"{field}.detection.targetSizes"
    image = next((spec for spec in interface.inputs if spec.name == how.target_sizes), None)
    if image is None or len(image.shape) != 4:
        raise _invalid(f"{how.target_sizes!r} is no input of images", field, how.target_sizes,
                       f"name one of {', '.join(spec.name for spec in interface.inputs)} that has height and width")
    if image.preprocess and image.preprocess.crop_height:
        raise _invalid(f"images of {image.name!r} are cut, so that boxes are not those of the whole image", field,
                       how.target_sizes, "leave targetSizes out, or resize with size: {height, width} and without "
                                         "cropSize")
    source = (1, 1)
    if how.box_unit == "pixels":
        if not image.preprocess:
            raise _invalid(f"boxes are in pixels of {image.name!r} as they are", field, how.target_sizes,
                           "leave targetSizes out, or write boxUnit: relative if they are shares of the image")
        source = image.preprocess.made
    return _axes(image), source


def _axes(image: TensorSpec) -> tuple[int, int]:
    if image.normalise is None and image.shape[3] in _CHANNELS and image.shape[1] not in _CHANNELS:
        return 1, 2
    height, width = order(image)[2:]
    return height, width


def detected(one: Plan, inputs: Tensors, answers: Tensors) -> Tensors:
    """What clients get, in FP64 up to the end."""
    scores, boxes = _split(one, answers)
    scores, boxes = _scored(one.how, scores), _corners(one, inputs, boxes)
    if one.how.nms_threshold:
        scores = np.stack([_kept(one, *sample) for sample in zip(scores, boxes, strict=True)])
    flat = scores.reshape(len(scores), -1)
    places = np.argsort(-flat, axis=1, kind="stable")[:, :one.k]
    numbers = np.take_along_axis(boxes, (places // one.classes)[:, :, None], axis=1)
    return answered(one, np.take_along_axis(flat, places, axis=1), places % one.classes + one.first, numbers)


def answered(one: Plan, scores: Floats, labels: Array, boxes: Floats) -> Tensors:
    """Detections ``[batch, n]`` from the best on, of which those that count are kept, filled up to ``k``."""
    kept = scores > one.how.threshold
    found = (np.where(kept, scores, 0).astype(np.float32), np.where(kept, labels, NOTHING).astype(np.int32),
             np.where(kept[:, :, None], boxes, 0).astype(np.float32))
    missing = one.k - scores.shape[1]
    blank = (0, NOTHING, 0)
    return {name: np.pad(array, ((0, 0), (0, missing), (0, 0))[:array.ndim], constant_values=value)
            for name, array, value in zip(MADE, found, blank, strict=True)}


def _split(one: Plan, answers: Tensors) -> tuple[Floats, Floats]:
    scores = answers[one.output].astype(np.float64)
    if one.how.boxes:
        return scores, answers[one.how.boxes].astype(np.float64)
    turned = scores.transpose(0, 2, 1)
    return turned[:, :, _CORNERS:], turned[:, :, :_CORNERS]


def _scored(how: Detection, scores: Floats) -> Floats:
    if how.scoring == "softmax":
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores = powers / powers.sum(axis=-1, keepdims=True)
    elif how.scoring == "sigmoid":
        scores = 0.5 * (1 + np.tanh(0.5 * scores))
    if how.background != "none":
        scores = scores[..., 1:] if how.background == "first" else scores[..., :-1]
    if how.scoring == "softmax":
        scores = np.where(scores == scores.max(axis=-1, keepdims=True), scores, 0.0)
    return scores


def _corners(one: Plan, inputs: Tensors, boxes: Floats) -> Floats:
    if one.how.box_format == "cxcywh":
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        boxes = np.concatenate([centre - half, centre + half], axis=-1)
    if not one.how.target_sizes:
        return boxes
    shape = inputs[one.how.target_sizes].shape
    height, width = (shape[axis] / size for axis, size in zip(one.axes, one.source, strict=True))
    made: Floats = boxes * np.array([width, height, width, height])
    return made


def _kept(one: Plan, scores: Floats, boxes: Floats) -> Floats:
    """Of one sample: scores ``[boxes, classes]``, 0 for a box that overlaps with a better one of its class, and for all
    behind the ``k`` best of a class."""
    kept = np.zeros_like(scores)
    for number, of_class in enumerate(scores.T):
        left = np.flatnonzero(of_class > one.how.threshold)
        left = left[np.argsort(-of_class[left], kind="stable")]
        for _ in range(one.k):
            if not len(left):
                break
            best, left = left[0], left[1:]
            kept[best, number] = of_class[best]
            left = left[overlaps(boxes[best], boxes[left]) <= one.how.nms_threshold]
    return kept


def _invalid(message: str, field: str, value: object, remedy: str) -> UserError:
    return UserError("InterfaceInvalid", message, field=field, value=value, remedy=remedy)

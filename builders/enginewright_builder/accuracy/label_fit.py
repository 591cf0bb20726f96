"""Do a metric, the labels and the model's answers fit together? No SciPy: the resolve step asks where it knows the
model's outputs, and the build again with the answers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from enginewright_builder.accuracy.task_rules import (
    CLASSIFICATION,
    DETECTION,
    F1_METRICS,
    IGNORED,
    NDCG,
    REGRESSION,
    WER,
    invalid,
    labels_invalid,
)
from enginewright_builder.contract import TaskRequest
from enginewright_builder.errors import UserError
from enginewright_builder.same_boxes import BOXES, LABELS, SCORES

Shape = tuple[int | str, ...]
TOP, TOP5 = 5, "top5"
# What judges the numbers of classes by themselves.
BY_CLASS = ("accuracy", *F1_METRICS)


def output_of(task: TaskRequest, outputs: Sequence[str]) -> str:
    """The output that is looked at. Raises :class:`UserError` ``TaskInvalid``."""
    if task.output and task.output not in outputs:
        raise invalid(f"the model does not answer {task.output!r}", "output", task.output,
                      f"write one of {', '.join(outputs)}")
    return task.output or (BOXES if task.metric in DETECTION and BOXES in outputs else outputs[0])


def check_detection(task: TaskRequest, output: str, outputs: Sequence[str]) -> bool:
    """Whether the answer is detections, and the metric of these. Raises :class:`UserError` ``TaskInvalid`` where one of
    the two is without the other."""
    detects = all(name in outputs for name in (SCORES, LABELS, BOXES))
    if task.metric in DETECTION and not detects:
        raise invalid(f"{task.metric} takes detections, and the model answers {', '.join(outputs)}", "metric",
                      task.metric, "let function objectDetection of spec.interface.postprocess make boxes, or write "
                                   "another metric")
    if task.metric in DETECTION and output not in (SCORES, LABELS, BOXES):
        raise invalid(f"{task.metric} needs {SCORES}, {LABELS} and {BOXES} together, not {output}", "output", output,
                      "remove it")
    return task.metric in DETECTION


def check_no_detection(task: TaskRequest, output: str) -> None:
    """``output`` is one of detections. Raises :class:`UserError` ``TaskInvalid`` for a metric of anything else."""
    if task.metric not in DETECTION:
        raise invalid(f"{task.metric} is not of detections, and {output} has some", "metric", task.metric,
                      f"write {' or '.join(DETECTION)}, or name another output in spec.accuracy.task.output")


def check_best(task: TaskRequest, output: str, picked: int, labels: Sequence[Any], first: int = 0) -> None:
    """``output`` has the ``picked`` best classes of each sample, from the best on; ``labels`` as in :func:`check_fit`.
    Raises :class:`UserError` ``TaskInvalid`` or ``LabelsInvalid``."""
    if task.metric not in CLASSIFICATION:
        raise invalid(f"{task.metric} takes the scores of all classes, and {output} has the best {picked} classes",
                      "metric", task.metric, f"write {', '.join(CLASSIFICATION)}, name another output in "
                                             "spec.accuracy.task.output, or leave topK out of "
                                             "spec.interface.postprocess")
    if task.metric == TOP5 and picked < TOP:
        raise invalid(f"{TOP5} looks among the best {TOP} classes, and {output} has {picked}", "metric", task.metric,
                      f"let topK pick {TOP} in spec.interface.postprocess, or write metric accuracy")
    for index, label in enumerate(labels, start=first):
        one = np.asarray(label)
        if one.size != 1:
            raise labels_invalid(f"sample {index}: the label has shape {list(one.shape)}, and {output} has the best "
                                 "classes of one answer for each sample", list(one.shape),
                                 "write one class for each sample")
        if one != IGNORED and one < 0:
            raise labels_invalid(f"sample {index}: class {one.item()} is unknown to {output}", one.item(),
                                 f"write classes from 0 on; {IGNORED} marks a sample without a label")


def check_fit(task: TaskRequest, output: str, shape: Shape, labels: Sequence[Any], first: int = 0, *,
              whole: bool = False) -> None:
    """``shape`` is that of one sample's answer, with words for sizes that are not known; ``labels`` are of the samples
    from number ``first`` on. ``whole``: it answers whole numbers, which are classes unless there is one more
    dimension than labels have. Raises :class:`UserError` ``TaskInvalid`` or ``LabelsInvalid``."""
    classes = whole and not (len(labels) and _one_more(shape, np.ndim(labels[0])))
    if classes and task.metric not in BY_CLASS:
        raise invalid(f"{task.metric} takes scores, and {output} answers the numbers of classes", "metric", task.metric,
                      f"write {', '.join(BY_CLASS)}, or leave argMax out of spec.interface.postprocess")
    if classes:
        for index, label in enumerate(labels, start=first):
            _check_positions(output, shape, np.asarray(label), f"sample {index}")
        return
    _check_metric(task, output, shape)
    for index, label in enumerate(labels, start=first):
        if task.metric in CLASSIFICATION:
            _check_classes(task, output, shape, np.asarray(label), f"sample {index}")
        elif task.metric != WER:
            _check_numbers(task, output, shape, np.asarray(label), f"sample {index}")


def several(task: TaskRequest, shape: Shape, label: Any) -> bool:
    """Whether a sample may have any number of classes: labels are 0 or 1 for each."""
    return task.metric in F1_METRICS and np.ndim(label) == 1 and len(shape) == 1 and shape != (1,)


def one_number(shape: Shape, label: Any) -> bool:
    """Whether an answer is one number where the label is one: a yes or no."""
    return len(shape) == np.ndim(label) or shape[-1] == 1


def _check_metric(task: TaskRequest, output: str, shape: Shape) -> None:
    """By the answer's shape alone."""
    if task.metric == WER and len(shape) != 2:
        raise _no_task(task, output, shape, "takes one row of tokens' scores for each moment, [time, tokens]")
    if task.metric == TOP5 and shape and isinstance(shape[-1], int) and shape[-1] <= TOP:
        raise _no_task(task, output, shape, f"is always 1 of {shape[-1]} classes")
    if task.metric == NDCG and task.queries and not _may_be(shape, 1):
        raise _no_task(task, output, shape, "with queries takes one number for each sample")
    if task.metric == NDCG and not task.queries and _may_be(shape, 1) and all(isinstance(size, int) for size in shape):
        raise invalid(f"{NDCG} ranks the samples of one query, and {output} answers one number for each sample",
                      "queries", "", "name the array or field of the evaluation data that says of which query a sample "
                                     "is, such as query")


def _check_classes(task: TaskRequest, output: str, shape: Shape, label: Any, at: str) -> None:
    if several(task, shape, label):
        if not _same(shape, label.shape) or not np.isin(label, (0, 1)).all():
            raise labels_invalid(f"{at}: the label is {_show(label)}, and {output} answers {_words(shape)}",
                                 _show(label), f"write 0 or 1 for each of the {shape[0]} classes, or one class of each "
                                               "sample")
        return
    alone = one_number(shape, label)
    positions = shape[:label.ndim]
    if len(shape) - label.ndim not in (0, 1) or not _same(positions, label.shape):
        raise labels_invalid(f"{at}: the label has shape {list(label.shape)}, and {output} answers {_words(shape)}",
                             list(label.shape), "give one class for each position that the model answers")
    classes = 2 if alone else shape[-1]
    allowed = label[label != IGNORED]
    if allowed.size and (allowed.min() < 0 or (isinstance(classes, int) and allowed.max() >= classes)):
        wrong = allowed.min() if allowed.min() < 0 else allowed.max()
        most = f"from 0 to {classes - 1}" if isinstance(classes, int) else "from 0 on"
        raise labels_invalid(f"{at}: class {wrong} is unknown to {output}, which answers {_words(shape)}", wrong,
                             f"write classes {most}; {IGNORED} marks a position without a label")


def _one_more(shape: Shape, dimensions: int) -> bool:
    return len(shape) == dimensions + 1 and shape[-1] != 1


def _check_positions(output: str, shape: Shape, label: Any, at: str) -> None:
    """A class for each that is answered; of one class a sample the label is a number, or a list of it."""
    alone = shape in ((), (1,))
    if not (alone and label.size == 1) and not _same(shape, label.shape):
        raise labels_invalid(f"{at}: the label has shape {list(label.shape)}, and {output} answers {_words(shape)}",
                             list(label.shape), "give one class for each position that the model answers")
    allowed = label[label != IGNORED]
    if allowed.size and allowed.min() < 0:
        raise labels_invalid(f"{at}: class {allowed.min()} is unknown to {output}", allowed.min(),
                             f"write classes from 0 on; {IGNORED} marks a position without a label")


def _check_numbers(task: TaskRequest, output: str, shape: Shape, label: Any, at: str) -> None:
    size = label.size
    if not _may_be(shape, size):
        raise labels_invalid(f"{at}: the label holds {size} numbers, and {output} answers {_words(shape)}", size,
                             "give as many numbers as the model answers for a sample")
    if not np.isfinite(label).all():
        raise labels_invalid(f"{at}: the label holds NaN or infinity", _show(label), "leave such samples out")
    if task.metric == NDCG and label.size and label.min() < 0:
        raise labels_invalid(f"{at}: a relevance of {label.min():g}", f"{label.min():g}",
                             "write 0 for what is not relevant, and more for what is")


def _same(shape: Shape, found: tuple[int, ...]) -> bool:
    return len(shape) == len(found) and all(isinstance(one, str) or one == other
                                            for one, other in zip(shape, found, strict=True))


def _may_be(shape: Shape, size: int) -> bool:
    """Whether an answer of this shape can have so many numbers."""
    known = [one for one in shape if isinstance(one, int)]
    product = int(np.prod(known)) if known else 1
    return size == product if len(known) == len(shape) else product > 0 and size % product == 0


def _no_task(task: TaskRequest, output: str, shape: Shape, why: str) -> UserError:
    fitting = [name for name in (*CLASSIFICATION, *REGRESSION) if name not in (task.metric, TOP5)]
    return invalid(f"{task.metric} {why}, and {output} answers {_words(shape)}", "metric", task.metric,
                   f"write a metric that fits, such as {', '.join(fitting)}, or name another output in "
                   "spec.accuracy.task.output")


def _words(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "] for each sample" if shape else "one number for each sample"


def _show(label: Any) -> str:
    return str(label.tolist())[:60]

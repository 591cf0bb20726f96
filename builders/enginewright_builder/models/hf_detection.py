"""Boxes by the source's own image processor: ``post_process_object_detection`` of a Hugging Face folder, which is what
engines are held against, and what it says about the outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from enginewright_builder.contract import Detection, PostprocessStep
from enginewright_builder.detection import Plan, answered, detected
from enginewright_builder.errors import UserError, brief, known_or
from enginewright_builder.models.processors import opened
from enginewright_builder.postprocess import Decode
from enginewright_builder.same_boxes import BOXES, LABELS, SCORES, agreements
from enginewright_builder.tensors import Tensors

# How detection models of transformers call their outputs, and what their processors may make of them.
_LOGITS, _BOXES = "logits", "pred_boxes"
_KNOWN = (Detection(boxes=_BOXES, scoring="softmax", background="last"), Detection(boxes=_BOXES, scoring="sigmoid"))
# Of the made-up answers that tell which it is.
_TRIED, _QUERIES, _CLASSES, _SAME = 3, 20, 7, 1 - 1e-4


def of_folder(folder: Path, step: PostprocessStep, field: str) -> tuple[PostprocessStep, Decode]:
    """``step`` with what the folder's own processor does, and that processor. Raises :class:`UserError`
    ``InterfaceInvalid`` for one that makes no boxes, or does it in a way that engines do not."""
    found = opened(folder, field)
    if not hasattr(found, "post_process_object_detection"):
        raise _unsupported(f"{type(found).__name__} makes no boxes", type(found).__name__, field)
    if step.output != _LOGITS:
        raise UserError("InterfaceInvalid", f"a processor makes boxes of {_LOGITS}, not of {step.output!r}",
                        field=f"{field.removesuffix('.detection.fromSource')}.output", value=step.output,
                        remedy=f"write {_LOGITS}, or write detection yourself, without fromSource")
    given = step.detection or Detection()

    def decode(one: Plan, inputs: Tensors, answers: Tensors) -> Tensors:
        return _by_processor(found, one, inputs, answers)

    for how in _KNOWN:
        if _does(found, how, field):
            return dataclasses.replace(step, detection=dataclasses.replace(
                how, threshold=given.threshold, target_sizes=given.target_sizes, from_source=True)), decode
    raise _unsupported(f"{type(found).__name__} makes other boxes than softmax without the last class, or sigmoid, of "
                       f"{_LOGITS} and the corners of {_BOXES}", type(found).__name__, field)


def _does(found: Any, how: Detection, field: str) -> bool:
    """Whether the processor does ``how`` with made-up answers."""
    one = Plan(output=_LOGITS, how=dataclasses.replace(how, threshold=0.2), k=_QUERIES,
               classes=_CLASSES - (how.background != "none"))
    random = np.random.default_rng(0)
    answers = {_LOGITS: random.normal(0, 3, (_TRIED, _QUERIES, _CLASSES)).astype(np.float32),
               _BOXES: random.uniform(0.2, 0.5, (_TRIED, _QUERIES, 4)).astype(np.float32)}
    try:
        theirs = _by_processor(found, one, {}, answers)
    except Exception as error:  # processors fail in as many ways as there are kinds of them
        raise known_or(error, _unsupported(
            f"{type(found).__name__} fails on logits and boxes: {brief(error, 200)}", type(error).__name__,
            field)) from error
    return bool(agreements(theirs, detected(one, {}, answers)).min() >= _SAME)


def _by_processor(found: Any, one: Plan, inputs: Tensors, answers: Tensors) -> Tensors:
    import torch

    raw = SimpleNamespace(**{name: torch.from_numpy(answers[name].astype(np.float32)) for name in one.used})
    sizes: dict[str, Any] = {}
    if one.how.target_sizes:
        shape = inputs[one.how.target_sizes].shape
        sizes["target_sizes"] = [tuple(shape[axis] for axis in one.axes)] * len(raw.logits)
    made = found.post_process_object_detection(raw, threshold=one.how.threshold, **sizes)
    return _together(one, [{name: values.numpy() for name, values in sample.items()} for sample in made])


def _together(one: Plan, samples: Sequence[Tensors]) -> Tensors:
    """The best ``k`` of each sample, as engines answer them."""
    rows = []
    for sample in samples:
        order = np.argsort(-sample[SCORES], kind="stable")[:one.k]
        rows.append(answered(one, *(sample[name][order][None] for name in (SCORES, LABELS, BOXES))))
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _unsupported(what: str, value: object, field: str) -> UserError:
    return UserError("InterfaceInvalid", f"the processor of preprocessor_config.json: {what}", field=field, value=value,
                     remedy="write detection yourself (boxes, scoring, background), or leave objectDetection out and "
                            "let clients make boxes")

"""The boxes of a detector's raw outputs in PyTorch, as ``onnx_detection.py`` writes them into a graph."""

from __future__ import annotations

from typing import Any

import torch

from enginewright_builder.detection import MADE, Plan
from enginewright_builder.same_boxes import NOTHING


def detected(one: Plan, image: Any, answers: dict[str, Any]) -> dict[str, Any]:
    """``image`` is the input whose size boxes are answered in, or None. Without suppression of overlaps, which PyTorch
    itself does not have."""
    scores, boxes = _split(one, answers)
    scores, boxes = _scored(one, scores), _corners(one, image, boxes)
    best, places = scores.flatten(1).topk(one.k)
    box = torch.div(places, one.classes, rounding_mode="floor")
    corners = boxes.gather(1, box.unsqueeze(-1).expand(-1, -1, 4))
    kept = best > one.how.threshold
    label = torch.where(kept, places - box * one.classes + one.first, NOTHING)
    found = (torch.where(kept, best, 0.0), label.to(torch.int32), torch.where(kept.unsqueeze(-1), corners, 0.0))
    return dict(zip(MADE, found, strict=True))


def _split(one: Plan, answers: dict[str, Any]) -> tuple[Any, Any]:
    scores = answers[one.output].float()
    if one.how.boxes:
        return scores, answers[one.how.boxes].float()
    turned = scores.transpose(1, 2)
    return turned[..., 4:], turned[..., :4]


def _scored(one: Plan, scores: Any) -> Any:
    how = one.how
    if how.scoring != "none":
        scores = scores.softmax(dim=-1) if how.scoring == "softmax" else scores.sigmoid()
    if how.background != "none":
        scores = scores[..., 1:] if how.background == "first" else scores[..., :-1]
    if how.scoring == "softmax":
        scores = torch.where(scores < scores.amax(dim=-1, keepdim=True), 0.0, scores)
    return scores


def _corners(one: Plan, image: Any, boxes: Any) -> Any:
    if one.how.box_format == "cxcywh":
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        boxes = torch.cat([centre - half, centre + half], dim=-1)
    if image is None:
        return boxes
    height, width = (image.shape[axis] / size for axis, size in zip(one.axes, one.source, strict=True))
    return torch.cat([boxes[..., 0:1] * width, boxes[..., 1:2] * height, boxes[..., 2:3] * width,
                      boxes[..., 3:4] * height], dim=-1)

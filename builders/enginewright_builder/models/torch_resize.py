"""The resize of :mod:`enginewright_builder.preprocess` as PyTorch traces it: the sizes of images may be free."""

from __future__ import annotations

from typing import Any

import torch

from enginewright_builder.contract import Preprocess


def resized(how: Preprocess, images: torch.Tensor) -> torch.Tensor:
    """``images`` is ``float32[batch, channels, height, width]``; of whole numbers, as is what comes out."""
    height, width = images.shape[2:]
    rows, columns = _sizes(how, height, width)
    images = images @ _matrix(how, width, columns, how.made[1], images.device).T
    images = _matrix(how, height, rows, how.made[0], images.device) @ _whole(images)
    return _whole(images)


def _whole(values: torch.Tensor) -> torch.Tensor:
    return (values + 0.5).floor().clamp(0, 255)


def _sizes(how: Preprocess, height: Any, width: Any) -> tuple[Any, Any]:
    """Before the crop."""
    if not how.shortest_edge:
        return how.height, how.width
    least = torch.sym_min(height, width)
    return how.shortest_edge * height // least, how.shortest_edge * width // least


def _matrix(how: Preprocess, pixels: Any, size: Any, kept: int, device: torch.device) -> torch.Tensor:
    first = (size - kept) // 2
    place = 2 * torch.arange(pixels, device=device) + 1
    wanted = 2 * (torch.arange(kept, device=device) + first)[:, None] + 1
    reach = 2 * torch.sym_max(pixels, size)
    weights = _filtered(how.resample, (place * size - wanted * pixels).abs().to(torch.float32) / reach)
    return weights / weights.sum(dim=1, keepdim=True)


def _filtered(resample: str, distance: torch.Tensor) -> torch.Tensor:
    if resample == "bilinear":
        return (1 - distance).relu()
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))

"""Small PyTorch modules to export. Imported where they are used: importing PyTorch takes seconds, and a run that leaves
its tests out collects them all the same."""

from __future__ import annotations

from typing import Any

import torch


class TwoAnswers(torch.nn.Module):
    """Integers and floats in, a matrix, two answers out: ``ids`` int64[batch, free], ``scale`` float32[batch, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = torch.nn.Embedding(50, 6), torch.nn.Linear(6, 4)

    def forward(self, ids: Any, scale: Any) -> tuple[Any, Any]:
        hidden = self.layer(self.table(ids)).relu() * scale.unsqueeze(1)
        return hidden, hidden.mean(dim=1)


class MixedTypes(torch.nn.Module):
    """Integers and floats in, a matrix, a norm, FP32 written into the code, two answers out: ``ids`` int64[batch,
    free], ``scale`` float32[batch, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = torch.nn.Embedding(50, 6), torch.nn.Linear(6, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.register_buffer("shift", torch.linspace(-1, 1, 6))

    def forward(self, ids: Any, scale: Any) -> tuple[Any, Any]:
        seen = (ids > 3).unsqueeze(-1).to(torch.float32)
        hidden = self.norm(self.layer(self.table(ids)) * seen + self.shift) * scale.unsqueeze(1)
        return hidden, hidden.mean(dim=1)


class ChannelsLast(torch.nn.Module):
    """An answer that lies in NHWC: ``image`` float32[batch, 3, 4, 4]."""

    def forward(self, image: Any) -> tuple[Any]:
        return ((image * 2).to(memory_format=torch.channels_last),)


class Branching(torch.nn.Module):
    """What cannot be traced."""

    def forward(self, x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

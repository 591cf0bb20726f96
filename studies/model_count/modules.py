"""Modules of plain PyTorch, as exported programs (``.pt2``), TorchScript and ONNX by PyTorch's exporters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Make = Callable[[Path], Path]
Tensors = tuple[torch.Tensor, ...]


class GraphConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> Any:
        linked = edges + torch.eye(edges.shape[-1])
        linked = linked / linked.sum(-1, keepdim=True)
        return self.second(linked @ torch.relu(self.first(linked @ nodes)))


class DeepFM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(200, 8), nn.EmbeddingBag(200, 1, mode="sum")
        self.deep = nn.Sequential(nn.Linear(40, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, fields: torch.Tensor) -> Any:
        found = self.table(fields)
        pairs = (found.sum(1) ** 2 - (found ** 2).sum(1)).sum(-1, keepdim=True) / 2
        return torch.sigmoid(pairs + self.deep(found.flatten(1)) + self.linear(fields))


class NBeats(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 30)) for _ in range(3))

    def forward(self, history: torch.Tensor) -> Any:
        forecast = torch.zeros(history.shape[0], 6)
        for block in self.blocks:
            back, ahead = block(history).split([24, 6], -1)
            history, forecast = history - back, forecast + ahead
        return forecast


class TasNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, 16, 16, stride=8), nn.ConvTranspose1d(16, 1, 16, stride=8)
        self.masks = nn.Sequential(nn.GroupNorm(1, 16), nn.Conv1d(16, 32, 3, padding=2, dilation=2), nn.Sigmoid())

    def forward(self, mixture: torch.Tensor) -> Any:
        seen = self.encode(mixture[:, None])
        parts = self.masks(seen).unflatten(1, (2, 16)) * seen[:, None]
        return self.decode(parts.flatten(0, 1)).unflatten(0, (-1, 2)).squeeze(2)


class Crnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d((4, 2)))
        self.read, self.head = nn.LSTM(128, 16, bidirectional=True, batch_first=True), nn.Linear(32, 20)

    def forward(self, line: torch.Tensor) -> Any:
        columns = self.look(line).flatten(1, 2).transpose(1, 2)
        return self.head(self.read(columns)[0])


class FtTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(6, 16)), nn.Parameter(torch.randn(6, 16))
        self.table, self.mark = nn.Embedding(30, 16), nn.Parameter(torch.randn(1, 1, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
        self.mix, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 1)

    def forward(self, numbers: torch.Tensor, kinds: torch.Tensor) -> Any:
        cells = torch.cat([self.mark.expand(numbers.shape[0], -1, -1), numbers[..., None] * self.scale + self.shift,
                           self.table(kinds)], 1)
        return self.head(self.mix(cells)[:, 0])


class CentreNet(nn.Module):
    """Boxes at the ten brightest places of a heat map."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, stride=4, padding=1), nn.SiLU())
        self.heat, self.size = nn.Conv2d(16, 1, 1), nn.Conv2d(16, 4, 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        seen = self.body(image)
        heat = torch.sigmoid(self.heat(seen))
        heat = heat * (nn.functional.max_pool2d(heat, 3, 1, 1) == heat)
        scores, places = heat.flatten(1).topk(10)
        boxes = self.size(seen).flatten(2).gather(2, places[:, None].expand(-1, 4, -1)).transpose(1, 2)
        return {"scores": scores, "boxes": boxes}


class Spectrogram(nn.Module):
    """Short-time Fourier transforms within the model, as keyword spotters have them."""

    window: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(65, 12)
        self.register_buffer("window", torch.hann_window(128))

    def forward(self, sound: torch.Tensor) -> Any:
        spectrum = torch.stft(sound, 128, 64, window=self.window, return_complex=True).abs()
        return self.head(torch.log1p(spectrum).mean(-1))


class ImplicitField(nn.Module):
    """Distances at points of space, conditioned on a code: a fixed batch of two codes in the export."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(11, 32), nn.Linear(32, 1)

    def forward(self, code: torch.Tensor, points: torch.Tensor) -> Any:
        joined = torch.cat([code[:, None].expand(-1, points.shape[1], -1), points], -1)
        return torch.tanh(self.second(torch.sin(30 * self.first(joined))))


class LinkNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.ConvTranspose2d(8, 4, 2, stride=2)

    def forward(self, image: torch.Tensor) -> Any:
        seen = torch.relu(self.down(image))
        return self.last(torch.relu(self.up(torch.relu(self.deep(seen)))) + seen)


class DynamicMemory(nn.Module):
    """Steps over a sequence in a loop that scripting keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(6, 16), nn.Linear(16, 2)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(steps.size(0), 16)
        for place in range(steps.size(1)):
            state = self.cell(steps[:, place], state)
        answer: torch.Tensor = self.head(state)
        return answer


class Gated(nn.Module):
    """A branch on what the tensor holds, and an argument that may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if mask is not None:
            x = x * mask
        answer: torch.Tensor = self.one(x) if bool((x.mean() > 0.5).item()) else self.other(x)
        return answer


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cut, self.tokens = nn.Conv2d(3, 16, 8, stride=8), nn.Linear(16, 16)
        self.channels, self.head = nn.Linear(16, 16), nn.Linear(16, 6)

    def forward(self, image: torch.Tensor) -> Any:
        cells = self.cut(image).flatten(2)
        cells = cells + nn.functional.gelu(self.tokens(cells))
        return self.head(self.channels(cells.transpose(1, 2)).mean(1))


def program(module: nn.Module, *inputs: torch.Tensor, free: bool = True) -> Make:
    """An exported program; ``free``: of any batch."""
    def make(folder: Path) -> Path:
        shapes = tuple({0: torch.export.Dim("batch", max=64)} for _ in inputs) if free else None
        torch.export.save(torch.export.export(_asked(module, inputs), inputs, dynamic_shapes=shapes), folder / "m.pt2")
        return folder / "m.pt2"
    return make


def script(module: nn.Module, *inputs: torch.Tensor, traced: bool = False) -> Make:
    def make(folder: Path) -> Path:
        ready = _asked(module, inputs)
        write: Any = functools.partial(torch.jit.trace, example_inputs=inputs) if traced else torch.jit.script
        write(ready).save(folder / "m.pt")
        return folder / "m.pt"
    return make


def exported(module: nn.Module, *inputs: torch.Tensor, dynamo: bool, opset: int) -> Make:
    """ONNX by the exporter of today, or by that of old."""
    def make(folder: Path) -> Path:
        names = [f"in{place}" for place in range(len(inputs))]
        free = {"dynamic_shapes": tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)} if dynamo else {
            "dynamic_axes": {name: {0: "batch"} for name in names}}
        torch.onnx.export(_asked(module, inputs), inputs, folder / "m.onnx", dynamo=dynamo, opset_version=opset,
                          input_names=names, external_data=dynamo, **free)
        return folder / "m.onnx"
    return make


def _asked(module: nn.Module, inputs: Tensors) -> nn.Module:
    """``module`` for inference, after it has answered these samples."""
    with torch.inference_mode():
        module.eval()(*inputs)
    return module

"""PyTorch modules as all else calls them: tensors by position, whatever they themselves take them in, and without the
inputs that have one value in all requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from enginewright_builder.models.torch_precision import flatten
from enginewright_builder.tensors import Array


class Called(nn.Module):
    """``module``, which takes inputs called ``names``, for all of them but those that have ``values``. ``numbers`` are
    the inputs that it takes as numbers of Python's; ``structure``, if any, is what it takes them in, as
    ``torch.export`` describes positional and named arguments. It answers tensors, in order; :meth:`answer` in what
    ``module`` answers them in."""

    def __init__(self, module: Callable[..., Any], names: Sequence[str], values: Mapping[str, Array],
                 numbers: Collection[str] = (), structure: pytree.TreeSpec | None = None) -> None:
        super().__init__()
        self.module, self._structure, self._kept = module, structure, dict[int, Any]()
        for place, name in enumerate(names):
            if name in values and name in numbers:
                self._kept[place] = values[name].item()
            elif name in values:
                self.register_buffer(f"value_{place}", torch.from_numpy(values[name]))
                self._kept[place] = None
        self._places = range(len(names))

    def forward(self, *sent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(flatten(self.answer(*sent)))

    def answer(self, *sent: torch.Tensor) -> Any:
        left = iter(sent)
        given = [next(left) if place not in self._kept else self._value(place) for place in self._places]
        if self._structure is None:
            return self.module(*given)
        positional, named = pytree.tree_unflatten(given, self._structure)
        return self.module(*positional, **named)

    def _value(self, place: int) -> Any:
        return getattr(self, f"value_{place}") if self._kept[place] is None else self._kept[place]


def by_position(structure: pytree.TreeSpec, count: int) -> bool:
    """Whether that is ``count`` positional arguments, each a tensor."""
    return bool(structure == pytree.tree_structure((tuple(range(count)), {})))

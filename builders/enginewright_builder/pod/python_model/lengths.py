"""Requests of different length in one run: which of them run together, how they are filled up, and how answers are cut.

Copied beside ``model.py`` into the version folder of models whose mask makes padding harmless; it may import only the
standard library and NumPy. Pure: nothing here knows of Triton.

The length is the second size of ``mask`` and of every other input in ``fill``. Of a model whose answers padding does
not change though nothing marks it, ``mask`` is the input that is as long as the request. ``engines.json`` describes
it::

    {"mask": "attention_mask", "fill": {"input_ids": 0, "attention_mask": 0}, "left": false, "cut": {"tokens": [1]},
     "run_positions": 40, "steps": [], "frames": {"logits": [[1, 320, -80]]}}

``left``: requests are filled up in front of what they have, not behind it. ``cut`` names the sizes of outputs that are
as long as the request. ``frames`` has those that are ``(length + offset) // stride``, as ``[axis, stride, offset]``: of
a sound, whose convolutions make one frame of many positions; left out where there are none. ``run_positions`` is what a
run takes however little is in it, in positions (rows × length) of which it takes as long. ``steps`` are lengths,
ascending, up to which groups are filled up, so that few shapes come; empty where any shape is as good.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Inputs = dict[str, Any]
AXIS = 1


class Lengths:
    """How requests of one model are joined."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.mask: str = described["mask"]
        self.fill: dict[str, float] = dict(described["fill"])
        self.cut: dict[str, list[int]] = dict(described["cut"])
        self.frames: dict[str, list[list[int]]] = dict(described.get("frames", {}))
        self._shortest = max((stride - offset for axes in self.frames.values() for _, stride, offset in axes),
                             default=0)
        self._left: bool = described["left"]
        self._run_positions: float = described["run_positions"]
        self._steps: list[int] = sorted(described["steps"])

    def of(self, inputs: Mapping[str, Any]) -> int:
        """How long a request is. Raises ``ValueError`` where its inputs differ, or it is too short for a frame: filled
        up it would not be any more."""
        found = {name: inputs[name].shape[AXIS] if inputs[name].ndim > AXIS else None for name in self.fill}
        length = found[self.mask]
        if length is None or any(other != length for other in found.values()):
            raise ValueError(f"inputs must have the same length, got {found}")
        if length < self._shortest:
            raise ValueError(f"inputs have {length} positions, and the model takes at least {self._shortest}")
        return int(length)

    def key(self, name: str, array: Any) -> tuple[int, ...]:
        """What the shape of an input must have in common with that of its neighbours: all but batch and length."""
        shape = tuple(array.shape[1:])
        return shape[AXIS:] if name in self.fill else shape

    def groups(self, requests: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], int]]:
        """Places of the requests that run together, each place once, and the length to fill them up to."""
        sizes = [(self.of(inputs), inputs[self.mask].shape[0]) for inputs in requests]
        return planned(sizes, self._run_positions, self._steps)

    def filled(self, inputs: Inputs, length: int) -> Inputs:
        """``inputs`` in ``length`` positions; as they are where they have as many."""
        missing = length - self.of(inputs)
        if not missing:
            return dict(inputs)
        return {name: filled_up(array, missing, self.fill[name], left=self._left) if name in self.fill else array
                for name, array in inputs.items()}

    def cut_back(self, outputs: Mapping[str, Any], length: int) -> dict[str, Any]:
        """The answer to a request of ``length``, without what belongs to padding."""
        kept = slice(-length, None) if self._left else slice(length)
        own = {name: shortened(array, self.cut.get(name, ()), kept) for name, array in outputs.items()}
        for name, axes in self.frames.items():
            for axis, stride, offset in axes:
                own[name] = shortened(own[name], (axis,), slice((length + offset) // stride))
        return own

    def positions(self, requests: Sequence[Mapping[str, Any]], length: int) -> tuple[int, int]:
        """Rows times length of the requests themselves, and as they are run, in ``length``."""
        rows = [inputs[self.mask].shape[0] for inputs in requests]
        return sum(count * self.of(inputs) for count, inputs in zip(rows, requests, strict=True)), sum(rows) * length


def planned(sizes: Sequence[tuple[int, int]], run_positions: float, steps: Sequence[int] = ()
            ) -> list[tuple[list[int], int]]:
    """The cheapest runs of requests with ``sizes`` (length, rows): their places, and the length of each run.

    A run costs ``run_positions``, and its rows times its length. Requests of one length are one run; runs of the sorted
    lengths next to each other are joined where that costs less. Exact: no way of grouping costs less, as a request
    that is shorter than its run may be moved into the next run that holds it.
    """
    places: dict[int, list[int]] = {}
    for place, (length, _) in enumerate(sizes):
        places.setdefault(stepped(length, steps), []).append(place)
    lengths = sorted(places)
    rows = [sum(sizes[place][1] for place in places[length]) for length in lengths]
    cuts = _cheapest(lengths, rows, run_positions)
    return [([place for length in lengths[begin:end] for place in places[length]], lengths[end - 1])
            for begin, end in cuts]


def _cheapest(lengths: Sequence[int], rows: Sequence[int], run: float) -> list[tuple[int, int]]:
    """Where to cut ascending ``lengths``, each with ``rows``: ``[begin, end)`` of each run."""
    best, came = [0.0], [0]
    for end in range(1, len(lengths) + 1):
        together, least, begin = 0, float("inf"), end - 1
        for start in range(end - 1, -1, -1):
            together += rows[start]
            cost = best[start] + run + together * lengths[end - 1]
            if cost < least:
                least, begin = cost, start
        best.append(least)
        came.append(begin)
    cuts, end = [], len(lengths)
    while end:
        cuts.append((came[end], end))
        end = came[end]
    return cuts[::-1]


def stepped(length: int, steps: Sequence[int]) -> int:
    """The next of ascending ``steps``, or ``length`` itself above the last one."""
    at = bisect.bisect_left(steps, length)
    return steps[at] if at < len(steps) else length


def filled_up(array: Array, missing: int, value: float, *, left: bool = False) -> Array:
    """With ``missing`` more positions of ``value`` at the end, or in front."""
    rows, length, *rest = array.shape
    longer = np.full((rows, length + missing, *rest), value, array.dtype)
    longer[:, missing if left else 0:][:, :length] = array
    return longer


def shortened(array: Any, axes: Iterable[int], kept: slice) -> Any:
    for axis in axes:
        array = array[(slice(None),) * axis + (kept,)]
    return array

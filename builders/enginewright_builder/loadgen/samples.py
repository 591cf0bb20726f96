"""Samples that LoadGen asks for by their number, and the requests that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from enginewright_builder.load.requests import Request, encode

Row = Mapping[str, NDArray[Any]]


class Samples:
    """``rows`` are arrays by input, each with a leading dimension of 1, or a whole call of a model without batches.
    Requests of one sample are encoded here, before any clock runs; of several when they are asked for."""

    def __init__(self, model: str, rows: Sequence[Row]) -> None:
        self._model, self._rows = model, rows
        self._alone = [encode(model, row, batch=1) for row in rows]
        kinds: dict[tuple[Any, ...], int] = {}
        self._kinds = [kinds.setdefault(tuple(array.shape for array in row.values()), len(kinds)) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def calls(self, numbers: Sequence[int], most: int) -> Iterator[list[int]]:
        """Places in ``numbers`` of those that go in one request: up to ``most`` samples of one shape."""
        if most == 1:
            yield from ([place] for place in range(len(numbers)))
            return
        groups: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            groups.setdefault(self._kinds[number], []).append(place)
        for group in groups.values():
            yield from (group[start:start + most] for start in range(0, len(group), most))

    def request(self, numbers: Sequence[int]) -> Request:
        """Of samples of one shape."""
        if len(numbers) == 1:
            return self._alone[numbers[0]]
        rows = [self._rows[number] for number in numbers]
        return encode(self._model, {name: np.concatenate([row[name] for row in rows]) for name in rows[0]})

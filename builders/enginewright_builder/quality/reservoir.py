"""A uniform sample of all rows that came by, bounded in number and in bytes."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from enginewright_builder.tensors import Array

Row = Mapping[str, Array]


class Reservoir:
    """At most ``samples`` rows of at most ``most_bytes`` together: Vitter's algorithm R. Where the bytes do not
    suffice, rows of the sample go by lot, the newest as well, and it stays that much smaller: each of the ``seen`` is
    as likely to be in it as any other. One that is larger than all the room counts for ``too_large`` alone."""

    def __init__(self, samples: int, most_bytes: int, dice: random.Random) -> None:
        self._capacity, self._most, self._dice = samples, most_bytes, dice
        self._rows: list[Row] = []
        self.seen = self.too_large = self.bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows)

    def add(self, row: Row) -> None:
        """Keeps a copy, if at all: a row is often a view of a larger batch."""
        size = _bytes(row)
        if size > self._most:
            self.too_large += 1
            return
        self.seen += 1
        if len(self._rows) >= self._capacity:
            place = self._dice.randrange(self.seen)
            if place >= self._capacity:
                return
            self._drop(place)
        self._rows.append(row)
        self.bytes += size
        while self.bytes > self._most:
            self._drop(self._dice.randrange(len(self._rows)))
            self._capacity = len(self._rows)
        for place in [place for place, one in enumerate(self._rows) if one is row]:
            self._rows[place] = {name: np.array(array) for name, array in row.items()}

    def _drop(self, place: int) -> None:
        self._rows[place], self._rows[-1] = self._rows[-1], self._rows[place]
        self.bytes -= _bytes(self._rows.pop())


def _bytes(row: Row) -> int:
    return sum(array.nbytes if array.dtype.kind != "O" else sum(len(text.encode()) for text in array.ravel())
               for array in row.values())

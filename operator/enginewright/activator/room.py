"""How much is held at most: requests, and bytes of them."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class FullError(Exception):
    """``never`` says that the request would not fit into an empty room either."""

    def __init__(self, message: str, *, never: bool = False) -> None:
        super().__init__(message)
        self.never = never


class Room:
    """For ``requests`` requests of ``size`` bytes altogether."""

    def __init__(self, requests: int, size: int) -> None:
        self.size = size
        self.bytes = 0
        self.taken = 0
        self._requests = requests

    def enter(self) -> Place:
        """Raises :class:`FullError`."""
        if self.taken >= self._requests:
            raise FullError(f"{self._requests} requests are already held")
        self.taken += 1
        return Place(self)


class Place:
    """One request's, until the block that it is entered by ends."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._room.taken -= 1
        self.shrink(self._bytes)

    def check(self, size: int) -> None:
        """Raises :class:`FullError` where ``size`` bytes more would not fit into an empty room. Takes none."""
        if self._bytes + size > self._room.size:
            raise FullError(f"a request of more than {self._room.size} bytes cannot be held", never=True)

    def grow(self, size: int) -> None:
        """Takes ``size`` bytes more. Raises :class:`FullError`, and takes none then."""
        self.check(size)
        room = self._room
        if room.bytes + size > room.size:
            raise FullError(f"{room.bytes} of {room.size} bytes are already held")
        self._bytes += size
        room.bytes += size

    def shrink(self, size: int) -> None:
        self._bytes -= size
        self._room.bytes -= size

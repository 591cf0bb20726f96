"""When a load that was asked to stop does so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator


class Stop:
    """Asked once, it waits for ``least`` arrivals to have been sent; asked again, it waits no more."""

    def __init__(self, least: int = 0) -> None:
        self.event = asyncio.Event()
        self._left = least
        self._asked = False

    def ask(self) -> None:
        if self._asked or self._left <= 0:
            self.event.set()
        self._asked = True

    def counted(self, arrivals: Iterable[float]) -> Iterator[float]:
        """``arrivals`` as they are. The one after the last that was wanted finds the event set."""
        for offset in arrivals:
            yield offset
            self._left -= 1
            if self._asked and self._left <= 0:
                self.event.set()

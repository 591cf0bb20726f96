"""What the builder may ask of any server that it runs: Triton, or one of language models
(docs/adr/0039-language-models.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Protocol, Self


class Running(Protocol):
    """An async context manager: entered once the server is ready, and ended when it is left.

    ``start_seconds`` is how long it took until it was ready, 0 where unknown; ``version`` is its own.
    """

    start_seconds: float
    version: str

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None: ...

    @property
    def http_url(self) -> str: ...

    async def metrics(self) -> str:
        """Its Prometheus page."""
        ...

    async def memory_bytes(self) -> int:
        """That it takes now; 0 where unknown."""
        ...

    def last_words(self) -> str:
        """What follows an error's message: the end of its log, or where to find it."""
        ...

    async def stop(self) -> None:
        """Safe to call twice."""
        ...


class Within(ABC):
    """What runs within its context: one that does not start is stopped, too."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.stop()

    @abstractmethod
    async def _start(self) -> None:
        """Until it is ready."""

    @abstractmethod
    async def stop(self) -> None:
        """Safe to call twice, and where nothing began."""

"""Which object: the unit of the work queue, of scraping and of everything else that is kept between passes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Key:
    """An ``OptimisedModel`` by name: one that was deleted and made again is the same key."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

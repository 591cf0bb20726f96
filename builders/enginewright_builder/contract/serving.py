"""How an engine is served: the settings of ``config.pbtxt`` that a build chooses, and a replica's queue. Of a language
model, where its draft lies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Self

from enginewright_builder.contract.documents import dumps, load
from enginewright_builder.contract.names import DRAFT_PLACE


def with_draft(words: Iterable[str], folder: str) -> list[str]:
    """Of a server's command line, whose draft is in ``folder``. Without a draft they are as they were."""
    inside = json.dumps(folder, ensure_ascii=False)[1:-1]  # the word is JSON
    return [word.replace(DRAFT_PLACE, inside) for word in words]


@dataclass(frozen=True, kw_only=True)
class ServingChoice:
    """The chosen ``config.pbtxt`` settings."""

    max_batch_size: int
    preferred_batch_sizes: tuple[int, ...] = ()
    max_queue_delay_us: int = 0
    instance_count: int = 1


@dataclass(frozen=True, kw_only=True)
class QueuePolicy:
    """Of requests that wait in one queue: so many at most, so long at most, and what becomes of those that wait longer.
    0: no limit."""

    max_queue_size: int = 0
    timeout_us: int = 0
    timeout_action: Literal["reject", "continue"] = "reject"
    allow_timeout_override: bool = False


@dataclass(frozen=True, kw_only=True)
class QueueLevel:
    """The policy of one priority level, 1 the highest."""

    level: int
    policy: QueuePolicy


@dataclass(frozen=True, kw_only=True)
class QueueRequest:
    """What becomes of requests that wait in a replica. It is no part of an engine: replicas add it to the
    ``config.pbtxt`` that the engine was published with. Without ``priority_levels`` there is one queue."""

    policy: QueuePolicy = field(default_factory=QueuePolicy)
    priority_levels: int = 0
    default_priority_level: int = 0
    levels: tuple[QueueLevel, ...] = ()

    def to_json(self) -> str:
        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError` on malformed JSON, unknown fields or wrong types."""
        return load(cls, text)

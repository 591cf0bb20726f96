"""Finds unused engines, captured requests that are to go, and leases of builds that have no owner any more, now and
then. No object asks, so no pass does it."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from enginewright.act.execute import Actor
from enginewright.clients.errors import ClientError
from enginewright.core.collect import collect
from enginewright.core.collect_captures import collect_captures
from enginewright.core.collect_leases import collect_leases
from enginewright.core.config import OperatorConfig
from enginewright.observe.references import ReferenceReader

PERIOD: Final = 600.0
log = structlog.get_logger(__name__)


class Housekeeper:
    """``period`` is seconds between rounds."""

    def __init__(self, reader: ReferenceReader, actor: Actor, config: OperatorConfig, period: float = PERIOD) -> None:
        self._reader = reader
        self._actor = actor
        self._config = config
        self._period = period

    async def run(self) -> None:
        """Forever. A round that fails is logged and left to the next: nothing waits for it."""
        while True:
            await asyncio.sleep(self._period)
            try:
                await self.round()
            except ClientError as error:
                log.warning("the search for unused engines failed", error=str(error))

    async def round(self) -> None:
        """Raises :class:`~enginewright.clients.errors.ClientError` when it cannot look."""
        for seen in await self._reader.read():
            captures = collect_captures(seen.captures, self._config) if seen.captures else ()
            for what, actions in (("leases without an owner", collect_leases(seen.leases, seen.now)),
                                  ("captures", captures), ("unused engines", collect(seen, self._config))):
                try:
                    await self._actor.execute(seen.namespace, actions, log)
                except ClientError as error:
                    log.warning(f"{what} stay", namespace=seen.namespace, error=str(error))

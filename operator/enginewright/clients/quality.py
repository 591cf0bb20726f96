"""What a replica's quality monitor reports."""

from __future__ import annotations

import asyncio
from typing import Final, Self

import aiohttp

from enginewright.clients.errors import TransientError
from enginewright.clients.signals import NoSignalError
from enginewright.clients.urls import pod_url
from enginewright.core.labels import QUALITY_PORT
from enginewright_builder.contract import ContractError, QualityReport

MOST_BYTES: Final = 64 << 10


class QualityClient:
    """``deadline`` is seconds that an answer may take."""

    def __init__(self, *, deadline: float = 2.0) -> None:
        self._deadline = deadline
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def report(self, address: str, port: int = QUALITY_PORT) -> QualityReport:
        """Raises :class:`TransientError` without an answer, :class:`NoSignalError` for one that makes no sense."""
        url = pod_url(address, port, "/quality")
        try:
            async with asyncio.timeout(self._deadline), self._session.get(url) as answer:
                if answer.status != 200:
                    raise TransientError(f"answered {answer.status}", call=f"GET {url}", status=answer.status)
                body = await answer.content.read(MOST_BYTES)
        except TimeoutError as error:
            raise TransientError(f"no answer within {self._deadline:g} s", call=f"GET {url}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransientError(f"{type(error).__name__}: {error}", call=f"GET {url}") from error
        try:
            found = QualityReport.from_json(body.decode())
        except (ContractError, UnicodeDecodeError) as error:
            raise NoSignalError(f"the report cannot be read: {error}", call=f"GET {url}") from error
        if not 0 <= found.total <= found.samples:
            raise NoSignalError(f"{found.samples} scores cannot add up to {found.total}", call=f"GET {url}")
        return found

"""What the operator asks pods over HTTP, and how it words that one did not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, Self

import aiohttp

from enginewright.clients.errors import TransientError

# Bytes, of a page of metrics.
LARGEST_PAGE: Final = 4 << 20


class PodClient:
    """Connections to pods, ``connections`` at most (0: no limit), kept between requests. ``deadline`` is seconds that
    an answer may take."""

    def __init__(self, *, deadline: float, connections: int) -> None:
        self._deadline = deadline
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections), auto_decompress=True, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def _page(self, url: str, most: int = LARGEST_PAGE, *, wait: float = 0.0,
                    params: Mapping[str, str] | None = None) -> bytes:  # fmt: skip
        """The answer to a GET, which may take ``wait`` seconds beyond the deadline, as :func:`body_of` reads it. Raises
        :class:`TransientError` without one."""
        call = f"GET {url}"
        async with answered(self._deadline + wait, call), self._session.get(url, params=params) as answer:
            if answer.status != 200:
                raise TransientError(f"answered {answer.status}", call=call, status=answer.status)
            return await body_of(answer, most)


async def body_of(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Whole, or cut off once it has more than ``most`` bytes."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > most:
            break
    return bytes(body)


@contextlib.asynccontextmanager
async def answered(deadline: float, call: str) -> AsyncIterator[None]:
    """Bounds what is done in it to ``deadline`` seconds. Raises :class:`TransientError`, which names ``call``, once
    they are over or where the other side cannot be reached."""
    try:
        async with asyncio.timeout(deadline):
            yield
    except TimeoutError as error:
        raise TransientError(f"no answer within {deadline:g} s", call=call) from error
    except (aiohttp.ClientError, OSError) as error:
        raise TransientError(f"{type(error).__name__}: {error}", call=call) from error

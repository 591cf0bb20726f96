"""What the operator asks pods over HTTP, and how it words that one did not answer.

What a pod answers is a stranger's text. No message has any of it: messages end in status, events and logs, where they
would let the one who chose what the operator asks read the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from enginewright.clients.errors import TransientError

# Pieces of an answer that come in chunks, beside one for each so many bytes: each piece costs time.
FEWEST_CHUNKS: Final = 256
CHUNK: Final = 1 << 10


class TooLargeError(TransientError):
    """The answer is larger, or costs more to read, than an honest one."""


def refusal(status: int) -> str:
    """Words for a ``status`` that is not 200."""
    if 300 <= status < 400:
        return f"answered {status}, a redirect, which is not followed; the replica's own server must answer"
    return f"answered {status}; the replica's log says why"


async def body_of(answer: aiohttp.ClientResponse, most: int) -> bytes | None:
    """None for a body of more than ``most`` bytes, in too many pieces, or packed."""
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        return None
    body, chunks = bytearray(), 0
    async for piece, ends in answer.content.iter_chunks():
        body += piece
        chunks += ends
        if len(body) > most or too_many_chunks(chunks, len(body)):
            return None
    return bytes(body)


def too_many_chunks(chunks: int, size: int) -> bool:
    """For a body of ``size`` bytes so far."""
    return chunks > FEWEST_CHUNKS + size // CHUNK


@contextlib.asynccontextmanager
async def answered(deadline: float, call: str) -> AsyncIterator[None]:
    """Bounds what is done in it to ``deadline`` seconds. Raises :class:`TransientError`, which names ``call``, once
    they are over or where the other side cannot be reached."""
    try:
        async with asyncio.timeout(deadline):
            yield
    except TimeoutError as error:
        raise TransientError(f"no answer within {deadline:g} s", call=call) from error
    except OSError as error:
        raise TransientError(f"{type(error).__name__}: {error.strerror or error}", call=call) from error
    except (aiohttp.ClientError, ValueError) as error:
        # Its text quotes the answer.
        raise TransientError(f"the answer is not valid HTTP ({type(error).__name__})", call=call) from error

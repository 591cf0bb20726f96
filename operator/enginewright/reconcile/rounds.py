"""Work that comes round for as long as the operator runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from enginewright.clients.errors import ClientError, TransientError
from enginewright.core.backoff import Backoff

RETRY: Final = Backoff(first=1.0, most=30.0)


async def rounds(once: Callable[[], Awaitable[float]], failed: Callable[[ClientError, float], None],
                 chance: Callable[[], float]) -> None:
    """Forever. ``once`` returns the seconds until the next round. After one that failed the next comes sooner, but not
    before the apiserver wants to be asked again; ``failed`` is called with the error and the seconds until then."""
    failures = 0
    while True:
        try:
            wait = await once()
        except ClientError as error:
            failures += 1
            asked = error.retry_after if isinstance(error, TransientError) else None
            wait = max(asked or 0.0, RETRY.jittered(failures, chance))
            failed(error, wait)
        else:
            failures = 0
        await asyncio.sleep(wait)

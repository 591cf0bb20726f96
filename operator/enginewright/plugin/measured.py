"""What a Prometheus knows of a model's replicas, queue and requests over time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from enginewright.clients.errors import ClientError
from enginewright.clients.prometheus import PrometheusClient, Series, public, selector
from enginewright.clients.signals import NoSignalError
from enginewright.core.servers import Metrics
from enginewright.core.servers.triton import TRITON
from enginewright.core.servers.vllm import VLLM
from enginewright.plugin.wishes import WishError

# Points across the page; more cannot be distinguished.
POINTS: Final = 300
# Shortest step: servers are usually scraped every 15 or 30 seconds.
STEP_SECONDS: Final = 15.0
DEADLINE_SECONDS: Final = 30


async def over_time(url: str, obj: Mapping[str, Any], now: datetime, hours: float) -> dict[str, Series]:
    """``replicas``, ``queued`` and ``rate`` (requests a second), as history.py takes them. Raises
    :class:`WishError`."""
    step = max(STEP_SECONDS, 3600 * hours / POINTS)
    engine = (obj.get("status") or {}).get("engine") or {}
    asked = queries(selector(obj["metadata"]["namespace"], obj["metadata"]["name"]), step,
                    VLLM.metrics if engine.get("tokens") else TRITON.metrics)
    async with PrometheusClient(deadline=DEADLINE_SECONDS) as client:
        try:
            found = await asyncio.gather(*(
                client.over_time(url, query, now - timedelta(hours=hours), now, step) for query in asked.values()
            ))
        except (ClientError, NoSignalError) as error:
            raise WishError(f"--prometheus {public(url)}: {error}") from error
    return {name: with_gaps(series, step, now.timestamp()) for name, series in zip(asked, found, strict=True)}


def with_gaps(series: Series, step: float, end: float) -> Series:
    """With a NaN where values are missing, up to ``end``: with no replica nothing is exported."""
    found: Series = []
    for at, value in series:
        if found and at - found[-1][0] > 1.5 * step:
            found.append((found[-1][0] + step, math.nan))
        found.append((at, value))
    if found and end - found[-1][0] > 1.5 * step:
        found.append((found[-1][0] + step, math.nan))
    return found


def queries(pods: str, step: float, names: Metrics = TRITON.metrics) -> dict[str, str]:
    """By the server's ``names``. Rates over two steps at least, so that nothing falls between two, and over four
    scrapes at least."""
    window = f"{max(120.0, 2 * step):.0f}s"
    return {
        "replicas": f"count(count by (pod) ({names.pending}{{{pods}}}))",
        "queued": f"sum({names.pending}{{{pods}}})",
        "rate": f"sum(rate({names.successes}{{{pods}}}[{window}]))",
    }

"""What a running operator tells at /metrics."""

from __future__ import annotations

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


async def samples(port: int) -> list[Sample]:
    """Of the operator whose metrics are at ``port`` of this machine. Raises ``aiohttp.ClientError``."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        return samples_of(await answer.text())


def samples_of(page: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]

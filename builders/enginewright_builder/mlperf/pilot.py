"""LoadGen has to know beforehand about how fast a served engine is. The pilot measures it, and warms the engine up."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright_builder.load import Channels, LoadResult, Request, closed_loop
from enginewright_builder.loadgen.samples import Samples
from enginewright_builder.loadgen.scenarios import MULTI_STREAM_SAMPLES

PILOT_SECONDS, WARMUP_SECONDS = 2.0, 0.5


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """``single_ms`` and ``multi_ms`` are the medians of a request of one sample, and of as many as a query of
    ``MultiStream`` has. ``alone_rate``: requests of one sample a second, with as many in flight as keep the engine
    busy. ``rate`` in samples a second, by ``in_flight`` requests of up to ``most`` samples at once: the faster of the
    ways tried. ``failed`` counts requests, ``message`` is of the first."""

    single_ms: float
    multi_ms: float
    alone_rate: float
    rate: float
    most: int
    in_flight: int
    failed: int = 0
    message: str = ""


async def fly(url: str, samples: Samples, *, most: int, instances: int, concurrency: int, seconds: float) -> Pilot:
    """``most`` samples fit into one request. ``concurrency``: requests of one sample that the build found to keep the
    engine busy. Each load takes ``seconds`` at most. Raises ``ConnectionError``."""
    ways = [(1, max(1, concurrency)), (most, 2 * instances)] if most > 1 else [(1, max(1, concurrency))]
    async with Channels(url) as channels:
        async def loop(rows: int, in_flight: int) -> LoadResult:
            return await closed_loop(channels, _requests(samples, rows), concurrency=in_flight,
                                     seconds=min(PILOT_SECONDS, seconds),
                                     warmup_seconds=WARMUP_SECONDS)

        single = await loop(1, 1)
        multi = await loop(min(most, MULTI_STREAM_SAMPLES), 1)
        tried = [await loop(*way) for way in ways]
    best = max(range(len(ways)), key=lambda place: tried[place].throughput)
    every = [single, multi, *tried]
    return Pilot(single_ms=single.p50_ms, multi_ms=multi.p50_ms, alone_rate=tried[0].throughput,
                 rate=tried[best].throughput, most=ways[best][0],
                 in_flight=ways[best][1], failed=sum(one.failed for one in every),
                 message=next((text for one in every for text in one.messages.values()), ""))


def _requests(samples: Samples, most: int) -> list[Request]:
    """Full ones, where there are enough samples of one shape."""
    numbers = range(len(samples))
    calls = [[numbers[place] for place in call] for call in samples.calls(numbers, most)]
    fullest = max(map(len, calls))
    return [samples.request(call) for call in calls if len(call) == fullest]

"""What a token takes of a replica, from the loads of a sweep.

At the load that ships, one replica is busy for one second each second: a · input rate + b · output rate = 1. All loads
have the same prompts, so others of them say no more. What tells a from b is the load of one request at a time. There
nothing else runs while a prompt is read, but for the step that makes its first token, which a full server makes anyway.
Reading is bound by arithmetic, so what it takes alone it takes of a full server, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from enginewright_builder.contract import TokenWork
from enginewright_builder.generate.sweep import Point

# Of a replica's time, what reading prompts can take at most: each answer has tokens that are made.
MOST_READING = 0.9


def work_of(points: Sequence[Point], load: Point) -> TokenWork | None:
    """``load`` is the one that ships, among ``points`` of the same server. None where it gave no token."""
    requests = sum(load.figures.finishes.values())
    if not requests or load.figures.output_rate <= 0 or not load.figures.output_tokens:
        return None
    read = max(0.0, load.figures.input_tokens - load.cached_tokens) / requests
    written = load.figures.output_tokens / requests
    rate = load.figures.output_rate / written
    share = min(MOST_READING, _reading_seconds(points) * read * rate)
    return TokenWork(input_tokens=round(read, 2), output_tokens=round(written, 2),
                     input_seconds=share / (read * rate) if read else 0.0,
                     output_seconds=(1 - share) / load.figures.output_rate)


def _reading_seconds(points: Sequence[Point]) -> float:
    """Of one input token, where one request was in flight; 0 where no such load tells."""
    alone = next((one for one in points if one.concurrency == 1), None)
    requests = sum(alone.figures.finishes.values()) if alone else 0
    read = alone.figures.input_tokens - alone.cached_tokens if alone else 0.0
    if alone is None or not requests or read <= 0:
        return 0.0
    first = alone.layers.prefill_ms if alone.layers else alone.figures.ttft_ms.p50
    return max(0.0, first - alone.figures.tpot_ms.p50) / 1e3 * requests / read

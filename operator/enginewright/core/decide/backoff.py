"""When something that failed is tried again."""

from __future__ import annotations

from datetime import datetime, timedelta

from enginewright.core.conditions import parse_timestamp, timestamp

FIRST_DELAY = 10.0
LONGEST_DELAY = 300.0
# Failures that the same attempt may well repeat (out of memory, a bug) end after so many in a row.
LIMIT = 3


def delay(failures: int) -> float:
    """Seconds after the ``failures``-th failure in a row: 10, 20, 40 … 300."""
    return float(min(FIRST_DELAY * 2 ** min(max(failures, 1) - 1, 16), LONGEST_DELAY))


def remaining(last_failure: str | None, failures: int, now: datetime) -> float:
    """Seconds until the next attempt may start; 0 when it may."""
    last = parse_timestamp(last_failure)
    if last is None or failures < 1:
        return 0.0
    return max(0.0, (last + timedelta(seconds=delay(failures)) - now).total_seconds())


def next_attempt(last_failure: str | None, failures: int) -> str:
    """When, as words that stay the same from pass to pass."""
    last = parse_timestamp(last_failure)
    return f"at {timestamp(last + timedelta(seconds=delay(failures)))}" if last else "now"

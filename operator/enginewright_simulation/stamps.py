"""Which stamps can be times of a trace: seconds since 1970 that dates, and so schedules, reach."""

from __future__ import annotations

# Seconds since 1970 in milliseconds would be the year 5138.
MILLISECONDS = 1e11
# In the year 5. Dates begin in the year 1, and schedules look back from theirs.
EARLIEST = -62e9


def problem(stamp: float) -> str:
    """What is wrong with it, and what to write; empty where nothing is."""
    if abs(stamp) >= MILLISECONDS:
        return "is not in seconds; divide milliseconds by 1,000"
    if stamp < EARLIEST:
        return "is before 1970; write seconds since 1970 such as 1700158546.68"
    return ""

"""Which run of LoadGen comes next, and which one counts. Pure.

LoadGen judges a run; it does not look for the best one. Of ``Server`` the command looks for the largest valid rate: by
bisection over short runs, then in full length. Of the other scenarios LoadGen has to know beforehand about how fast
they are, and says afterwards when that was too slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginewright_builder.loadgen.logs import Run
from enginewright_builder.loadgen.scenarios import OFFLINE, SERVER, Target

# Of a rate that is looked for; how many of them, how far apart two may be, and how far the first steps go.
SEARCH_SECONDS = 30.0
SEARCH_RUNS = 7
CLOSE = 1.03
UP, DOWN = 1.5, 0.6
# Runs in full length, and the rate of each later run of Server, as a share of the one before.
FULL_RUNS = 3
STEP_BACK = 0.95
# LoadGen makes 1.1 times as many samples as the rate in its settings takes, and twice as many queries.
OFFLINE_MARGIN, STREAM_MARGIN = 1.1, 0.5


def next_target(first: Target, runs: Sequence[Run], *, fixed: bool = False) -> Target | None:
    """``first`` is what the first run would be in full length; None where no more is to be found out. ``fixed``: the
    rate of ``Server`` is stated, so nothing is looked for."""
    if first.scenario != SERVER:
        return _better_target(first, runs)
    if fixed:
        return None if runs else first
    return _next_rate(first, runs)


def counts(first: Target, runs: Sequence[Run]) -> Run:
    """Of the runs in full length the valid one with the largest rate, or the last, whose reasons then say why."""
    full = [run for run in runs if run.seconds >= first.seconds]
    valid = [run for run in full if run.valid]
    if first.scenario == SERVER and valid:
        return max(valid, key=lambda run: run.target)
    return full[-1]


def _better_target(first: Target, runs: Sequence[Run]) -> Target | None:
    if not runs:
        return first
    last = runs[-1]
    if not last.too_short or len(runs) >= FULL_RUNS:
        return None
    if first.scenario == OFFLINE:
        return _with(first, max(last.value, last.target) * OFFLINE_MARGIN)
    return _with(first, min(last.target, min(last.latencies_ms.values(), default=math.inf)) * STREAM_MARGIN)


def _next_rate(first: Target, runs: Sequence[Run]) -> Target | None:
    search_seconds = min(SEARCH_SECONDS, first.seconds)
    tried = [run for run in runs if run.seconds <= search_seconds]
    full = [run for run in runs if run.seconds > search_seconds]
    if not full and (rate := _bisected(first.value, tried)):
        return _with(first, rate, search_seconds)
    if first.seconds <= search_seconds or len(full) >= FULL_RUNS or any(run.valid for run in full):
        return None
    # Where no short run was valid, a long one at the least rate says so in full length.
    found = max((run.target for run in tried if run.valid), default=min(run.target for run in tried))
    return _with(first, found * STEP_BACK ** len(full), first.seconds)


def _bisected(start: float, tried: Sequence[Run]) -> float | None:
    low = max((run.target for run in tried if run.valid), default=0.0)
    high = min((run.target for run in tried if not run.valid), default=math.inf)
    if len(tried) >= SEARCH_RUNS or high <= low * CLOSE:
        return None
    if not tried:
        return start
    if math.isinf(high):
        return low * UP
    return (low + high) / 2 if low else high * DOWN


def _with(first: Target, value: float, seconds: float = 0.0) -> Target:
    # As many digits as user.conf states.
    return Target(scenario=first.scenario, value=float(f"{value:.4g}"), seconds=seconds or first.seconds,
                  latency_ms=first.latency_ms)

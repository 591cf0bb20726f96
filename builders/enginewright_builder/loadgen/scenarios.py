"""MLPerf's four scenarios, and the settings of each for LoadGen: a ``user.conf`` as a submission has it. Pure.

Everything else (seeds, percentiles, least counts) LoadGen takes from the ``mlperf.conf`` that it carries.
"""

from __future__ import annotations

from dataclasses import dataclass

OFFLINE, SERVER, SINGLE_STREAM, MULTI_STREAM = "Offline", "Server", "SingleStream", "MultiStream"
SCENARIOS = (OFFLINE, SERVER, SINGLE_STREAM, MULTI_STREAM)
# Scenarios of rates; the two others are of times.
RATES = (OFFLINE, SERVER)
# How many samples LoadGen puts into one query.
MULTI_STREAM_SAMPLES = 8
# What mlperf.conf asks of every scenario.
OFFICIAL_SECONDS = 600.0
# A shorter run of Server has so many queries at least, as mlperf.conf asks of MultiStream: of fewer, LoadGen knows no
# 99th percentile.
SERVER_QUERIES = 662


@dataclass(frozen=True, kw_only=True)
class Target:
    """``value``: samples a second of ``Offline`` and ``Server``; of the two streams the milliseconds that a query is
    expected to take, by which LoadGen makes queries in advance and nothing else. ``latency_ms`` is what 99 % of
    ``Server``'s queries keep under."""

    scenario: str
    value: float
    seconds: float = OFFICIAL_SECONDS
    latency_ms: int = 0


def user_conf(target: Target) -> str:
    """LoadGen's ``user.conf``. Durations are only stated where they are not the official ones."""
    lines = [f"{'target_qps' if target.scenario in RATES else 'target_latency'} = {target.value:.6g}"]
    if target.scenario == SERVER:
        lines.append(f"target_latency = {target.latency_ms}")
    if target.seconds < OFFICIAL_SECONDS:
        lines.append(f"min_duration = {round(target.seconds * 1000)}")
        if target.scenario == SERVER:
            lines.append(f"min_query_count = {SERVER_QUERIES}")
    return "".join(f"*.{target.scenario}.{line}\n" for line in lines)

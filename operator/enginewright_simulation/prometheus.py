"""Range data of a Prometheus as arrivals: a rate in each step, and requests drawn from it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from enginewright_simulation.errors import InputError
from enginewright_simulation.luck import stream
from enginewright_simulation.stamps import problem

QUERY = "give the JSON of query_range for a rate, such as sum(rate(nv_inference_request_success[1m]))"


def arrivals_of_range(data: Any, where: str, seed: int) -> list[float]:
    """Seconds since 1970. ``data`` is Prometheus' answer (``resultType`` matrix); several series are added up.

    Between two steps requests come at random with the rate of the first (a Poisson process). Raises
    :class:`InputError`.
    """
    steps = _steps(data, where)
    times = sorted(steps)
    if len(times) < 2:
        raise InputError(f"{where}: has {len(times)} step of data; {QUERY} over a longer range")
    width = min(later - time for time, later in itertools.pairwise(times))
    for time, later in itertools.pairwise(times):
        if later - time > 1.5 * width:
            raise InputError(f"{where}: has no data between {time:.0f} and {later:.0f}, {later - time:.0f} s at steps "
                             f"of {width:g} s; what came then is unknown: choose a range without a gap")
    found = list(_drawn(times, width, steps, seed))
    if not found:
        raise InputError(f"{where}: has no request, all rates are 0; {QUERY}")
    return found


def _drawn(times: list[float], width: float, steps: Mapping[float, float], seed: int) -> Iterator[float]:
    draw = stream("range", seed)
    for time in times:
        rate, at = steps[time], 0.0
        while rate > 0:
            at += draw.expovariate(rate)
            if at >= width:
                break
            yield time + at


def _steps(data: Any, where: str) -> dict[float, float]:
    """Rate by time."""
    if isinstance(data, dict) and data.get("status") == "error":
        raise InputError(f"{where}: is an error of Prometheus: {data.get('error')}; {QUERY}")
    result = data.get("data", data) if isinstance(data, dict) else data
    series = result.get("result") if isinstance(result, dict) else result
    if not isinstance(series, list):
        raise InputError(f"{where}: is not range data of Prometheus; {QUERY}")
    steps: dict[float, float] = {}
    for number, one in enumerate(series):
        values = one.get("values") if isinstance(one, dict) else None
        if not isinstance(values, list):
            raise InputError(f"{where}: series {number} has no values; {QUERY}, not of query")
        for pair in values:
            time, rate = _pair(pair, f"{where}: series {number}")
            steps[time] = steps.get(time, 0.0) + rate
    if not steps:
        raise InputError(f"{where}: is empty, Prometheus found nothing; {QUERY}")
    return steps


def _pair(pair: Any, where: str) -> tuple[float, float]:
    try:
        time, rate = float(pair[0]), float(pair[1])
    except (TypeError, ValueError, OverflowError, IndexError, KeyError) as error:
        raise InputError(f"{where}: {_shown(pair)} is not a time and a value; {QUERY}") from error
    if not (math.isfinite(time) and 0 <= rate < math.inf):
        raise InputError(f"{where}: {_shown(pair)} is not a rate; {QUERY}")
    if wrong := problem(time):
        raise InputError(f"{where}: the time of {_shown(pair)} {wrong}")
    return time, rate


def _shown(pair: Any) -> str:
    return json.dumps(pair)[:40]

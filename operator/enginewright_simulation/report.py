"""``build-report.json`` as the service of one replica: its service curve, batcher, instances, objective."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginewright_simulation.curve import Service, check_points, levelled, of_points
from enginewright_simulation.errors import InputError

WHAT = "give the build-report.json of an engine that was measured"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """``throughput`` is requests a second of one replica within the objective; ``slo_ms``, ``percentile`` and
    ``load_seconds`` None where the report has none."""

    service: Service
    throughput: float | None = None
    slo_ms: float | None = None
    percentile: float | None = None
    load_seconds: float | None = None


def read_report(path: Path, max_batch: int | None = None) -> Measured:
    """``max_batch`` overrides the report's. Raises :class:`InputError`."""
    report = _load(path)
    sweep = report.get("sweep")
    if not isinstance(sweep, Mapping) or not sweep.get("service_curve"):
        raise InputError(f"{path}: sweep.service_curve is missing or empty; {WHAT}")
    serving = _part(report, "serving") or _part(sweep, "serving")
    instances = _whole(serving.get("instance_count", 1), f"{path}: serving.instance_count", 1)
    most = max_batch or max(1, _whole(serving.get("max_batch_size", 0), f"{path}: serving.max_batch_size", 0))
    delay = _number(serving.get("max_queue_delay_us", 0), f"{path}: serving.max_queue_delay_us")
    preferred = tuple(_whole(one, f"{path}: serving.preferred_batch_sizes", 1)
                      for one in serving.get("preferred_batch_sizes") or ())
    if max_batch is None and preferred and max(preferred) > most:
        raise InputError(f"{path}: serving.preferred_batch_sizes: {max(preferred)} is above max_batch_size {most}, "
                         f"which Triton refuses; write {most} or less")
    curve = f"{path}: sweep.service_curve"
    points, wake, transport = _points(sweep, path, curve)
    service = Service(
        seconds=of_points(points, most, curve), instances=instances, wake=wake,
        transport=transport, queue_delay=delay / 1e6, preferred=tuple(size for size in preferred if size <= most),
    )
    engine, objective = _part(report, "engine"), _part(report, "objective")
    return Measured(
        service=service,
        throughput=engine.get("throughput_at_objective") or None,
        slo_ms=objective.get("latency_ms") or None,
        percentile=objective.get("latency_percentile") or None,
        load_seconds=engine.get("load_seconds") or None,
    )


def _load(path: Path) -> Mapping[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; {WHAT}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: is not JSON: {error.msg}; {WHAT}") from error
    if not isinstance(report, Mapping):
        raise InputError(f"{path}: is not a build report; {WHAT}")
    return report


def _part(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = report.get(name)
    return part if isinstance(part, Mapping) else {}


def _points(sweep: Mapping[str, Any], path: Path, curve: str) -> tuple[dict[int, float], float, float]:
    """Seconds by batch that an instance is taken, how much more after a pause, and those that a client sees on top. One
    batch in flight for each instance: each takes the time that it takes beside the others. Older reports have the
    client's figures alone."""
    seen: dict[int, float] = {}
    taken: dict[int, float] = {}
    for number, one in enumerate(sweep["service_curve"]):
        where = f"{curve}[{number}]"
        if not isinstance(one, Mapping) or "batch" not in one or "p50_ms" not in one:
            raise InputError(f"{where}: got {json.dumps(one)[:80]}; write batch and p50_ms")
        batch = _whole(one["batch"], f"{where}.batch", 1)
        if batch in seen:
            raise InputError(f"{where}.batch: {batch} is repeated; leave one out")
        seen[batch] = _number(one["p50_ms"], f"{where}.p50_ms") / 1e3
        for name in ("compute_ms", "transport_ms"):
            if one.get(name) is not None:
                _span(one[name], f"{where}.{name}")
        if one.get("compute_ms"):
            taken[batch] = one["compute_ms"] / 1e3
    if taken.keys() != seen.keys() or 1 not in taken:
        return seen, 0.0, 0.0
    check_points(seen, curve)
    taken, alone = levelled(taken), _part(sweep, "alone")
    woken, transport = (_span(alone.get(name), f"{path}: sweep.alone.{name}") / 1e3 if alone else 0.0
                        for name in ("compute_ms", "transport_ms"))
    if not woken:  # Triton counted none: the whole latency stands there as transport
        return taken, 0.0, max(0.0, seen[1] - taken[1])
    return taken, max(0.0, woken - taken[1]), transport


def _whole(value: Any, where: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{where}: got {json.dumps(value)[:40]}; write a whole number of at least {least}")
    return value


def _number(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"{where}: got {json.dumps(value)[:40]}; write a number")
    return float(value)


def _span(value: Any, where: str) -> float:
    """Milliseconds; 0 where nothing was counted."""
    span = _number(value, where)
    if not 0 <= span < math.inf:
        raise InputError(f"{where}: got {span:g}; write milliseconds of 0 or more")
    return span

"""How a model has scaled and what it costs, put into the report page: the build, which wrote it, knows neither."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from enginewright.core.status import read_status
from enginewright.plugin import money

# What the page has where its history goes (builders/enginewright_builder/report/templates/report.html.jinja).
PLACE: Final = '<script type="application/json" id="scaling">{}</script>'
# Share of the time since the first decision that is drawn before it, so that one sees what it changed.
BEFORE: Final = 0.05
Series = Sequence[tuple[float, float]]
"""Seconds since 1970, and values; NaN where there is none."""


def history(obj: Mapping[str, Any], now: datetime, measured: Mapping[str, Series] | None = None) -> dict[str, Any]:
    """What the page's script draws: ``words``, ``money``, ``from`` and ``to`` (times), and ``datasets`` by name.

    ``measured`` has Prometheus' ``replicas``, ``queued`` and ``rate``; without it replicas follow from the decisions in
    the status.
    """
    status = obj.get("status") or {}
    decisions = (status.get("autoscaling") or {}).get("decisions") or []
    replicas, measured = status.get("replicas"), measured or {}
    steps = _measured(measured.get("replicas", ()), "replicas") or _steps(decisions, replicas, now)
    rows = {name: _measured(measured.get(name, ()), "value") for name in ("queued", "rate")}
    start = min((row["time"] for name in (steps, *rows.values()) for row in name), default=_time(now.timestamp()))
    return {
        "words": _words(replicas, decisions, now, any(rows.values())),
        "money": money.before_and_after(read_status(status)),
        "from": start,
        "to": _time(now.timestamp()),
        "datasets": {"replicas": steps, "decisions": decisions, **rows},
    }


def filled(page: str, found: Mapping[str, Any]) -> str | None:
    """``page`` with its history; None for a page of an earlier release, which has no place for one."""
    before, place, after = page.partition(PLACE.format("null"))
    # Inside a script element, where "</script>" would end it.
    text = json.dumps(found, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f"{before}{PLACE.format(text)}{after}" if place else None


def _steps(decisions: Iterable[Mapping[str, Any]], replicas: int | None, now: datetime) -> list[dict[str, Any]]:
    ordered = sorted(decisions, key=lambda one: str(one["time"]))
    if not ordered:
        return []
    first = datetime.fromisoformat(ordered[0]["time"]).timestamp()
    lead = first - BEFORE * (now.timestamp() - first)
    last = ordered[-1]["to"] if replicas is None else replicas
    return [
        {"time": _time(lead), "replicas": ordered[0]["from"]},
        *({"time": one["time"], "replicas": one["to"]} for one in ordered),
        {"time": _time(now.timestamp()), "replicas": last},
    ]


def _measured(series: Series, name: str) -> list[dict[str, Any]]:
    """A value that is no number breaks the line: it has no JSON."""
    return [{"time": _time(at), name: value if math.isfinite(value) else None} for at, value in series]


def _words(replicas: int | None, decisions: Sequence[Mapping[str, Any]], now: datetime, measured: bool) -> str:
    parts = [f"{replicas} {'replica' if replicas == 1 else 'replicas'}"] if replicas is not None else []
    parts.append(f"as of {now:%Y-%m-%d %H:%M:%S} UTC")
    if not decisions:
        changes = "the autoscaler has changed nothing that the object's status remembers"
    elif len(decisions) == 1:
        changes = "the autoscaler's last change is below"
    else:
        changes = f"the autoscaler's last {len(decisions)} changes are below, newest first"
    source = "" if measured else "; queue and requests over time are drawn where --prometheus finds them"
    return f"{' '.join(parts)}: {changes}{source}."


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"

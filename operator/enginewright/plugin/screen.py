"""What ``top`` and ``watch`` show on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from enginewright.core.build_steps import in_words
from enginewright.core.conditions import find
from enginewright.core.cost import price_words
from enginewright.core.reasons import Condition
from enginewright.core.status import Status, read_status
from enginewright.plugin.words import Explanation, beside_ready, explain
from enginewright_builder.contract import printable

COLUMNS = ("NAMESPACE", "NAME", "READY", "ENGINE", "REPLICAS", "QUEUE", "BUILD-P99", "LIVE-P99", "REPLICA/S", "INF/J",
           "COST/M", "SERVED/M", "IDLE", "REASON")
NUMBERS = ("QUEUE", "BUILD-P99", "LIVE-P99", "REPLICA/S", "INF/J", "SERVED/M", "IDLE")


def rows(objects: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row of text for each object, by the names of :data:`COLUMNS`; empty where nothing was measured."""
    return [_row(obj, read_status(obj.get("status"))) for obj in objects]


def _row(obj: Mapping[str, Any], status: Status) -> dict[str, str]:
    raw = obj.get("status") or {}
    ready = find(raw.get("conditions"), Condition.READY)
    beside = beside_ready(raw) if ready.get("status") == "True" else []
    engine, cost, scaling = status.engine, status.cost, status.autoscaling
    served = cost.served if cost else None
    depth = scaling.queue_depth if scaling else None
    return dict(zip(COLUMNS, (
        str(obj["metadata"].get("namespace", "")),
        str(obj["metadata"]["name"]),
        str(ready.get("status", "Unknown")),
        f"{engine.backend} {engine.precision}" if engine else "",
        "" if status.batch else f"{status.ready_replicas or 0}/{status.replicas or 0}",
        "" if depth is None else str(depth),
        f"{engine.p99_milliseconds:.3g} ms" if engine and engine.p99_milliseconds else "",
        f"{scaling.p99_milliseconds:.3g} ms" if scaling and scaling.p99_milliseconds else "",
        f"{engine.throughput:.4g}" if engine and engine.throughput else "",
        f"{engine.inferences_per_joule:.3g}" if engine and engine.inferences_per_joule else "",
        price_words(cost) or "",
        f"{served.per_million:g}" if served and served.per_million is not None else "",
        f"{served.idle_share:.0%}" if served and served.idle_share is not None else "",
        ", ".join(str(entry.get("reason", "")) for entry in (ready, *beside)),
    ), strict=True))


def table(objects: Sequence[Mapping[str, Any]]) -> Table:
    found = rows(objects)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        shown.add_column(column, no_wrap=True, justify="right" if column in NUMBERS else "left")
    for row in found:
        colour = {"True": "green", "False": "red"}.get(row["READY"], "yellow")
        shown.add_row(*(Text(printable(row[column]), style=colour if column == "READY" else "") for column in COLUMNS))
    return shown


def lines(said: Explanation) -> list[str]:
    """For a file or a pipe as for a terminal."""
    found = [said.headline]
    for title, parts in (("", said.facts), ("On the way:", said.way), ("Next:", said.next)):
        if parts:
            found += ["", *([title] if title else []), *(f"  {part}" if title else part for part in parts)]
    return found


def live(obj: Mapping[str, Any], now: datetime) -> RenderableType:
    """The picture of one moment: what is said, and a bar while an engine is built."""
    parts: list[RenderableType] = [Text(printable(line)) for line in lines(explain(obj, now))]
    status = read_status(obj.get("status"))
    build, built = status.build, find((obj.get("status") or {}).get("conditions"), Condition.ENGINE_BUILT)
    if build and build.percent is not None and built.get("status") != "True":
        parts += [Text(printable(f"\nBuild: {in_words(build.step or 'begins')}, {build.percent} %")),
                  ProgressBar(total=100, completed=build.percent, width=60)]
    return Group(*parts)

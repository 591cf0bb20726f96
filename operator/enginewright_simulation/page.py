"""The HTML page: figures of all policies, and replicas, queue and violations of each over time. One file, no script,
nothing loaded from elsewhere."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources

from enginewright_simulation.answer import Answer
from enginewright_simulation.chart import Panel, Shape, area, bars, drawing, line
from enginewright_simulation.run import Run
from enginewright_simulation.table import HEADERS, cells, headline

# Points across the page; more cannot be distinguished.
POINTS = 500


def page(answer: Answer, runs: Mapping[str, Run], arrivals: Sequence[float]) -> str:
    end = arrivals[-1]
    buckets = {name: Buckets(run, end) for name, run in runs.items()}
    tops = Tops(
        replicas=max(max(one.running) for one in buckets.values()),
        waiting=max(max(one.waiting) for one in buckets.values()),
        late=max(max(one.late) for one in buckets.values()),
    )
    width = end / POINTS or 1.0
    rate = [count / width for count in counted(arrivals, end)]
    template = resources.files("enginewright_simulation").joinpath("page.html").read_text(encoding="utf-8")
    return string.Template(template).substitute(
        title=escape(f"{answer['trace']['name']}: policies compared"),
        headline=escape(headline(answer["trace"]) + "."),
        settings=escape(_settings(answer)),
        notes="".join(f"<p>{escape(note)}</p>" for note in answer["notes"]),
        table=_table(answer),
        rate=drawing([Panel("requests/s", 70, max(rate), (Shape("rate", line(rate)),))], end),
        policies="".join(f"<h2>{escape(name)}</h2>{one.draw(tops, end)}" for name, one in buckets.items()),
        grid=_grid(answer),
    )


class Tops:
    """The largest value of each panel over all policies."""

    def __init__(self, replicas: float, waiting: float, late: float) -> None:
        self.replicas, self.waiting, self.late = max(1.0, replicas), max(1.0, waiting), max(1.0, late)


class Buckets:
    """A run in :data:`POINTS` slices of time: the most replicas ``ready`` and ``running`` (with those that start) and
    the most requests ``waiting`` in each, and how many of those that came in it were ``late``."""

    def __init__(self, run: Run, end: float) -> None:
        self.ready, self.running, self.waiting = [0.0] * POINTS, [0.0] * POINTS, [0.0] * POINTS
        for moment in run.moments:
            if moment.time > end:
                break
            at = _slice(moment.time, end)
            self.ready[at] = max(self.ready[at], moment.replicas)
            self.running[at] = max(self.running[at], moment.replicas + moment.starting)
            self.waiting[at] = max(self.waiting[at], moment.waiting)
        if end < POINTS:
            for values in (self.ready, self.running, self.waiting):
                _fill(values)
        self.late = counted(run.ledger.late, end)

    def draw(self, tops: Tops, end: float) -> str:
        replicas = (Shape("starting", area(self.running)), Shape("ready", area(self.ready)))
        panels = [
            Panel("replicas", 90, tops.replicas, replicas),
            Panel("waiting", 60, tops.waiting, (Shape("waiting", line(self.waiting)),)),
            Panel("late", 60, tops.late, (Shape("late", bars(self.late)),)),
        ]
        return drawing(panels, end)


def counted(times: Sequence[float], end: float) -> list[float]:
    found = [0.0] * POINTS
    for time in times:
        found[_slice(time, end)] += 1
    return found


def _slice(time: float, end: float) -> int:
    return min(POINTS - 1, int(time / end * POINTS)) if end else 0


def _fill(values: list[float]) -> None:
    """A trace shorter than its points has slices without a second in them: those keep what was."""
    for at in range(1, len(values)):
        values[at] = values[at] or values[at - 1]


def _settings(answer: Answer) -> str:
    given = answer["settings"]
    asked = {"": "slo_ms", "first token ": "ttft_ms", "each after it ": "tpot_ms"}
    objective = ", ".join(f"{what}{given[name]:g} ms" for what, name in asked.items() if name in given)
    return (f"Objective {objective} at p{given['percentile']:g}; {given['min']:g} to {given['max']:g} "
            f"replicas, ready {given['cold_start_seconds']:g} s after they are asked for; one answers at most "
            f"{given['capacity_rps']:.4g} requests a second; rate × {answer['trace']['rate_scale']:g}, seed "
            f"{answer['trace']['seed']}.")


def _table(answer: Answer) -> str:
    oracle = answer["policies"].get("oracle")
    rows = [_row("th", ("policy", *HEADERS))]
    rows += [_row("td", (name, *cells(row, oracle))) for name, row in answer["policies"].items()]
    return "".join(rows)


def _grid(answer: Answer) -> str:
    if "grid" not in answer:
        return ""
    rows = [_row("th", ("policy", "target", "window s", "late", "replica-seconds"))]
    for one in answer["grid"]:
        settings = one["settings"]
        rows.append(_row("td", (one["policy"], f"{settings['target']:g}", f"{settings['window']:g}",
                                str(one["slo_violations"]), f"{one['replica_seconds']:.0f}")))
    return f"<h2>Peers with other settings</h2><table>{''.join(rows)}</table>"


def _row(cell: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts) + "</tr>"

"""The report's charts: Vega-Lite specifications with their data in them, and the rows that the page draws by itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enginewright_builder.measure.layers import NAMES, Layer, Layers
from enginewright_builder.report import history, words
from enginewright_builder.report.history import Spec
from enginewright_builder.report.model import BuildReport
from enginewright_builder.sweep.result import Point

# An objective, or plain serving, farther to the right would squeeze the points into a corner: it is only told in words.
FARTHEST = 2.0
HEIGHT = 300


@dataclass(frozen=True, kw_only=True)
class Bar:
    """``width`` in per cent of the whole row; ``before`` is empty where it was not measured."""

    layer: Layer
    label: str
    value: str
    before: str
    width: float
    cumulative: str
    advice: str


def specs(report: BuildReport) -> dict[str, Spec]:
    """By the name that the page's ``data-chart`` gives."""
    found = history.specs()
    if report.sweep is not None:
        found["pareto"] = pareto(report)
        if report.performance and report.performance.before:
            found["layers"] = stacks(report)
    return found


def pareto(report: BuildReport) -> Spec:
    """Latency at the objective's percentile against throughput, every measured point of ``report.sweep``."""
    assert report.sweep is not None
    front, best = frontier(report.sweep.points), report.sweep.best
    # What was chosen may lie off the frontier, by other figures or by noise: the line does not go through it then.
    rows = [{**_row(point, "chosen" if point == best else "frontier" if point in front else "other"),
             "beaten": point not in front} for point in report.sweep.points]
    widest = max(row["latency"] for row in rows)
    before = report.performance.before if report.performance else None
    if before and before.point.objective_ms <= FARTHEST * widest:
        name = words.full_name(before.name)
        rows.append({**_row(before.point, "before"), "label": f"Before: {name}, {_label(before.point)}"})
        widest = max(widest, before.point.objective_ms)
    limit = report.objective.latency_ms
    return {
        "description": "Throughput against latency of every measured setting; the chosen one has a ring.",
        "width": "container", "height": HEIGHT, "data": {"values": rows},
        "encoding": {
            # Up to a round number: the chosen point often is the highest, and its ring has room then.
            "x": {"field": "latency", "type": "quantitative", "scale": {"domainMin": 0, "nice": True},
                  "title": f"p{report.objective.latency_percentile:g} latency, ms"},
            "y": {"field": "throughput", "type": "quantitative", "scale": {"domainMin": 0, "nice": True},
                  "title": "inferences a second"},
        },
        "layer": [*(limit_line(limit) if 0 < limit <= FARTHEST * widest else ()),
                  *marks({row["kind"] for row in rows})],
    }


def limit_line(limit: float) -> list[Spec]:
    """Where the objective lies on the axis of latency."""
    at = {"data": {"values": [{"latency": limit}]}, "encoding": {"y": {"value": 0}, "y2": {"value": "height"}}}
    text = {"type": "text", "text": "objective", "align": "right", "baseline": "bottom", "dx": -5,
            "color": "var(--warn)"}
    return [
        {**at, "mark": {"type": "rule", "color": "var(--warn)", "strokeDash": [5, 4]}},
        {**at, "mark": text, "encoding": {"y": {"value": HEIGHT - 8}}},
    ]


def marks(kinds: Collection[str]) -> list[Spec]:
    """Marks of the ``kinds`` that there are: Vega warns of a mark without data."""
    label = {"tooltip": {"field": "label"}, "description": {"field": "label"}}
    dot = {"type": "point", "filled": True, "opacity": 1, "stroke": "var(--card)", "strokeWidth": 2, "size": 90}
    ring = {"type": "point", "filled": False, "opacity": 1, "strokeWidth": 2, "size": 110, "color": "var(--warn)"}
    chosen = {"type": "text", "text": "chosen", "dy": -18, "fontWeight": 600, "color": "var(--ink)"}
    front = {"type": "line", "color": "var(--accent)", "opacity": 0.55}
    marks: list[tuple[str, Spec]] = [
        ("before", {"mark": ring, "encoding": label}),
        ("other", {"mark": {**dot, "color": "var(--dot)"}, "encoding": label}),
        ("frontier", {"mark": {**dot, "color": "var(--accent)"}, "encoding": label}),
        ("chosen", {"mark": {**ring, "size": 420, "color": "var(--accent)", "aria": False}}),
        ("chosen", {"mark": {**dot, "color": "var(--accent)", "size": 160}, "encoding": label}),
        ("chosen", {"mark": chosen}),
    ]
    return [{"transform": [{"filter": {"field": "beaten", "equal": False}}], "mark": front},
            *({"transform": [{"filter": {"field": "kind", "equal": kind}}], **mark}
              for kind, mark in marks if kind in kinds)]


def stacks(report: BuildReport) -> Spec:
    """Before and after as bars of one scale, each of its layers from the device outwards."""
    assert report.sweep is not None
    assert report.performance is not None
    assert report.performance.before is not None
    before, shipped = report.performance.before.point.layers, report.sweep.best.layers
    rows = [*_parts("Before", before), *_parts("Shipped", shipped)]
    shown = [layer for layer in NAMES if layer in before.known or layer in shipped.known]
    return {
        "description": "The layers of a request's time, before and as shipped.",
        "width": "container", "height": 90, "data": {"values": rows},
        "mark": {"type": "bar", "stroke": "var(--card)"},
        "encoding": {
            "y": {"field": "serving", "type": "nominal", "title": None, "sort": ["Before", "Shipped"]},
            "x": {"field": "milliseconds", "type": "quantitative", "stack": "zero", "title": "ms a request, mean"},
            "color": {"field": "layer", "type": "nominal", "title": None, "sort": [NAMES[layer] for layer in shown],
                      "scale": {"domain": [NAMES[layer] for layer in shown],
                                "range": [f"var(--{layer})" for layer in shown]},
                      "legend": {"orient": "top", "columns": {"expr": f"width < 480 ? 2 : {len(shown)}"}}},
            "order": {"field": "place", "type": "ordinal"},
            "tooltip": {"field": "label"}, "description": {"field": "label"},
        },
    }


def _parts(serving: str, layers: Layers) -> list[Mapping[str, Any]]:
    return [{"serving": serving, "layer": NAMES[layer], "place": place, "milliseconds": layers.of(layer),
             "label": f"{serving}, {NAMES[layer]}: {words.milliseconds(layers.of(layer))}"}
            for place, layer in enumerate(NAMES) if layer in layers.known]


def layer_bars(report: BuildReport) -> tuple[Bar, ...]:
    """The latency layers, largest first, with their running share: what to mend first."""
    if report.sweep is None:
        return ()
    layers, performance = report.sweep.best.layers, report.performance
    before = performance.before.point.layers if performance and performance.before else None
    advice = performance.advice if performance else {}
    bars, running, largest = [], 0.0, max(layers.known.values())
    for layer in sorted(layers.known, key=layers.of, reverse=True):
        running += layers.share(layer)
        bars.append(Bar(layer=layer, label=NAMES[layer], value=words.milliseconds(layers.of(layer)),
                        before=words.milliseconds(before.of(layer)) if before and layer in before.known else "",
                        cumulative=f"{running:.0%}" if layers.total_ms else "–", advice=advice.get(layer, ""),
                        width=round(100 * layers.of(layer) / largest, 1) if largest else 0.0))
    return tuple(bars)


def frontier(points: Sequence[Point]) -> list[Point]:
    """Points that no other beats in both latency and throughput, by latency."""
    best, front = -math.inf, []
    for point in sorted(points, key=lambda p: (p.objective_ms, -p.throughput)):
        if point.throughput > best:
            front.append(point)
            best = point.throughput
    return front


def _row(point: Point, kind: str) -> dict[str, Any]:
    return {"latency": point.objective_ms, "throughput": point.throughput, "kind": kind, "label": _label(point)}


def _label(point: Point) -> str:
    serving = point.serving
    return (f"{serving.instance_count} instances of {max(1, point.threads)} threads, "
            f"delay {serving.max_queue_delay_us} µs, "
            f"{point.concurrency} in flight: {words.per_second(point.throughput)}, "
            f"p50 {words.milliseconds(point.p50_ms)}, p99 {words.milliseconds(point.p99_ms)}")

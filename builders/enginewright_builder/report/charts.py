"""The report's charts as plain data for the page's inline SVG: positions are computed here, drawn by the template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from enginewright_builder.evidence.layers import NAMES, Layer
from enginewright_builder.report import words
from enginewright_builder.report.model import BuildReport
from enginewright_builder.sweep.result import Point

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 34, 44


@dataclass(frozen=True, kw_only=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Dot:
    x: float
    y: float
    chosen: bool
    frontier: bool
    label: str


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """Pixels in a box of ``width`` × ``height``; ``frontier`` is an SVG path, ``limit_x`` the objective (None:
    none)."""

    width: int
    height: int
    plot: tuple[float, float, float, float]  # left, top, right, bottom
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    frontier: str
    limit_x: float | None
    before: Dot | None  # plain serving, where it lies inside the plot
    x_title: str
    y_title: str
    chosen_anchor: str  # of the chosen dot's label, so that it stays inside


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


@dataclass(frozen=True, kw_only=True)
class Part:
    """``width`` in per cent of the whole row."""

    layer: Layer
    width: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Stack:
    label: str
    value: str
    parts: tuple[Part, ...]


def pareto(report: BuildReport) -> Scatter | None:
    """Latency at the objective's percentile against throughput, every measured point; None without a sweep."""
    if report.sweep is None:
        return None
    points, best = report.sweep.points, report.sweep.best
    limit = report.objective.latency_ms
    # An objective far to the right would squeeze the points into a corner: it is then only told in words.
    before = report.performance.before if report.performance else None
    widest = max(point.objective_ms for point in points)
    if before and before.point.objective_ms <= 2 * widest:
        widest = max(widest, before.point.objective_ms)
    shown_limit = limit if 0 < limit <= 2 * widest else 0.0
    x_scale = nice_ticks(max(widest, shown_limit))
    y_scale = nice_ticks(max(point.throughput for point in (*points, *([before.point] if before else []))))
    plot = (float(LEFT), float(TOP), float(WIDTH - RIGHT), float(HEIGHT - BOTTOM))

    def x(value: float) -> float:
        return round(plot[0] + value / x_scale[-1] * (plot[2] - plot[0]), 1)

    def y(value: float) -> float:
        return round(plot[3] - value / y_scale[-1] * (plot[3] - plot[1]), 1)

    front = frontier(points)
    dots = [Dot(x=x(point.objective_ms), y=y(point.throughput), chosen=point == best, frontier=point in front,
                label=_label(point)) for point in points]
    plain = Dot(x=x(before.point.objective_ms), y=y(before.point.throughput), chosen=False, frontier=False,
                label=f"Before: {words.full_name(before.name)}, {_label(before.point)}") if before else None
    path = "M" + " L".join(f"{x(point.objective_ms)},{y(point.throughput)}" for point in front)
    return Scatter(
        width=WIDTH, height=HEIGHT, plot=plot, x_ticks=tuple(Tick(at=x(v), label=_tick(v)) for v in x_scale),
        y_ticks=tuple(Tick(at=y(v), label=_tick(v)) for v in y_scale),
        dots=tuple(sorted(dots, key=lambda dot: dot.chosen)), frontier=path,
        limit_x=x(shown_limit) if shown_limit else None,
        before=plain if before and before.point.objective_ms <= x_scale[-1] else None,
        x_title=f"p{report.objective.latency_percentile:g} latency, ms", y_title="inferences a second",
        chosen_anchor="end" if x(best.objective_ms) > WIDTH * 0.6 else "start")


def layer_bars(report: BuildReport) -> tuple[Bar, ...]:
    """The four latency layers, largest first, with their running share: what to mend first."""
    if report.sweep is None:
        return ()
    layers, performance = report.sweep.best.layers, report.performance
    before = performance.before.point.layers if performance and performance.before else None
    advice = performance.advice if performance else {}
    bars, running, largest = [], 0.0, max(layers.of(layer) for layer in NAMES)
    for layer in sorted(NAMES, key=layers.of, reverse=True):
        running += layers.share(layer)
        bars.append(Bar(layer=layer, label=NAMES[layer], value=words.milliseconds(layers.of(layer)),
                        before=words.milliseconds(before.of(layer)) if before else "",
                        cumulative=f"{running:.0%}" if layers.total_ms else "–", advice=advice.get(layer, ""),
                        width=round(100 * layers.of(layer) / largest, 1) if largest else 0.0))
    return tuple(bars)


def layer_stacks(report: BuildReport) -> tuple[Stack, ...]:
    """Before and after as bars of one scale, each of its four layers from the device outwards."""
    if report.sweep is None:
        return ()
    stacks = [("Shipped", report.sweep.best.layers)]
    if report.performance and report.performance.before:
        stacks.insert(0, ("Before", report.performance.before.point.layers))
    largest = max(layers.total_ms for _, layers in stacks) or 1.0
    return tuple(Stack(label=label, value=words.milliseconds(layers.total_ms), parts=tuple(
        Part(layer=layer, width=round(100 * layers.of(layer) / largest, 2),
             text=f"{NAMES[layer]}: {words.milliseconds(layers.of(layer))}") for layer in NAMES))
        for label, layers in stacks)


def frontier(points: Sequence[Point]) -> list[Point]:
    """Points that no other beats in both latency and throughput, by latency."""
    best, front = -math.inf, []
    for point in sorted(points, key=lambda p: (p.objective_ms, -p.throughput)):
        if point.throughput > best:
            front.append(point)
            best = point.throughput
    return front


def nice_ticks(largest: float, count: int = 5) -> list[float]:
    """From 0 to at least ``largest`` in steps of 1, 2 or 5 times a power of ten."""
    if largest <= 0:
        return [0.0, 1.0]
    raw = largest / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [index * step for index in range(math.ceil(largest / step * (1 - 1e-9)) + 1)]


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _label(point: Point) -> str:
    serving = point.serving
    return (f"{serving.instance_count} instances of {max(1, point.threads)} threads, "
            f"delay {serving.max_queue_delay_us} µs, "
            f"{point.concurrency} in flight: {words.per_second(point.throughput)}, "
            f"p50 {words.milliseconds(point.p50_ms)}, p99 {words.milliseconds(point.p99_ms)}")

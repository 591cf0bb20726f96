"""Charts as SVG text: panels under one another on one axis of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

LEFT, WIDTH, GAP, FOOT = 64, 1000, 10, 18
Path = Callable[[float, float, float], str]  # (y of zero, height, top) to path data


@dataclass(frozen=True)
class Shape:
    """``kind`` is its CSS class."""

    kind: str
    path: Path


@dataclass(frozen=True)
class Panel:
    """``top`` is the value at its upper edge, ``height`` in pixels."""

    label: str
    height: int
    top: float
    shapes: tuple[Shape, ...]


def drawing(panels: Sequence[Panel], end: float) -> str:
    """``end`` is the time at the right edge in seconds; the left one is 0."""
    parts, y = [], GAP
    for panel in panels:
        base = y + panel.height
        parts += [f'<path class="{shape.kind}" d="{shape.path(base, panel.height, panel.top)}"/>'
                  for shape in panel.shapes]
        parts.append(f'<path class="axis" d="M{LEFT},{base}H{LEFT + WIDTH}"/>')
        parts.append(_text(LEFT - 6, y + 10, f"{panel.top:.3g}", "end") + _text(LEFT - 6, base, "0", "end"))
        parts.append(_text(LEFT - 6, y + panel.height / 2 + 5, panel.label, "end"))
        y = base + GAP
    parts += [_text(LEFT + share * WIDTH, y + 8, _clock(share * end), "middle") for share in (0, 0.25, 0.5, 0.75, 1)]
    labels = escape(", ".join(panel.label for panel in panels))
    return (f'<svg viewBox="0 0 {LEFT + WIDTH + 24} {y + FOOT}" role="img" aria-label="{labels} over time">'
            f"{''.join(parts)}</svg>")


def line(values: Sequence[float]) -> Path:
    def path(base: float, height: float, top: float) -> str:
        return "M" + "L".join(_points(values, base, height, top))

    return path


def area(values: Sequence[float]) -> Path:
    """In steps, down to zero."""

    def path(base: float, height: float, top: float) -> str:
        step = WIDTH / len(values)
        ys = [f"{base - height * value / top:.1f}" for value in values]
        steps = (f"V{y}H{LEFT + (at + 1) * step:.1f}" for at, y in enumerate(ys))
        return f"M{LEFT},{base}{''.join(steps)}V{base}Z"

    return path


def bars(values: Sequence[float]) -> Path:
    def path(base: float, height: float, top: float) -> str:
        step = WIDTH / len(values)
        return "".join(
            f"M{LEFT + at * step:.1f},{base}v{-max(1.0, height * value / top):.1f}h{max(1.0, step):.1f}V{base}Z"
            for at, value in enumerate(values) if value
        )

    return path


def _points(values: Sequence[float], base: float, height: float, top: float) -> list[str]:
    step = WIDTH / len(values)
    return [f"{LEFT + (at + 0.5) * step:.1f},{base - height * value / top:.1f}" for at, value in enumerate(values)]


def _clock(seconds: float) -> str:
    whole = math.floor(seconds + 0.5)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'

"""Late requests over replica-seconds as SVG text, one panel for each load; it is light or dark as its reader asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

PANEL, GAP, LEFT, TOP, FOOT, COLUMNS = 300, 70, 64, 70, 60, 3
# Share of late requests at the lower and the upper edge, on a scale of powers.
LEAST, MOST = 0.001, 0.5
LATE_TICKS = (0.001, 0.01, 0.1)
COST_TICKS = (0.0, 0.5, 1.0, 1.5, 2.0)
WIDEST = 2.2
# Pixels between two entries of the legend. Of dots that lie on each other the lower ones are larger.
ENTRY, RADII, OURS = 120, {"HPA": 5.0, "KEDA": 2.5}, 5.0
AXES = "Across: replica-seconds, of those of the HPA (4 queued, 300 s). Up: late requests."
COLOURS = {"Enginewright": "#0969da", "HPA": "#cf222e", "KEDA": "#bf8700", "Knative": "#1a7f37", "oracle": "#8250df"}
STYLE = ("text{font-size:13px;fill:#424a53}.h{font-size:15px;font-weight:600;fill:#1f2328}.a{stroke:#57606a;fill:none}"
         ".g{stroke:#d0d7de;fill:none}@media (prefers-color-scheme:dark){text{fill:#b1bac4}.h{fill:#e6edf3}"
         ".a{stroke:#8b949e}.g{stroke:#30363d}}")


@dataclass(frozen=True, kw_only=True)
class Dot:
    """``kind`` is one of :data:`COLOURS`, ``cost`` replica-seconds of those of the HPA, ``late`` a share of
    requests."""

    kind: str
    cost: float
    late: float
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    title: str
    dots: Sequence[Dot]


def drawing(panels: Sequence[Panel]) -> str:
    columns = min(COLUMNS, max(1, len(panels)))
    width = LEFT + max(columns * (PANEL + GAP), ENTRY * len(COLOURS))
    height = TOP + math.ceil(len(panels) / COLUMNS) * (PANEL + GAP) + FOOT
    parts = [_panel(panel, LEFT + at % COLUMNS * (PANEL + GAP), TOP + at // COLUMNS * (PANEL + GAP))
             for at, panel in enumerate(panels)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            'font-family="system-ui, sans-serif">'
            f"<title>Late requests over replica-seconds, by load and policy</title><style>{STYLE}</style>"
            f"{_legend()}{''.join(parts)}{_text(LEFT, height - 20, AXES)}</svg>\n")


def _legend() -> str:
    places = zip(range(LEFT, LEFT + ENTRY * len(COLOURS), ENTRY), COLOURS.items(), strict=True)
    return "".join(f'<circle cx="{x}" cy="20" r="5" fill="{colour}"/>{_text(x + 10, 25, kind)}'
                   for x, (kind, colour) in places)


def _panel(panel: Panel, left: float, top: float) -> str:
    base = top + PANEL
    lines = [f'<path class="g" d="M{left},{_up(late, top):.1f}h{PANEL}"/>' for late in LATE_TICKS]
    lines += [f'<path class="g" d="M{_across(cost, left):.1f},{top}v{PANEL}"/>' for cost in COST_TICKS]
    ticks = [_text(left - 6, _up(late, top) + 4, f"{100 * late:g} %", "end") for late in LATE_TICKS]
    ticks += [_text(_across(cost, left), base + 18, f"{cost:g}", "middle") for cost in COST_TICKS]
    mine = sorted((dot for dot in panel.dots if dot.label), key=lambda dot: dot.cost)
    path = "L".join(f"{_across(dot.cost, left):.1f},{_up(dot.late, top):.1f}" for dot in mine)
    line = f'<path d="M{path}" fill="none" stroke="{COLOURS["Enginewright"]}" stroke-width="2"/>' if mine else ""
    dots = "".join(_dot(dot, left, top) for dot in panel.dots)
    return (f'{_text(left, top - 10, panel.title, kind="h")}{"".join(lines)}{"".join(ticks)}'
            f'<path class="a" d="M{left},{top}v{PANEL}h{PANEL}"/>{line}{dots}')


def _dot(dot: Dot, left: float, top: float) -> str:
    x, y = _across(dot.cost, left), _up(dot.late, top)
    said = f" {dot.label}" if dot.label else ""
    tip = f"<title>{escape(dot.kind + said)}: {100 * dot.late:.2f} % late, {dot.cost:.2f}</title>"
    radius = RADII.get(dot.kind, OURS if dot.label else 3.5)
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{COLOURS[dot.kind]}">{tip}</circle>'
    return circle + (_text(x + 6, y - 8, dot.label) if dot.label else "")


def _across(cost: float, left: float) -> float:
    """What costs more than the widest stands at the edge."""
    return left + PANEL * min(cost, WIDEST) / WIDEST


def _up(late: float, top: float) -> float:
    """What is beyond an edge stands at it."""
    share = math.log(max(LEAST, min(MOST, late)) / LEAST) / math.log(MOST / LEAST)
    return top + PANEL * (1 - share)


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    which = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{which}>{escape(text)}</text>'

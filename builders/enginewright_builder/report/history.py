"""Charts of how the model has scaled since its engine was built.

The build knows nothing of it: the page comes with empty charts, and ``kubectl optimisedmodel report`` fills in their
data, by the names given here.
"""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]
TIME: Spec = {"field": "time", "type": "temporal", "title": None, "axis": {"tickCount": 6, "labelOverlap": True}}


def specs() -> dict[str, Spec]:
    return {"replicas": replicas(), "queued": signal("queued", "Queued requests", "var(--queue)"),
            "rate": signal("rate", "Requests a second", "var(--compute)")}


def replicas() -> Spec:
    """Replicas over time, and the decisions: ``replicas`` has ``time`` and ``replicas``, ``decisions`` has
    ``time``, ``to`` and ``reason``."""
    return {
        "description": "Replicas over time, with a dot for each decision of the autoscaler.",
        "width": "container", "height": 130,
        "encoding": {
            "x": TIME,
            "y": {"type": "quantitative", "title": "Replicas",
                  "axis": {"tickCount": {"expr": "min(4, domain('y')[1])"}, "format": "d"}},
        },
        "layer": [
            {"data": {"name": "replicas"}, "encoding": {"y": {"field": "replicas"}},
             "mark": {"type": "area", "interpolate": "step-after", "color": "var(--accent)", "opacity": 0.25,
                      "line": {"color": "var(--accent)", "interpolate": "step-after"}}},
            {"data": {"name": "decisions"}, "mark": {"type": "point", "filled": True, "opacity": 1, "size": 50,
                                                     "color": "var(--accent)", "clip": True},
             "encoding": {"y": {"field": "to"}, "tooltip": {"field": "reason"}, "description": {"field": "reason"}}},
        ],
    }


def signal(name: str, title: str, colour: str) -> Spec:
    """One series over time, ``time`` and ``value``."""
    return {
        "description": f"{title} over time.", "width": "container", "height": 90, "data": {"name": name},
        "mark": {"type": "line", "color": colour, "strokeWidth": 1.5},
        "encoding": {"x": TIME,
                     "y": {"field": "value", "type": "quantitative", "title": title}},
    }

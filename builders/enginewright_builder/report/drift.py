"""Where refused candidates lose accuracy, layer by layer, as plain data for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from enginewright_builder.accuracy.drift_report import DriftReport, LayerDrift
from enginewright_builder.contract import CandidateSummary
from enginewright_builder.report import words
from enginewright_builder.report.model import BuildReport

# Rows drawn: the layers that added most. ``build-report.json`` has all of them.
DRAWN = 8


@dataclass(frozen=True, kw_only=True)
class LayerBar:
    """``width`` in per cent of the whole row; ``kept`` where a second try left the layer in higher precision."""

    node: str
    operator: str
    width: float
    added: str
    error: str
    kept: bool
    finite: bool


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Of one refused candidate. ``bars`` are in the graph's order; none where ``text`` says why."""

    name: str
    text: str
    bars: tuple[LayerBar, ...] = ()


def drifts(report: BuildReport) -> tuple[Drift, ...]:
    """Candidates in the order of the ladder."""
    order = {one.name: index for index, one in enumerate(report.candidates)}
    names = sorted(report.drift, key=lambda name: order.get(name, len(order)))
    return tuple(_drift(name, report.drift[name], report.candidates) for name in names)


def _drift(name: str, found: DriftReport, candidates: Sequence[CandidateSummary]) -> Drift:
    title = words.full_name(name)
    if found.unavailable or not found.layers:
        return Drift(name=title, text=f"There is no table: {found.unavailable or 'no layer of it could be matched'}.")
    again = next((one for one in candidates if one.name.startswith(f"{name} (kept ")), None)
    kept = {layer.node for layer in found.worst()} if again else set[str]()
    drawn = {layer.node for layer in sorted(found.layers, key=_importance, reverse=True)[:DRAWN]} | kept
    largest = max((layer.added for layer in found.layers), default=0.0)
    bars = tuple(LayerBar(
        node=layer.node, operator=layer.operator, kept=layer.node in kept, finite=layer.finite,
        width=round(100 * layer.added / largest, 1) if largest and layer.finite else 0.0,
        added=percent(layer.added) if layer.finite else "NaN or ∞", error=percent(layer.error) if layer.finite else "–",
    ) for layer in found.layers if layer.node in drawn)
    return Drift(name=title, text=" ".join(filter(None, (_end(found), _rest(found, bars), _again(again)))), bars=bars)


def _importance(layer: LayerDrift) -> tuple[bool, float]:
    return not layer.finite, layer.added


def _end(found: DriftReport) -> str:
    if found.first_not_finite:
        return f"The first layer that answers NaN or infinity is {found.first_not_finite}."
    last, samples = found.layers[-1], f"{found.samples} sample" + ("s" if found.samples != 1 else "")
    return f"At its last layer the answers are {percent(last.error)} off the source's, on {samples}."


def _rest(found: DriftReport, bars: Sequence[LayerBar]) -> str:
    left = len(found.layers) - len(bars)
    return f"Drawn are the {len(bars)} layers that added most, of {len(found.layers)}." if left else ""


def _again(again: CandidateSummary | None) -> str:
    if again is None:
        return ""
    verdict, _ = words.verdict(again)
    low = f", lower bound {again.accuracy_low:.4f}" if again.accuracy_low is not None else ""
    return f"It was tried once more with the marked layers in higher precision: {verdict}{low}."


def percent(value: float) -> str:
    """Of a relative error: three digits, and what is next to nothing as such."""
    return "< 0.001%" if 0 < value < 1e-5 else f"{100 * value:.3g}%"

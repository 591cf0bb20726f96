"""What the build knows of an engine's latency beside the objective. Conditions say it, rollouts may depend on it."""

from __future__ import annotations

from enum import Enum, auto

from enginewright.core.decide.slice import measured_latency
from enginewright.core.published import Published, in_tokens
from enginewright.core.spec import Spec
from enginewright_builder.contract import EngineSummary, GenerateSummary, requests_needed


class Shown(Enum):
    """By the build, of the latency objective. UNKNOWN: it measured fewer requests than it takes to say."""

    KEPT = auto()
    MISSED = auto()
    UNKNOWN = auto()


def shown(spec: Spec, summary: Published) -> Shown:
    """Too few requests show a miss only where half of them take too long: of these, the percentile is the slowest."""
    if isinstance(summary, GenerateSummary):
        if summary.too_few_requests:
            return Shown.UNKNOWN
        return Shown.KEPT if summary.objective_met else Shown.MISSED
    latency = spec.objective.latency
    if latency is None:
        return Shown.KEPT
    needed = max(requests_needed(latency.percentile), summary.requests_to_show)
    if summary.requests < needed and summary.p50_ms <= latency.milliseconds:
        return Shown.UNKNOWN
    return Shown.KEPT if summary.objective_met else Shown.MISSED


def measured(spec: Spec, summary: Published) -> str:
    """The figures beside what is asked for."""
    if isinstance(summary, GenerateSummary):
        return f"{in_tokens(summary)}{_once_more(summary)}"
    figures = []
    if latency := spec.objective.latency:
        percentile, milliseconds = measured_latency(summary, latency.percentile)
        figures.append(f"p{percentile:g} {milliseconds:.1f} ms of p{latency.percentile:g} {latency.milliseconds:g} ms "
                       f"allowed{_few_requests(latency.percentile, summary)}")
    if spec.objective.throughput:
        figures.append(f"{summary.throughput:.0f} of {spec.objective.throughput:g} inferences a second")
    return ", ".join(figures)


def _once_more(summary: GenerateSummary) -> str:
    """Of records of older builders, and of what was not measured once more, nothing."""
    if summary.too_few_requests:
        return (f" (to say that it is met takes {summary.requests_to_show} requests, and the build measured "
                f"{summary.requests})")
    return f", by {summary.requests} requests after it was chosen" if summary.requests else ""


def _few_requests(percentile: float, summary: EngineSummary) -> str:
    """Where the build measured too few requests to know the percentile; empty also for engines of older builders."""
    needed = max(requests_needed(percentile), summary.requests_to_show)
    if not summary.requests or summary.requests >= needed:
        return ""
    takes = f"to say that it is met takes {needed}" if summary.too_few_requests else f"p{percentile:g} takes {needed}"
    return f" ({takes} requests, and the build measured {summary.requests})"

"""The figures of a comparison as people read them."""

from __future__ import annotations

import math

from enginewright.core.comparison.latency import Latency
from enginewright.core.comparison.question import Limits
from enginewright.core.comparison.tally import Sums
from enginewright.core.sequential import Interval


def figures(sums: Sums, limits: Limits) -> str:
    count = f"over {sums.seconds:.0f} s, {sums.candidate.requests:.0f} requests"
    if sums.candidate.failed:
        count += f", {sums.candidate.failed:.0f} failed"
    cure = f"; the stable revision fails more ({sums.stable.failed:.0f})" if sums.cure else ""
    ratios = ", ".join(_ratio(one, limits) for one in sums.latencies if not one.absent or one is sums.latencies[0])
    return f"{ratios} {count}{cure}"


def _ratio(latency: Latency, limits: Limits) -> str:
    """With both means, where they are known."""
    if latency.ratio is None:
        return f"{latency.name} ratio unknown"
    ratio = as_ratio(latency.ratio)
    means = f" {latency.mine:.3g} ms against {latency.theirs:.3g} ms," if latency.mine else ""
    return (f"{latency.name}{means} ratio {ratio.mean:.2f} ({ratio.low:.2f} to {ratio.high:.2f}, limit "
            f"{1 + limits.slowdown:.2f})")


def failures(sums: Sums) -> str:
    mine, theirs = sums.candidate, sums.stable
    return (
        f"{mine.failed:.0f} of {mine.failed + mine.requests:.0f} inferences failed, of the stable revision's "
        f"{theirs.failed:.0f} of {theirs.failed + theirs.requests:.0f}."
    )


def rejections(sums: Sums) -> str:
    mine, theirs = sums.rejected.mine, sums.rejected.theirs
    return (f"{mine[0]:.0f} of {mine[1]:.0f} requests waited in its queue for longer than spec.serving.queue allows, "
            f"of the stable revision's {theirs[0]:.0f} of {theirs[1]:.0f}, under like load.")


def as_ratio(logs: Interval) -> Interval:
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))

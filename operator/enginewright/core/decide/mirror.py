"""What live requests say that were also sent to the candidate, where ``rollout.analysis.mirror`` asks for it.

The monitors beside the stable revision's servers sample them (``spec.quality``) and score both answers.
"""

from __future__ import annotations

from enginewright.core.comparison.mirrored import Mirrored, required
from enginewright.core.context import PassContext
from enginewright.core.decide.serving import pods_of
from enginewright.core.quality import Finding, problems
from enginewright.core.quality import find as find_agreement


def mirrored(ctx: PassContext, stable: str, candidate: str) -> Mirrored | None:
    """What the monitors of ``stable`` report of ``candidate``; None where nobody asked for it. A report about other
    replicas is of an earlier rollout."""
    if not ctx.spec.rollout.analysis.mirror or ctx.spec.quality is None:
        return None
    theirs = {pod.ip for pod in pods_of(ctx.observed, candidate) if pod.ip}
    names = [pod.name for pod in pods_of(ctx.observed, stable)]
    reports = {name: ctx.observed.quality[name] for name in names if name in ctx.observed.quality}
    about = [report for report in reports.values() if report.targets and set(report.targets) <= theirs]
    trouble = problems(reports.values()) or (() if reports else ("no monitor beside the stable revision reports",))
    mine = ctx.spec.accuracy.tolerance
    return Mirrored(
        required=required(max(about[0].tolerance if about else mine, _lost(find_agreement(reports))), mine),
        metric=about[0].metric if about else "",
        samples=sum(report.mirrored for report in about),
        agreed=sum(report.agreed for report in about),
        problem="; ".join(trouble),
    )


def _lost(found: Finding | None) -> float:
    """What the stable revision's live answers lack of agreement with the source model for certain: the least loss of
    their interval, so that a few bad ones do not switch the check off. Where that is more than it was proven to lack, a
    candidate that mends it must not be held against what is wrong."""
    return max(0.0, 1 - found.agreement.high) if found else 0.0

"""What live requests say that were also sent to the candidate, where ``rollout.analysis.mirror`` asks for it.

The monitors beside the stable revision's servers sample them (``spec.quality``) and score both answers.
"""

from __future__ import annotations

from enginewright.core.comparison.mirrored import Mirrored, required
from enginewright.core.decide.serving import pods_of
from enginewright.core.decide.world import World
from enginewright.core.quality import problems


def mirrored(world: World, stable: str, candidate: str) -> Mirrored | None:
    """What the monitors of ``stable`` report of ``candidate``; None where nobody asked for it. A report about other
    replicas is of an earlier rollout."""
    if not world.spec.rollout.analysis.mirror or world.spec.quality is None:
        return None
    theirs = {pod.ip for pod in pods_of(world.observed, candidate) if pod.ip}
    names = [pod.name for pod in pods_of(world.observed, stable)]
    found = [world.observed.quality[name] for name in names if name in world.observed.quality]
    about = [report for report in found if report.targets and set(report.targets) <= theirs]
    mine = world.spec.accuracy.tolerance
    trouble = problems(found) or (() if found else ("no monitor beside the stable revision reports",))
    return Mirrored(
        required=required(max((report.tolerance for report in about), default=mine), mine),
        metric=next((report.metric for report in about), ""),
        samples=sum(report.mirrored for report in about),
        agreed=sum(report.agreed for report in about),
        problem="; ".join(trouble),
    )

"""The steps of a rollout as numbers of replicas: how the traffic is split, as far as whole replicas allow."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.spec.rollout import RolloutSpec


@dataclass(frozen=True, kw_only=True)
class Split:
    """Replicas of each revision under one analysis of about ``seconds``. ``weight`` is the share that was asked for in
    per cent, None where none was."""

    candidate: int
    stable: int
    seconds: int
    weight: int | None = None

    @property
    def share(self) -> int:
        """Per cent of the replicas that are the candidate's."""
        return round(100 * self.candidate / max(1, self.candidate + self.stable))


def splits(rollout: RolloutSpec, wanted: int) -> tuple[Split, ...]:
    """One at least. A step of 100 is left out: it is what comes after the last analysis."""
    if rollout.strategy != "Canary":
        return (Split(candidate=wanted, stable=wanted, seconds=rollout.analysis.seconds),)
    asked = [step for step in rollout.steps if step.weight < 100]
    if not asked or not wanted:
        stable = wanted if rollout.max_surge else max(0, wanted - 1)
        return (Split(candidate=min(1, wanted), stable=stable, seconds=rollout.analysis.seconds),)
    return tuple(
        _nearest(
            step.weight,
            wanted,
            rollout.max_surge,
            rollout.analysis.seconds if step.analysis_seconds is None else step.analysis_seconds,
        )
        for step in asked
    )


def shows_objective(rollout: RolloutSpec, wanted: int) -> bool:
    """Whether an analysis beside a stable revision is of live traffic: probes say nothing of the latency under load."""
    return rollout.strategy == "Canary" and any(split.seconds for split in splits(rollout, wanted))


def _nearest(weight: int, wanted: int, surge: int, seconds: int) -> Split:
    """Between ``wanted`` and ``wanted + surge`` replicas altogether, the fewest of those whose share is nearest, with
    one of each revision where that is possible."""
    found = []
    for total in range(wanted, wanted + surge + 1):
        exact = weight * total / 100
        for candidate in {int(exact), int(exact) + 1}:
            mine = max(1, min(candidate, total - 1, wanted))
            found.append((abs(mine / total - weight / 100), total, mine))
    _, total, mine = min(found)
    return Split(candidate=mine, stable=total - mine, seconds=seconds, weight=weight)

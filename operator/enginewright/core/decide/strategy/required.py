"""Whether a rollout depends on the objective: ``rollout.requireObjective``, of a revision that has not served."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.decide.objective import Shown, shown
from enginewright.core.decide.target import Target
from enginewright.core.published import Published, published


@dataclass(frozen=True, kw_only=True)
class Required:
    """``awaited`` where the analysis has to show that the objective is kept, ``shown`` where the build did."""

    awaited: bool
    shown: bool


def on_trial(target: Target) -> Published | None:
    """What the build measured of a target that has to keep the objective. None of one that has served, that a user goes
    back to, or that stands in for what was given up; and where the spec does not ask."""
    record = target.untried if target.ctx.spec.rollout.require_objective else None
    return published(record.outcome) if record else None


def required(target: Target, *, awaited: bool) -> Required | None:
    """A user who has promoted it by name need not be shown anything."""
    summary = on_trial(target)
    if summary is None:
        return None
    return Required(awaited=awaited and target.ctx.wishes.promote != target.revision,
                    shown=shown(target.ctx.spec, summary) is Shown.KEPT)

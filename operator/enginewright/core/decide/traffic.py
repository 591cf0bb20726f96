"""Shares of the traffic through a Gateway while one revision takes over from another: exact, whatever the replicas."""

from __future__ import annotations

from enginewright.core.decide.position import ANALYSING, EXPANDING, SWITCHING, WAITING, Position, RolloutState
from enginewright.core.decide.steps import Split
from enginewright.core.routing import WHOLE, Weights, part, split


def shares(moving: RolloutState, at: Position, staying: int) -> Weights:
    """``staying`` is how many replicas the stable revision keeps after this pass.

    On its way to a step's share the candidate gets no more than its part of the replicas; afterwards that part and no
    less than the last step's share, since the stable revision shrinks.
    """
    target, stable = moving.target.revision, moving.stable.revision
    if at.step == SWITCHING:
        return split(target, stable, WHOLE)
    if not moving.canary:
        lent = moving.lent and target in moving.ctx.observed.gateway.routed
        return split(target, stable, _part(moving, moving.serving.answering.get(stable, 0)) if lent else 0)
    wanted, held = _share(moving.splits[at.number]), _part(moving, staying)
    if at.step in (ANALYSING, WAITING):
        return split(target, stable, wanted)
    if at.step == EXPANDING:
        return split(target, stable, max(wanted, held) if staying else WHOLE)
    reached = _share(moving.splits[at.number - 1]) if at.number else 0
    return split(target, stable, max(reached, min(wanted, held)))


def _share(step: Split) -> int:
    """What was asked for; where nothing was, the candidate's part of the replicas."""
    return step.share if step.weight is None else step.weight


def _part(moving: RolloutState, staying: int) -> int:
    """Per cent of the replicas that are the candidate's and can answer."""
    candidate = moving.candidate
    answering = moving.serving.answering.get(moving.target.revision, 0)
    mine = min(candidate.available, answering) if candidate else 0
    return part(mine, staying)

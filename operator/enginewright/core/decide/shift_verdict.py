"""What is said of a rollout in the middle: which step it is in, with which figures, and what it waits for."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import Verdict, bad
from enginewright.core.context import count
from enginewright.core.decide.evidence import told
from enginewright.core.decide.position import (
    ANALYSING,
    EXPANDING,
    STARTING,
    WAITING,
    Position,
    RolloutState,
    promote_with,
)
from enginewright.core.decide.rollout import starting
from enginewright.core.decide.steps import Split
from enginewright.core.reasons import Condition, Reason


def verdict_of(moving: RolloutState, at: Position) -> Verdict:
    revision, step = moving.target.revision, at.step
    if step == STARTING:
        return starting(moving.ctx, moving.target, moving.candidate, moving.splits[at.number].candidate)
    if step == ANALYSING:
        return _analysing(moving, at)
    passed = told(moving.remember(at).analysis)
    if step == WAITING:
        who = (f"OptimisedModel {moving.ctx.obj.fleet} promotes it when every class has a proven candidate"
               if moving.ctx.obj.fleet else f"promote it with {_promote(moving)}")
        return bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.WAITING_FOR_PROMOTION,
            f"Revision {revision} passed its analysis; {who}.{passed}",
        )
    if step == EXPANDING:
        verdict = starting(moving.ctx, moving.target, moving.candidate, moving.target.replicas)
        return replace(verdict, message=f"{verdict.message}{passed}")
    return bad(
        Condition.ROLLOUT_COMPLETE,
        Reason.DRAINING,
        f"Traffic moves to revision {revision}; revision {moving.stable.revision} stops next.{passed}",
    )


def _promote(moving: RolloutState) -> str:
    return promote_with(moving.ctx, moving.target.revision)


def _analysing(moving: RolloutState, at: Position) -> Verdict:
    revision, split = moving.target.revision, moving.splits[at.number]
    how = "shares the traffic" if moving.canary else "is ready beside the old one, without live traffic,"
    if split.weight is not None:
        how += f" (step {at.number + 1} of {len(moving.splits)}, {_share(moving, split)})"
    same = moving.under_analysis and at.number == moving.last
    found = moving.answer.message if same else "no request has been measured yet"
    message = f"Revision {revision} {how} and is compared with revision {moving.stable.revision}: {found}."
    if same and moving.answer.starved:
        message += f" Promote it unmeasured with {_promote(moving)}."
        return bad(Condition.ROLLOUT_COMPLETE, Reason.WAITING_FOR_SAMPLES, message)
    return bad(Condition.ROLLOUT_COMPLETE, Reason.ANALYSING, message)


def _share(moving: RolloutState, split: Split) -> str:
    if moving.exact:
        return f"{split.weight} % of what comes through the Gateway"
    if split.share == split.weight:
        return f"{split.share} % of it"
    near = f"the nearest to {split.weight} % that {count(moving.target.replicas, 'replica')} allow"
    return f"{split.share} % of it, {near}"

"""A revision that is given up, and the way back to the stable one."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import bad, parse_timestamp, timestamp
from enginewright.core.decide.evidence import figures
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.position import RolloutState
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult, back_to
from enginewright.core.decide.source_step import RETRY_HINT
from enginewright.core.decide.withdraw import WRONG, give_share_back, shares_traffic
from enginewright.core.plan import Action
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE, Weights
from enginewright.core.status import RolledBackStatus, RolloutStatus


def roll_back(moving: RolloutState, trouble: Trouble) -> RolloutResult:
    now, began = moving.ctx.now, parse_timestamp(moving.memory.step_start_time)
    when = f" This was {(now - began).total_seconds():.0f} s into step {moving.memory.step}." if began else ""
    result = stay_back(
        moving,
        RolledBackStatus(
            revision=moving.target.revision,
            reason=trouble.reason,
            message=f"{trouble.message}{when}",
            time=timestamp(now),
            retry=moving.ctx.retry,
        ),
    )
    if not moving.under_analysis:
        return result
    return replace(result, memory=result.memory.model_copy(update={"analysis": figures(moving.answer)}))


def stay_back(moving: RolloutState, given_up: RolledBackStatus) -> RolloutResult:
    stable = moving.stable
    why = f"revision {given_up.revision} was rolled back: {given_up.reason}"
    actions, traffic, meanwhile = retreat(moving, why, wrong=given_up.reason in WRONG)
    return RolloutResult(
        memory=RolloutStatus(
            stable=stable.revision, step="RolledBack", analysis=moving.memory.analysis, rolled_back=given_up
        ),
        actions=actions,
        traffic=traffic,
        requeue=PROGRESS_CHECK if meanwhile else None,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.ROLLED_BACK,
            f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message} Revision "
            f"{stable.revision} goes on serving.{meanwhile} {RETRY_HINT}",
        ),
    )


def retreat(moving: RolloutState, why: str, *, wrong: bool = False) -> tuple[tuple[Action, ...], Weights, str]:
    """Actions, shares, and what is to be said of a candidate that cannot go at once."""
    ctx, serving, stable, half = moving.ctx, moving.serving, moving.stable, moving.candidate
    wanted = moving.target.replicas
    shared = half and shares_traffic(ctx, serving, half)
    found = give_share_back(ctx, serving, stable, half, wanted, why, wrong=wrong) if half and shared else None
    if found:
        return *found, f" Until it has all its replicas, {moving.target.revision} keeps a part of the traffic."
    return back_to(ctx, serving, stable, wanted, why), {stable.revision: WHOLE}, ""

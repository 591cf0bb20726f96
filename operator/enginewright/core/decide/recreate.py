"""Strategy Recreate: the old replicas go before the new ones come."""

from __future__ import annotations

from enginewright.core.conditions import bad
from enginewright.core.context import count
from enginewright.core.decide import children
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.position import DRAINING, RolloutState
from enginewright.core.decide.roll_back import retreat
from enginewright.core.decide.rollout import PROGRESS_CHECK, RolloutResult
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import RolloutStatus


def recreate(moving: RolloutState) -> RolloutResult:
    """The old replicas free the device before the new ones ask for it; the gap is what Recreate means."""
    if moving.candidate and not starting_trouble(moving.ctx, moving.stable, moving.stable.revision):
        return _turn_back(moving)
    going = tuple(
        children.remove(other, "strategy Recreate stops the old first")
        for other in moving.serving.alive
        if other.revision != moving.target.revision
    )
    return RolloutResult(
        memory=RolloutStatus(stable=moving.stable.revision, candidate=moving.target.revision, step=DRAINING),
        actions=going,
        requeue=PROGRESS_CHECK,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"Strategy Recreate: {count(moving.stable.replicas, 'replica')} of revision {moving.stable.revision} stop "
            f"before revision {moving.target.revision} starts.",
        ),
    )


def _turn_back(moving: RolloutState) -> RolloutResult:
    """Recreate was set while another strategy's candidate runs: it goes first, and starts anew when the old ones have
    stopped. Else the stable revision, shrunk for it, would be stopped for one that nothing has shown to be good."""
    revision, stable = moving.target.revision, moving.stable.revision
    actions, traffic, meanwhile = retreat(moving, "strategy Recreate runs one revision at a time")
    return RolloutResult(
        memory=RolloutStatus(stable=stable, candidate=revision, step=DRAINING),
        actions=actions,
        traffic=traffic,
        requeue=PROGRESS_CHECK,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"Strategy Recreate: revision {revision}, whose rollout had begun, stops and revision {stable} takes all "
            f"traffic before they change places.{meanwhile}",
        ),
    )

"""Strategy Recreate: the old replicas go before the new ones come."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import no
from enginewright.core.decide.desired import PROGRESS_CHECK, Desired, Stops
from enginewright.core.decide.strategy.back import retreat, stay_back
from enginewright.core.decide.strategy.state import RolloutState
from enginewright.core.decide.target import Target
from enginewright.core.decide.trouble import starting_trouble
from enginewright.core.quantity import count
from enginewright.core.reasons import Reason
from enginewright.core.status import RolloutStatus
from enginewright.core.step import Step

_WHY = "strategy Recreate stops the old first"


def recreate(state: RolloutState) -> Desired:
    """The old replicas free the device before the new ones ask for it; the gap is what Recreate means."""
    revision, stable = state.target.revision, state.stable
    if given_up := state.target.rejection(revision):
        return stay_back(state, given_up)
    memory = RolloutStatus(stable=stable.revision, candidate=revision, step=Step.DRAINING)
    if state.candidate and not starting_trouble(state.ctx, stable, stable.revision):
        return _turn_back(state, memory)
    return Desired(
        progress=no(Reason.DRAINING, f"Strategy Recreate: {count(stable.replicas, 'replica')} of revision "
                                     f"{stable.revision} stop before revision {revision} starts."),
        memory=memory, kept=frozenset({revision}), stops=Stops.AT_ONCE, why=_WHY, requeue=PROGRESS_CHECK)


def _turn_back(state: RolloutState, memory: RolloutStatus) -> Desired:
    """Recreate was set while another strategy's candidate runs: it goes first, and starts again when the old ones have
    stopped. Else the stable revision, shrunk for it, would be stopped for one that nothing has shown to be good."""
    revision, stable = state.target.revision, state.stable.revision
    message = (f"Strategy Recreate: revision {revision}, whose rollout had begun, stops and revision {stable} takes "
               f"all traffic before they change places.")
    found = retreat(state, "strategy Recreate runs one revision at a time", Reason.DRAINING, message, memory)
    return replace(found, requeue=PROGRESS_CHECK)


def wait_for_room(target: Target, memory: RolloutStatus) -> Desired | None:
    """None unless old replicas are still on their way out of the target's room. What was proven stays remembered: until
    its Deployment has gone, a pass that comes again says the same."""
    ctx, revision = target.ctx, target.revision
    pods = sum(pod.revision != revision for pod in ctx.observed.pods)
    alive = len(ctx.serving.alive)
    if not ctx.recreates or ctx.serving.deployment(revision) or not (pods or alive):
        return None
    old = count(pods, "old replica") if pods else count(alive, "old Deployment")
    return Desired(
        progress=no(Reason.DRAINING, f"Strategy Recreate: {old} to stop before revision {revision} starts."),
        memory=RolloutStatus(stable=memory.stable, candidate=revision, step=Step.DRAINING,
                             rolled_back=memory.rolled_back),
        stops=Stops.AT_ONCE, why=_WHY, requeue=PROGRESS_CHECK)

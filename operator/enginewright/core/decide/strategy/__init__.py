"""The desired stage: what is to serve now on the way to the target, by the rollout's strategy.

Who waits comes first (a rollout that is suspended, without its Gateway, superseded, without its engine, refused for
its objective, its throughput, its queue or its memory, without a replica, before its turn). Then either nothing else
serves, and the target is settled; or another revision does, and the target takes over from it: with ``Recreate`` after
that has stopped, else beside it.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import no, yes
from enginewright.core.decide import traffic
from enginewright.core.decide.desired import Desired, Stops, Way
from enginewright.core.decide.strategy.back import withdraw
from enginewright.core.decide.strategy.recreate import recreate
from enginewright.core.decide.strategy.settle import settle
from enginewright.core.decide.strategy.shift import shift
from enginewright.core.decide.strategy.state import RolloutState
from enginewright.core.decide.strategy.waiting import (
    none_serves,
    taken_over,
    without_cache,
    without_engine,
    without_gateway,
    without_memory,
    without_objective,
    without_queue_time,
    without_replicas,
    without_throughput,
    without_turn,
)
from enginewright.core.decide.target import Target
from enginewright.core.reasons import Reason
from enginewright.core.serving import unwatched
from enginewright.core.step import Step


def desire(target: Target, wanted: int) -> Desired:
    """``wanted`` are the replicas that are to serve, whichever revision they are of."""
    if target.ctx.suspended:
        return _suspended(target)
    found = _desire(target, wanted)
    analysed = found.memory.step in (Step.ANALYSING, Step.WAITING) and found.question and found.question.mirror
    return replace(found, holds=traffic.way(target.ctx, wanted),
                   mirrored=(found.memory.candidate or "") if analysed else "")


def _desire(target: Target, wanted: int) -> Desired:
    ctx, stable = target.ctx, target.ctx.serving.stable
    for waits in (without_gateway, withdraw, without_engine, without_objective, without_throughput,
                  without_queue_time, without_cache, without_memory, without_replicas):
        if waiting := waits(target, wanted):
            return waiting
    if none_serves(target, wanted):
        memory = ctx.rollout.model_copy(update={"stable": target.revision}) if taken_over(target) else ctx.rollout
        return settle(target, wanted, memory, alone=True)
    if stable is None or stable.revision == target.revision:
        return settle(target, wanted, ctx.rollout, alone=stable is None)
    if waiting := without_turn(target, wanted):
        return waiting
    state = RolloutState(target=target, wanted=wanted, stable=stable)
    return recreate(state) if ctx.recreates else shift(state)


def _suspended(target: Target) -> Desired:
    ctx = target.ctx
    serving, revision = ctx.serving, target.revision
    if serving.stable and serving.stable.revision == revision and len(serving.alive) == 1:
        progress = yes(Reason.COMPLETE, f"Revision {revision} serves; no other revision runs.")
    else:
        progress = no(Reason.SUSPENDED, f"spec.suspend is true: no rollout is started or continued."
                                    f"{unwatched(serving)}")
    return Desired(progress=progress, memory=ctx.rollout)


__all__ = ["Desired", "Stops", "Way", "desire"]

"""Fifth step: which revisions run, with how many replicas, and which of them the Service selects.

Three situations: the wanted engine is not there (keep what serves), nothing else serves (settle the wanted revision),
or another revision serves (shift from it, see :mod:`~enginewright.core.decide.shift`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.conditions import Verdict, bad, good, parse_timestamp, timestamp, unknown
from enginewright.core.context import PassContext, count
from enginewright.core.decide import children
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.gateway import not_installed
from enginewright.core.decide.idle import nobody_serves, taken_over, wait_for_replicas
from enginewright.core.decide.position import ANALYSING, DRAINING, EXPANDING, SWITCHING, WAITING
from enginewright.core.decide.rollout import (
    PROGRESS_CHECK,
    RolloutResult,
    Target,
    back_to,
    remove_others,
    route_safely,
    starting,
)
from enginewright.core.decide.serving import Serving, pods_of, unwatched
from enginewright.core.decide.shift import shift
from enginewright.core.decide.turn import wait_for_turn
from enginewright.core.decide.withdraw import withdraw
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE
from enginewright.core.status import RolloutStatus
from enginewright.core.way_back import good_ones


def rollout_step(ctx: PassContext, engine: EngineResult, serving: Serving, wanted: int) -> RolloutResult:
    memory = ctx.memory.rollout or RolloutStatus()
    if ctx.spec.suspend:
        return RolloutResult(memory=memory, verdict=_suspended(ctx, serving, engine.revision))
    if waiting := not_installed(ctx, serving, memory, wanted, engine.revision):
        return waiting
    if given_back := withdraw(ctx, serving, memory, wanted, engine.revision if engine.record else ""):
        return given_back
    if engine.record is None or engine.placement is None:
        return _keep(ctx, engine, serving, memory, wanted)
    target = Target(revision=engine.revision, record=engine.record, placement=engine.placement, replicas=wanted)
    if waiting := wait_for_replicas(ctx, target, serving, memory):
        return waiting
    if nobody_serves(serving, memory, target):
        if taken_over(ctx, target, serving, memory):
            memory = memory.model_copy(update={"stable": target.revision})
        return _settle(ctx, target, replace(serving, stable=None), memory)
    if serving.stable is None or serving.stable.revision == target.revision:
        return _settle(ctx, target, serving, memory)
    if waiting := wait_for_turn(ctx, target, serving, memory):
        return waiting
    return shift(ctx, target, serving.stable, serving, memory)


def _suspended(ctx: PassContext, serving: Serving, revision: str) -> Verdict:
    if serving.stable and serving.stable.revision == revision and len(serving.alive) == 1:
        return good(Condition.ROLLOUT_COMPLETE, Reason.COMPLETE, f"Revision {revision} serves; no other revision runs.")
    said = f"spec.suspend is true: no rollout is started or continued.{unwatched(ctx.observed, serving)}"
    return bad(Condition.ROLLOUT_COMPLETE, Reason.SUSPENDED, said)


def _keep(
    ctx: PassContext, engine: EngineResult, serving: Serving, memory: RolloutStatus, wanted: int
) -> RolloutResult:
    """No engine for this spec yet: the stable revision goes on alone, at full strength."""
    stable = serving.stable
    serves = ""
    actions: tuple[Action, ...] = ()
    if stable:
        state = "goes on serving" if serving.answers(stable) else "has no ready replica"
        serves = f" Revision {stable.revision} {state}."
        actions = back_to(ctx, serving, stable, wanted, "the engine of the current spec is not built")
    elif engine.revision:
        actions = remove_others(serving, {engine.revision}, "superseded before it was ready")
    memory = RolloutStatus(stable=stable.revision if stable else None, rolled_back=memory.rolled_back)
    return RolloutResult(
        memory=memory,
        actions=actions,
        traffic={stable.revision: WHOLE} if stable else {},
        verdict=unknown(
            Condition.ROLLOUT_COMPLETE, Reason.WAITING_FOR_ENGINE, f"Rolls out when the engine is built.{serves}"
        ),
    )


def _settle(ctx: PassContext, target: Target, serving: Serving, memory: RolloutStatus) -> RolloutResult:
    """The wanted revision is the only one to rely on: run it, send it the traffic, remove the others."""
    deployed = serving.deployment(target.revision)
    strangers = tuple(pod for pod in ctx.observed.pods if pod.revision != target.revision)
    if ctx.spec.rollout.strategy == "Recreate" and deployed is None and (strangers or serving.alive):
        return _wait_for_room(serving, memory, target, len(strangers))
    actions: tuple[Action, ...] = ()
    if target.replicas:
        why = f"revision {target.revision} is wanted"
        actions = children.run(ctx, target.revision, target.record, target.placement, target.replicas, why)
    actions += (
        children.protect(ctx)
        + route_safely(ctx, serving, target.revision, f"traffic goes to revision {target.revision}")
        + children.resize(deployed, target.replicas, f"{count(target.replicas, 'replica')} wanted")
    )
    if _drained(ctx, serving, target.revision) and not _stays_until(ctx, target, serving, memory):
        took_over = _taken_over_since(ctx, memory, target.revision)
        why = f"revision {target.revision} {'has taken over' if took_over else 'is what is asked for'}"
        actions += remove_others(serving, {target.revision}, why)
    return replace(_judge(ctx, target, serving, memory), actions=actions, traffic={target.revision: WHOLE})


def _wait_for_room(serving: Serving, memory: RolloutStatus, target: Target, pods: int) -> RolloutResult:
    """What was proven stays remembered: until its Deployment has gone, a pass that comes again says the same."""
    memory = RolloutStatus(
        stable=memory.stable, candidate=target.revision, step=DRAINING, rolled_back=memory.rolled_back
    )
    old = count(pods, "old replica") if pods else count(len(serving.alive), "old Deployment")
    return RolloutResult(
        memory=memory,
        requeue=PROGRESS_CHECK,
        actions=tuple(children.remove(other, "strategy Recreate stops the old first") for other in serving.alive),
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"Strategy Recreate: {old} to stop before revision {target.revision} starts.",
        ),
    )


def _drained(ctx: PassContext, serving: Serving, revision: str) -> bool:
    """Whether others may go: they get no traffic any more, or nobody relied on them."""
    if serving.stable is None:
        return True
    routed = ctx.observed.service is not None and ctx.observed.service.revision == revision
    return routed and set(serving.traffic) == {revision}


def _stays_until(ctx: PassContext, target: Target, serving: Serving, memory: RolloutStatus) -> datetime | None:
    """How long the old revision is still to stay: an analysis without live traffic shows nothing of what the whole of
    it does. Not where it could not serve, nor where the new one waits for its room."""
    began = parse_timestamp(_taken_over_since(ctx, memory, target.revision))
    if ctx.spec.rollout.strategy != "BlueGreen" or began is None or not target.replicas:
        return None
    others = any(serving.answers(other) for other in serving.alive if other.revision != target.revision)
    if not others or any(pod.unschedulable for pod in pods_of(ctx.observed, target.revision)):
        return None
    until = began + timedelta(seconds=ctx.spec.rollout.scale_down_delay_seconds)
    return until if ctx.now < until else None


def _taken_over_since(ctx: PassContext, memory: RolloutStatus, revision: str) -> str | None:
    """When the Service was switched to ``revision``, while the one before it is there. Now, where the last thing that
    was remembered is an earlier step: the pass that switched could not write it; and where it is still to come, by the
    clock of another node, on which the operator ran before."""
    if memory.candidate != revision:
        return None
    if memory.step in (ANALYSING, WAITING, EXPANDING) and memory.stable not in (None, revision):
        return timestamp(ctx.now)
    began = parse_timestamp(memory.step_start_time) if memory.step in (SWITCHING, DRAINING) else None
    return timestamp(min(began, ctx.now)) if began else None


def _judge(ctx: PassContext, target: Target, serving: Serving, memory: RolloutStatus) -> RolloutResult:
    """Complete once all replicas were ready and every other revision is gone; losing a replica later is no rollout.
    Without a replica it is complete as well, but proven only if it was before."""
    revision, wanted = target.revision, target.replicas
    deployed = serving.deployment(revision)
    others = [other.revision for other in ctx.observed.deployments if other.revision != revision]
    none = not wanted and deployed is None
    full = none or serving.full(deployed, wanted)
    was_complete = memory.stable == revision and memory.step in ("Complete", "RolledBack")
    # After a way back the figures are of what was given up.
    analysed = memory.candidate or (memory.stable if memory.step == "Complete" else None)
    analysis = memory.analysis if analysed == revision else None
    if (deployed or none) and not others and (was_complete or full):
        known = bool(wanted) or memory.stable == revision or serving.answers(deployed)
        state = "serves" if wanted else f"has no replica, as asked{'' if known else ', and is not proven yet'}"
        return RolloutResult(
            memory=RolloutStatus(stable=revision if known else None, step="Complete", analysis=analysis),
            verdict=good(
                Condition.ROLLOUT_COMPLETE, Reason.COMPLETE,
                f"Revision {revision} {state}; no other revision runs.{_altered(ctx, deployed)}",
            ),
        )
    # Without a replica that is wanted, none will answer later.
    proven = revision if serving.answers(deployed) and not (wanted and memory.stable in others) else memory.stable
    since, until = _taken_over_since(ctx, memory, revision), _stays_until(ctx, target, serving, memory)
    memory = RolloutStatus(
        stable=proven,
        candidate=revision,
        step=DRAINING if full or since else "Starting",
        step_start_time=since,
        falls=memory.falls if since else None,
        analysis=analysis,
        rolled_back=memory.rolled_back,
    )
    verdict = starting(ctx, target, deployed, wanted)
    if ctx.spec.rollout.strategy == "Recreate" and starting_trouble(ctx, deployed, revision):
        verdict = replace(verdict, message=f"{verdict.message}{_way_out(ctx, revision)}")
    if full:
        told = _draining(revision, others, wanted, took_over=since is not None, until=until)
        verdict = bad(Condition.ROLLOUT_COMPLETE, Reason.DRAINING, told)
    left = (until - ctx.now).total_seconds() if until else PROGRESS_CHECK
    return RolloutResult(memory=memory, requeue=min(left, PROGRESS_CHECK), verdict=verdict)


def _draining(revision: str, others: list[str], wanted: int, *, took_over: bool, until: datetime | None) -> str:
    """Why ``others`` stop. Nothing takes over where a candidate is dropped for what has served all along, or for one
    that came after it before anything has served."""
    names = ", ".join(others)
    if not took_over:
        state = "serves" if wanted else "has no replica, as asked"
        return f"Revision {revision} {state}; revision {names}, which is not asked for any more, stops."
    stops = f"can take the traffic back until {timestamp(until)}, then it stops" if until else "stops"
    return f"Revision {revision} took over; revision {names} {stops}."


def _altered(ctx: PassContext, deployed: DeploymentView | None) -> str:
    """A Deployment is written once, and left alone after that, so that nothing else would tell."""
    if deployed is None or not deployed.pods_manager:
        return ""
    anew = kubectl(f"delete deployment {deployed.name}", ctx.obj.namespace)
    return (f" Field manager {deployed.pods_manager} has changed the pods of Deployment {deployed.name}, which are not "
            f"those that were proven any more: {anew} has them made anew.")


def _way_out(ctx: PassContext, revision: str) -> str:
    """Recreate has stopped what could be gone back to, so that somebody has to ask for it; empty where nothing is
    kept."""
    kept = good_ones(ctx.memory.revisions, revision)
    if not kept:
        return ""
    back = kubectl(f"annotate om {ctx.obj.name} {labels.ROLLBACK_TO}={kept[0].revision}", ctx.obj.namespace)
    return (
        f" Strategy Recreate keeps nothing running to roll back to; go back to revision {kept[0].revision} with "
        f"{back}, or change the spec."
    )

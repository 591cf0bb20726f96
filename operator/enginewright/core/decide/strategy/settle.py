"""Nothing else serves, or the target does already: it is the only one to rely on. Run it, send it the traffic, stop the
others."""

from __future__ import annotations

from datetime import datetime, timedelta

from enginewright.core.commands import kubectl, plugin
from enginewright.core.conditions import Finding, no, parse_timestamp, timestamp, yes
from enginewright.core.decide.desired import PROGRESS_CHECK, Desired, Stops
from enginewright.core.decide.strategy.recreate import wait_for_room
from enginewright.core.decide.strategy.switched import Switched
from enginewright.core.decide.target import Target
from enginewright.core.decide.trouble import starting, starting_trouble
from enginewright.core.observed import DeploymentView
from enginewright.core.quantity import count
from enginewright.core.reasons import Reason
from enginewright.core.routing import WHOLE
from enginewright.core.serving import pods_of
from enginewright.core.status import RolloutStatus
from enginewright.core.step import Step
from enginewright.core.way_back import good_ones


def settle(target: Target, wanted: int, memory: RolloutStatus, *, alone: bool) -> Desired:
    """``alone`` says that no model relies on any revision yet: the others need not be drained.

    Complete once all replicas were ready and every other revision is gone; losing a replica later is no rollout.
    Without a replica it is complete as well, but proven only if it was before."""
    if waiting := wait_for_room(target, memory):
        return waiting
    revision, until = target.revision, _stays_until(target, wanted, memory)
    switched = Switched.of(target, wanted, memory, _taken_over_since(target, memory) if until else None)
    if switched and (back := switched.goes_back()):
        return back
    progress, remembered, requeue = _judge(target, wanted, memory, until)
    took_over = _taken_over_since(target, memory) is not None
    return Desired(
        progress=progress, memory=remembered, requeue=requeue, replicas={revision: wanted}, starts=wanted > 0,
        protected=True, selected=revision, weights={revision: WHOLE}, kept=frozenset({revision}),
        watch=until is not None, question=switched.question if switched else None,
        stops=Stops.NEVER if until else Stops.SPARING if alone else Stops.DRAINED,
        why=f"traffic goes to revision {revision}", why_started=f"the spec asks for revision {revision}",
        why_scaled=f"{count(wanted, 'replica')} wanted",
        why_stopped=f"revision {revision} {'has taken over' if took_over else 'is what is asked for'}")


def _judge(target: Target, wanted: int, memory: RolloutStatus,
           until: datetime | None) -> tuple[Finding, RolloutStatus, float | None]:
    ctx, revision = target.ctx, target.revision
    deployed = ctx.serving.deployment(revision)
    others = [other.revision for other in ctx.observed.deployments if other.revision != revision]
    none = not wanted and deployed is None
    full = none or ctx.serving.full(deployed, wanted)
    was_complete = memory.stable == revision and memory.step in (Step.COMPLETE, Step.ROLLED_BACK)
    # After a way back the figures are of what was given up.
    analysed = memory.candidate or (memory.stable if memory.step == Step.COMPLETE else None)
    analysis = memory.analysis if analysed == revision else None
    if (deployed or none) and not others and (was_complete or full):
        known = bool(wanted) or memory.stable == revision or ctx.serving.answers(deployed)
        state = "serves" if wanted else f"has no replica, as asked{'' if known else ', and is not proven yet'}"
        message = f"Revision {revision} {state}; no other revision runs.{_altered(target, deployed)}"
        return yes(Reason.COMPLETE, message), RolloutStatus(
            stable=revision if known else None, step=Step.COMPLETE, analysis=analysis), None
    # Where the spec asks for no replica, none will answer later.
    proven = ctx.serving.answers(deployed) and not (wanted and memory.stable in others)
    since = _taken_over_since(target, memory)
    remembered = RolloutStatus(
        stable=revision if proven else memory.stable, candidate=revision,
        step=Step.DRAINING if full or since else Step.STARTING, step_start_time=since,
        readiness_losses=memory.readiness_losses if since else None,
        failed_switches=memory.failed_switches if since else None, analysis=analysis, rolled_back=memory.rolled_back)
    left = (until - ctx.now).total_seconds() if until else PROGRESS_CHECK
    if full:
        message = _draining(revision, others, wanted, took_over=since is not None, until=until)
        return no(Reason.DRAINING, message), remembered, min(left, PROGRESS_CHECK)
    found = starting(ctx, revision, target.engine.placement, wanted)
    if ctx.recreates and starting_trouble(ctx, deployed, revision):
        found = no(found.reason, f"{found.message}{_way_out(target)}")
    return found, remembered, min(left, PROGRESS_CHECK)


def _stays_until(target: Target, wanted: int, memory: RolloutStatus) -> datetime | None:
    """How long the old revision is still to stay: an analysis without live traffic shows nothing of what the whole of
    it does. Not where it could not serve, nor where the new one waits for its room."""
    ctx, serving = target.ctx, target.ctx.serving
    began = parse_timestamp(_taken_over_since(target, memory))
    if ctx.spec.rollout.strategy != "BlueGreen" or began is None or not wanted:
        return None
    others = any(serving.answers(other) for other in serving.alive if other.revision != target.revision)
    if not others or any(pod.unschedulable for pod in pods_of(ctx.observed, target.revision)):
        return None
    until = began + timedelta(seconds=ctx.spec.rollout.scale_down_delay_seconds)
    return until if ctx.now < until else None


def _taken_over_since(target: Target, memory: RolloutStatus) -> str | None:
    """When the Service was switched to ``revision``, while the one before it is there. Now, where the last thing that
    was remembered is an earlier step: the pass that switched could not write it; and where it is still to come, by the
    clock of another node, on which the operator ran before."""
    ctx, revision = target.ctx, target.revision
    if memory.candidate != revision:
        return None
    if memory.step in (Step.ANALYSING, Step.WAITING, Step.EXPANDING) and memory.stable not in (None, revision):
        return timestamp(ctx.now)
    began = parse_timestamp(memory.step_start_time) if memory.step in (Step.SWITCHING, Step.DRAINING) else None
    return timestamp(min(began, ctx.now)) if began else None


def _draining(revision: str, others: list[str], wanted: int, *, took_over: bool, until: datetime | None) -> str:
    """Why ``others`` stop. Nothing takes over where a candidate is dropped for what has served all along, or for one
    that came after it before anything has served."""
    names = ", ".join(others)
    if not took_over:
        state = "serves" if wanted else "has no replica, as asked"
        return f"Revision {revision} {state}; revision {names}, which is not asked for any more, stops."
    stops = f"can take the traffic back until {timestamp(until)}, then it stops" if until else "stops"
    return f"Revision {revision} took over; revision {names} {stops}."


def _altered(target: Target, deployed: DeploymentView | None) -> str:
    """A Deployment is written once, and left alone after that, so that nothing else would tell."""
    if deployed is None or not deployed.pods_manager:
        return ""
    again = kubectl(f"delete deployment {deployed.name}", target.ctx.obj.namespace)
    return (f" Field manager {deployed.pods_manager} has changed the pods of Deployment {deployed.name}, which are not "
            f"those that were proven any more: {again} has them made again.")


def _way_out(target: Target) -> str:
    """Recreate has stopped what could be gone back to, so that a user has to ask for it; empty where nothing is
    kept."""
    ctx = target.ctx
    kept = good_ones(ctx.memory.revisions, target.revision)
    if not kept:
        return ""
    back = plugin("rollback", ctx.obj.name, ctx.obj.namespace, kept[0].revision)
    return (
        f" Strategy Recreate keeps nothing running to roll back to; go back to revision {kept[0].revision} with "
        f"{back}, or change the spec."
    )

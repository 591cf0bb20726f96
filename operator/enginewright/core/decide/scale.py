"""The scale stage: how many replicas are needed? And what if another controller writes them?

While two revisions run, the number is that of the stable one, which the candidate follows; it may rise but not fall, so
that capacity is never taken from under a rollout and the figures of its analysis stay comparable.

An autoscaler that was pointed at a Deployment of ours, or a person, may write its replicas. Their number is put back
once. Should they write it again, it is left as it is and said in a condition: two that overwrite each other make pods
come and go forever, and neither learns of the other. One more try an hour finds out whether they have gone. While a
rollout moves replicas it moves these, too: it ends, and takes the Deployment along.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from enginewright.core.conditions import Finding, Verdict, no, open_question, parse_timestamp, timestamp, yes
from enginewright.core.context import PassContext
from enginewright.core.cost import replica_price
from enginewright.core.decide.desired import Desired
from enginewright.core.observed import DeploymentView
from enginewright.core.published import published
from enginewright.core.quantity import count, legible
from enginewright.core.reasons import Condition, Reason
from enginewright.core.scaling import (
    Capacity,
    ScaleDecision,
    ScaleLimits,
    capacity_asked_for,
    decide_replicas,
    limits_of,
)
from enginewright.core.scaling.shown import Shown, alike, hit_share, newest_p99, rejected
from enginewright.core.serving import Serving
from enginewright.core.status import MAX_DECISIONS, AutoscalingStatus, ContestStatus, DecisionStatus, RolloutStatus
from enginewright.core.step import Step

# Queue depth in status is for people: it is refreshed this often, or with a decision.
REFRESH_SECONDS = 10.0
# A decision that could not be carried out yet is not noted again within this time.
SAME_DECISION_SECONDS = 60.0
# Another scaler's number is put back this often at most.
PUT_BACK = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class ScaleResult:
    """``decision`` is what changed in this pass, ``recommendation`` the scaler's wish to be kept for stabilisation,
    ``limits`` what it went by."""

    wanted: int
    finding: Finding
    memory: AutoscalingStatus | None = None
    decision: DecisionStatus | None = None
    recommendation: int | None = None
    limits: ScaleLimits | None = None
    watch: bool = False
    requeue: float | None = None


@dataclass(frozen=True, kw_only=True)
class Contest:
    """``held`` are revisions whose replicas are left as they are, ``finding`` says so; ``memory`` is the last time that
    a foreign number was put back."""

    memory: ContestStatus | None = None
    held: frozenset[str] = frozenset()
    finding: Finding | None = None


def replicas(ctx: PassContext) -> ScaleResult:
    stable = ctx.serving.stable
    if ctx.suspended:
        wanted = stable.spec_replicas if stable else 0
        return ScaleResult(
            wanted=wanted,
            memory=ctx.memory.autoscaling,
            finding=open_question(Reason.SUSPENDED, "spec.suspend is true: replicas are left as they are."),
        )
    if ctx.spec.autoscaling is None:
        wanted = 1 if ctx.spec.replicas is None else ctx.spec.replicas
        why = "as there is neither spec.replicas nor spec.autoscaling" if ctx.spec.replicas is None else (
            "as spec.replicas says")
        return ScaleResult(wanted=wanted, finding=yes(Reason.MANUAL, f"{count(wanted, 'replica')}, {why}."))
    limits = limits_of(ctx.spec.autoscaling, holds=ctx.observed.holds, now=ctx.now, price=_price_of(ctx, stable))
    if stable is None:
        found = _first(ctx, _wished(ctx, limits), watch=bool(ctx.serving.alive))
    elif missing := _no_price(ctx, stable):
        return _unpriced(ctx, stable, limits, missing)
    else:
        found = _automatic(ctx, stable, _wished(ctx, limits))
    return _counted_on(found, limits.max_replicas)


def _counted_on(found: ScaleResult, most: int) -> ScaleResult:
    """A fleet counts on no more of its classes."""
    return replace(found, memory=(found.memory or AutoscalingStatus()).model_copy(update={"max_replicas": most}))


def _wished(ctx: PassContext, limits: ScaleLimits) -> ScaleLimits:
    """What a fleet wishes of one of its classes, while another leaves, stands beside the spec."""
    least = ctx.wishes.least
    if least is None:
        return limits
    return replace(limits, min_replicas=max(limits.min_replicas, min(least, limits.max_replicas)))


def _first(ctx: PassContext, limits: ScaleLimits, watch: bool) -> ScaleResult:
    """No revision serves, so nothing is queued: the last known number, or the least; one at any rate, for an engine is
    proven by serving."""
    last = ctx.memory.autoscaling.desired_replicas if ctx.memory.autoscaling else None
    wanted = limits.clamp(last or max(1, limits.min_replicas))
    memory = (ctx.memory.autoscaling or AutoscalingStatus()).model_copy(update={"desired_replicas": wanted})
    return ScaleResult(
        wanted=wanted,
        memory=memory,
        watch=watch,
        finding=open_question(Reason.WAITING_FOR_ENGINE, "Scaling starts when the first replica is ready."),
    )


def _current(before: AutoscalingStatus, serving: Serving, stable: DeploymentView, limits: ScaleLimits) -> int:
    """A rollout that moves replicas from one revision to the other does not change how many are needed, nor does one
    that runs some of maxSurge beside them. Where status is lost, the larger of both revisions tells."""
    if len(serving.alive) < 2:
        return stable.spec_replicas
    return limits.clamp(before.desired_replicas or max(deployment.spec_replicas for deployment in serving.alive))


def _rolling(ctx: PassContext, limits: ScaleLimits, current: int) -> ScaleLimits:
    """While two revisions run none of ``current`` goes: an analysis compares them under the load that they have. A
    candidate that has passed it may wait for days until a user promotes it: meanwhile fewer do, and one of each
    revision stays."""
    least, why = current, "the rollout, which takes none away while two revisions run"
    if ctx.rollout.step == Step.WAITING:
        # Without capacity to spare two replicas are one of each revision, and one would be the candidate alone.
        least = min(current, 1 if ctx.spec.rollout.max_surge else 2)
        why = "the rollout, which keeps one of each revision"
    return replace(limits, min_replicas=least, least=why) if least > limits.min_replicas else limits


def _unpriced(ctx: PassContext, stable: DeploymentView, limits: ScaleLimits, why: Finding) -> ScaleResult:
    """As many as there are, within what the user wrote: a fleet may neither wish for more nor count on more, as they
    might cost more than the ceiling."""
    before = ctx.memory.autoscaling or AutoscalingStatus()
    kept = limits.clamp(max(1, _current(before, ctx.serving, stable, limits)))
    found = ScaleResult(wanted=kept, memory=before.model_copy(update={"desired_replicas": kept}), watch=True,
                        finding=why, requeue=REFRESH_SECONDS)
    return _counted_on(found, kept)


def _automatic(ctx: PassContext, stable: DeploymentView, limits: ScaleLimits) -> ScaleResult:
    before = ctx.memory.autoscaling or AutoscalingStatus()
    rolling = len(ctx.serving.alive) > 1
    current = _current(before, ctx.serving, stable, limits)
    capacity = capacity_asked_for(ctx.spec, ctx.observed.records.get(stable.fingerprint))
    bounds = _rolling(ctx, limits, current) if rolling else limits
    found = decide_replicas(ctx.observed.signals, current, bounds, ctx.observed.monotonic, capacity)
    wanted = found.replicas
    decision = _decision(ctx, before, current, wanted, found.message)
    memory = _remember(ctx, before, wanted, decision, found)
    return ScaleResult(
        wanted=wanted,
        recommendation=found.recommendation,
        limits=_rolling(ctx, limits, wanted) if rolling else limits,
        watch=True,
        decision=decision,
        memory=memory,
        # Else the scaler wakes the object when there is something to do or to show: otherwise a thousand quiet queues
        # would take a hundred passes a second.
        requeue=REFRESH_SECONDS if rolling or _has_schedules(ctx) else None,
        finding=_shed(ctx, memory, _finding(found, capacity)),
    )


def _has_schedules(ctx: PassContext) -> bool:
    return ctx.spec.autoscaling is not None and bool(ctx.spec.autoscaling.schedules)


def _shed(ctx: PassContext, memory: AutoscalingStatus, found: Finding) -> Finding:
    """At the most replicas, what the queue does about the rest; how much, status and metrics say."""
    queue = ctx.spec.serving.queue
    if found.reason != Reason.AT_LIMIT or queue is None or not memory.rejected:
        return found
    first = " Those of low priority wait longest and are rejected first." if queue.priority_levels else ""
    return replace(found, message=f"{found.message} Load is shed meanwhile: spec.serving.queue rejects requests that "
                                  f"wait too long, as status.autoscaling.rejected counts.{first}")


def _finding(found: ScaleDecision, capacity: Capacity | None) -> Finding:
    if capacity and capacity.shortfall_seconds and capacity.objective_seconds and not found.hold:
        field, takes = ("latency.milliseconds", "engine takes for one request") if capacity.work is None else (
            "tokens.ttftMilliseconds", "server takes until the first token under the best load that was measured")
        return no(
            Reason.OBJECTIVE_OUT_OF_REACH,
            f"objective.{field} {1000 * capacity.objective_seconds:g} is "
            f"{1000 * capacity.shortfall_seconds:.3g} ms less than the {1000 * capacity.compute_seconds:.3g} ms that "
            f"the {takes}: no number of replicas meets it. Replicas are chosen so that requests "
            f"wait no longer than they are computed; raise the objective, or choose a faster accelerator.",
        )
    return (open_question if found.hold else yes)(found.reason, found.message)


def _decision(
    ctx: PassContext, before: AutoscalingStatus, current: int, wanted: int, why: str
) -> DecisionStatus | None:
    if wanted == current:
        return None
    if before.decisions:
        last, made = before.decisions[0], parse_timestamp(before.decisions[0].time)
        recent = made is not None and ctx.now - made < timedelta(seconds=SAME_DECISION_SECONDS)
        if recent and (last.from_, last.to) == (current, wanted):
            return None
    return DecisionStatus(time=timestamp(ctx.now), from_=current, to=wanted, reason=why)


def _remember(
    ctx: PassContext, before: AutoscalingStatus, wanted: int, decision: DecisionStatus | None, found: ScaleDecision
) -> AutoscalingStatus:
    update: dict[str, object] = {"desired_replicas": wanted}
    if decision:
        update["decisions"] = (decision, *before.decisions)[:MAX_DECISIONS]
    depth = None if found.queue_depth is None else round(found.queue_depth)
    if depth != before.queue_depth and (decision or not ctx.fresh(before.queue_depth_time, REFRESH_SECONDS)):
        update |= {"queue_depth": depth, "queue_depth_time": timestamp(ctx.now)}
    return before.model_copy(update={**update, **_live(ctx, before), **_rejected(ctx, before),
                                      **_hit_share(ctx, before)})


def _live(ctx: PassContext, before: AutoscalingStatus) -> dict[str, object]:
    """The servers' own p99. It moves with every request, so status gets another one where it differs visibly."""
    found = newest_p99(ctx.observed.signals)
    if alike(before.p99_milliseconds, found) or ctx.fresh(before.p99_time, REFRESH_SECONDS):
        return {}
    return {"p99_milliseconds": legible(found), "p99_time": None if found is None else timestamp(ctx.now)}


def shown(memory: AutoscalingStatus) -> Shown:
    """What status tells of the moment."""
    return Shown(queue_depth=memory.queue_depth, p99=memory.p99_milliseconds, rejected=memory.rejected,
                 hit_share=memory.cache_hit_share)


def _rejected(ctx: PassContext, before: AutoscalingStatus) -> dict[str, object]:
    """Sparingly as well, but for the first ones."""
    window = ctx.observed.signals
    if ctx.spec.serving.queue is None or window is None:
        return {"rejected": None, "rejected_time": None}
    found = rejected(window, ctx.observed.monotonic)
    if found == before.rejected or (before.rejected and ctx.fresh(before.rejected_time, REFRESH_SECONDS)):
        return {}
    return {"rejected": found, "rejected_time": timestamp(ctx.now)}


def _hit_share(ctx: PassContext, before: AutoscalingStatus) -> dict[str, object]:
    """As the p99 is shown."""
    window = ctx.observed.signals
    if ctx.spec.serving.response_cache is None or window is None:
        return {"cache_hit_share": None, "cache_hit_share_time": None}
    found = hit_share(window, ctx.observed.monotonic)
    if found == before.cache_hit_share or ctx.fresh(before.cache_hit_share_time, REFRESH_SECONDS):
        return {}
    return {"cache_hit_share": found, "cache_hit_share_time": None if found is None else timestamp(ctx.now)}


def _price_of(ctx: PassContext, stable: DeploymentView | None) -> float | None:
    """For an hour of one replica of ``stable``, as autoscaling.costCeilingPerHour asks; None when not known."""
    record = ctx.observed.records.get(stable.fingerprint) if stable else None
    summary = published(record.outcome) if record else None
    return replica_price(summary, ctx.config.prices) if summary else None


def _no_price(ctx: PassContext, stable: DeploymentView) -> Finding | None:
    """Says why a ceiling cannot be kept; None where it can, or where there is none. Meanwhile replicas stay as they
    are: more might cost more than the ceiling, and fewer might not be enough."""
    ceiling = ctx.spec.autoscaling.cost_ceiling_per_hour if ctx.spec.autoscaling else None
    if ceiling is None or _price_of(ctx, stable) is not None:
        return None
    record = ctx.observed.records.get(stable.fingerprint)
    summary = published(record.outcome) if record else None
    if summary is None:
        return open_question(
            Reason.HOLDING,
            f"autoscaling.costCeilingPerHour {ceiling:g}: the evidence that says on which device replicas run is not "
            f"read yet. Replicas stay as they are.",
        )
    device = summary.device_class or "its device"
    return no(
        Reason.PRICE_UNKNOWN,
        f"autoscaling.costCeilingPerHour {ceiling:g}: no price of {device} is known. Add it to config.prices.perHour "
        f"of the operator's chart, or remove costCeilingPerHour. Until then replicas stay as they are.",
    )


def verdict(found: ScaleResult, contest: Contest) -> Verdict:
    """Another controller that writes the replicas goes before what this stage has to say."""
    return (contest.finding or found.finding).about(Condition.SCALING_ACTIVE)


def contested(ctx: PassContext, desired: Desired, memory: RolloutStatus) -> Contest:
    """``memory`` is what will be remembered of the rollout."""
    before = _recent(ctx)
    if _moves(ctx, memory) or sum(not view.deleting for view in ctx.observed.deployments) > 1:
        return Contest(memory=before)
    views = [view for view in ctx.serving.alive if view.replicas_manager
             and desired.replicas.get(view.revision, view.spec_replicas) != view.spec_replicas]
    held = [view for view in views if before and view.replicas_manager == before.manager]
    put_back = next((view for view in views if view not in held), None)
    if put_back:
        before = ContestStatus(manager=put_back.replicas_manager, deployment=put_back.name, time=timestamp(ctx.now),
                               retry=ctx.retry or None)
    if not held:
        return Contest(memory=before)
    return Contest(memory=before, held=frozenset(view.revision for view in held),
                   finding=no(Reason.REPLICAS_CONTESTED, _explain(ctx, desired, held)))


def _moves(ctx: PassContext, memory: RolloutStatus) -> bool:
    """Not one that waits to be approved before it has a Deployment: it may wait for days."""
    candidate, step = memory.candidate, memory.step
    return candidate is not None and (step != Step.WAITING or ctx.observed.deployment(candidate) is not None)


def _recent(ctx: PassContext) -> ContestStatus | None:
    before = ctx.memory.contest
    moment = parse_timestamp(before.time) if before else None
    fresh = moment is not None and ctx.now - moment < PUT_BACK
    return before if before and fresh and before.retry == (ctx.retry or None) else None


def _explain(ctx: PassContext, desired: Desired, held: list[DeploymentView]) -> str:
    message = " ".join(
        f"Field manager {view.replicas_manager} sets Deployment {view.name} to {view.spec_replicas}, again after it "
        f"was put back to what this object asks for ({desired.replicas[view.revision]})." for view in held)
    name = ctx.obj.name
    return (f"{message} It is left so. Remove that scaler, or point it at OptimisedModel {name}, which has /scale; "
            f"then {ctx.retry_with}. Else it is tried again in an hour.")

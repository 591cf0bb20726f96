"""Rollouts that wait: for their Gateway, their engine, the objective, a replica to prove them with, or their turn.

A user who scales to zero overnight and finds another revision in the morning wants it proven then. So what is
not proven yet waits, and what was proven stays the one to go back to. With Recreate, which proves nothing beside the
old revision, and where nothing was proven before, the wanted revision takes the place at once; where a person promotes,
it comes here when it has been approved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from enginewright.core.conditions import Finding, no, open_question
from enginewright.core.context import LOOK_AGAIN, PassContext
from enginewright.core.decide import fit
from enginewright.core.decide.built import beside_stable
from enginewright.core.decide.desired import PROGRESS_CHECK, Desired, Stops
from enginewright.core.decide.objective import Shown, measured, shown
from enginewright.core.decide.strategy.back import alone, as_it_is, give_share_back, shares_traffic, wrong
from enginewright.core.decide.strategy.required import on_trial
from enginewright.core.decide.strategy.splits import shows_objective
from enginewright.core.decide.target import Target
from enginewright.core.observed import DeploymentView
from enginewright.core.quantity import count, parse_quantity
from enginewright.core.reasons import Reason
from enginewright.core.routing import API_VERSION, HTTP_ROUTE
from enginewright.core.sizing import MEMORY, held_bytes, memory_limit, proposed
from enginewright.core.spec.queue import shortest_timeout
from enginewright.core.spec.response_cache_rules import MEBIBYTE
from enginewright.core.status import RolloutStatus
from enginewright.core.step import Step
from enginewright_builder.contract import GenerateSummary

# Triton's cache in the server's own memory.
CACHE = "local"


def without_gateway(target: Target, wanted: int) -> Desired | None:
    """None unless the spec asks for kinds that the cluster lacks. What serves goes on alone, and no rollout to the
    target starts; one under way runs backwards, so that no share is dropped before others can take it."""
    ctx, stable, memory = target.ctx, target.ctx.serving.stable, target.ctx.rollout
    missing = ctx.observed.gateway.missing
    if ctx.spec.rollout.gateway is None or not missing:
        return None

    def says(meanwhile: str = "") -> Finding:
        field = "spec.rollout.gateway" if HTTP_ROUTE in missing else "spec.rollout.gateway.grpcHostnames"
        return no(Reason.GATEWAY_NOT_INSTALLED, (
            f"spec.rollout.gateway needs {' and '.join(missing)} of {API_VERSION}, which this cluster does not "
            f"have: install the Gateway API's CustomResourceDefinitions (standard channel, 1.1 or newer), or remove "
            f"{field}. No rollout starts before that{meanwhile}."))

    if stable is None:
        return Desired(progress=says(), memory=memory, requeue=LOOK_AGAIN)
    if (memory.stable, memory.step) != (target.revision, Step.COMPLETE):
        memory = RolloutStatus(stable=stable.revision, rolled_back=memory.rolled_back)
    serves = f"; revision {stable.revision} goes on serving behind Service {ctx.obj.name}"
    found = _stable_alone(ctx, stable, wanted, "the Gateway API, which the spec asks for, is missing",
                          lambda meanwhile: says(f"{serves}{meanwhile}"), memory)
    return replace(found, requeue=LOOK_AGAIN)


def _stable_alone(ctx: PassContext, stable: DeploymentView, wanted: int, why: str, says: Callable[[str], Finding],
                  memory: RolloutStatus) -> Desired:
    """``says`` what is to be said, with what goes on until then."""
    for half in ctx.serving.alive:
        if half.revision != stable.revision and shares_traffic(ctx, half):
            message = says(f", and until it has all its replicas revision {half.revision} keeps a part of the traffic")
            if found := give_share_back(ctx, half, wanted, why, message, memory, wrong=wrong(ctx, half)):
                return found
    return alone(ctx, stable, wanted, why, says(""), memory)


def without_engine(target: Target, wanted: int) -> Desired | None:
    """None where the target's engine is there, and it is known what to run it with. Until then the stable revision goes
    on alone, at full strength."""
    ctx, stable, engine = target.ctx, target.ctx.serving.stable, target.engine
    if engine.record is not None and engine.placement is not None:
        return None
    memory = RolloutStatus(stable=stable.revision if stable else None, rolled_back=ctx.rollout.rolled_back)
    message = "Rolls out when the engine is built."
    if stable is None:
        stops = Stops.SPARING if engine.revision else Stops.NEVER
        return Desired(progress=open_question(Reason.WAITING_FOR_ENGINE, message), memory=memory, stops=stops,
                       kept=frozenset({engine.revision}), why="superseded before it was ready",
                       protected=as_it_is(target))
    state = "goes on serving" if ctx.serving.answers(stable) else "has no ready replica"
    progress = open_question(Reason.WAITING_FOR_ENGINE, f"{message} Revision {stable.revision} {state}.")
    return replace(alone(ctx, stable, wanted, "the engine of the current spec is not built", progress, memory),
                   protected=as_it_is(target))


def without_objective(target: Target, wanted: int) -> Desired | None:
    """None unless the spec requires the objective, and the build shows that the target misses it, or measured too
    little to know. Then it gets no replica, unless an analysis of live traffic can show what the build could not. A
    rollout that has passed its analysis goes on."""
    ctx, stable, summary = target.ctx, target.ctx.serving.stable, on_trial(target)
    if summary is None or taken_over(target):
        return None
    found = shown(ctx.spec, summary)
    tells = stable is not None and shows_objective(ctx.spec.rollout, wanted)
    if found is Shown.KEPT or (found is Shown.UNKNOWN and (tells or ctx.wishes.promote == target.revision)):
        return None
    words = f"spec.rollout.requireObjective is true, and the build measured {measured(ctx.spec, summary)}"

    def says(meanwhile: str) -> Finding:
        if found is Shown.MISSED:
            field = "tokens" if isinstance(summary, GenerateSummary) else "latency.milliseconds"
            return no(Reason.OBJECTIVE_MISSED, (
                f"Revision {target.revision} does not start: {words}. Raise spec.objective.{field}, use "
                f"faster hardware, or set spec.rollout.requireObjective to false{meanwhile}."))
        return open_question(Reason.OBJECTIVE_UNKNOWN, (
            f"Revision {target.revision} does not start: {words}, of too few requests to know. Ask for a lower "
            f"spec.objective.latency.percentile, or promote it unmeasured with "
            f"{ctx.promote_unbegun_with(target.revision)}{meanwhile}."))

    return _refused(ctx, wanted, "spec.rollout.requireObjective refuses it", says)


def without_throughput(target: Target, wanted: int) -> Desired | None:
    """None unless the spec requires the throughput of what serves, and the builds show that the target has less. A
    rollout that has passed its analysis goes on."""
    ctx = target.ctx
    found = beside_stable(target) if ctx.spec.rollout.require_throughput and not taken_over(target) else None
    if found is None or found.reason != Reason.BUILT_SLOWER:
        return None
    return _refused(ctx, wanted, "spec.rollout.requireThroughput refuses it", lambda meanwhile: no(
        Reason.BUILT_SLOWER,
        f"Revision {target.revision} does not start, as spec.rollout.requireThroughput is true. {found.message} Give "
        f"spec.engine.buildBudgetSeconds more and rebuild, raise maxSlowdown, or set spec.rollout.requireThroughput to "
        f"false{meanwhile}."))


def without_queue_time(target: Target, wanted: int) -> Desired | None:
    """None unless requests would have to leave the queue before the batcher is done waiting for others: alone on an
    idle replica each of them would be rejected. The build chose that delay, so no rule of the spec can say it."""
    ctx, record = target.ctx, target.engine.record
    serving = record.outcome.serving if record else None
    found = shortest_timeout(ctx.spec.serving.queue)
    if serving is None or found is None or _is_stable(target) or found[1] > serving.max_queue_delay_us:
        return None
    field, timeout = found
    return _refused(ctx, wanted, "its queue would reject what it could answer", lambda meanwhile: no(
        Reason.QUEUE_TIMEOUT_TOO_SHORT,
        f"Revision {target.revision} does not start: {field} {timeout} is not more than the queue delay of "
        f"{serving.max_queue_delay_us} microseconds that the build chose. Raise it, or write a smaller "
        f"spec.batching.maxQueueDelayMicroseconds, for which the engine is measured again{meanwhile}."))


def without_cache(target: Target, wanted: int) -> Desired | None:
    """None unless the spec asks for a response cache, and the server image is known to have none: its server would not
    start."""
    ctx, server = target.ctx, target.ctx.memory.server
    there = server.caches if server else None
    if ctx.spec.serving.response_cache is None or server is None or there is None or CACHE in there:
        return None
    if _is_stable(target):
        return None
    return _refused(ctx, wanted, "its server image has no cache", lambda meanwhile: no(
        Reason.CACHE_MISSING,
        f"Revision {target.revision} does not start: spec.serving.responseCache needs Triton's cache {CACHE}, and "
        f"server image {server.image} has {', '.join(there) or 'no cache'}. Name an image with "
        f"caches/local/libtritoncache_local.so in {fit.field(ctx)}, or remove responseCache{meanwhile}."))


def without_memory(target: Target, wanted: int) -> Desired | None:
    """None unless the server's memory is limited to less than the build saw it hold, without which the kernel ends it:
    at best as it starts, at worst under load, when the old revision has gone."""
    ctx, record = target.ctx, target.engine.record
    summary, limit = record.outcome.engine if record else None, memory_limit(ctx.spec, ctx.config)
    figures = summary.memory if summary else None
    if figures is None or limit is None or _is_stable(target):
        return None
    (field, value), held = limit, held_bytes(figures, ctx.spec)
    if parse_quantity(value) >= held:
        return None
    proposal, flight = proposed(figures, ctx.spec).limits[MEMORY], count(figures.concurrency, "request")
    return _refused(ctx, wanted, "its servers would be killed for lack of memory", lambda meanwhile: no(
        Reason.MEMORY_LIMIT_TOO_LOW,
        f"Revision {target.revision} does not start: {field} {value} is less than the "
        f"{math.ceil(held / MEBIBYTE)}Mi that its server held in the build with {flight} in flight, and the kernel "
        f"would kill it. Write {proposal}, or leave the limit out{meanwhile}."))


def _is_stable(target: Target) -> bool:
    """What serves already is not refused."""
    stable = target.ctx.serving.stable
    return stable is not None and stable.revision == target.revision


def _refused(ctx: PassContext, wanted: int, why: str, says: Callable[[str], Finding]) -> Desired:
    """No replica of the target; ``says`` why, with what serves meanwhile."""
    stable = ctx.serving.stable
    memory = RolloutStatus(stable=stable.revision if stable else None, rolled_back=ctx.rollout.rolled_back)
    if stable is None:
        return Desired(progress=says("; nothing serves until then"), memory=memory, stops=Stops.SPARING, why=why)
    serves = f"; revision {stable.revision} goes on serving"
    return _stable_alone(ctx, stable, wanted, why, lambda meanwhile: says(f"{serves}{meanwhile}"), memory)


def without_replicas(target: Target, wanted: int) -> Desired | None:
    """None unless the spec asks for no replica and the target is yet to be proven beside a stable revision. Its
    Deployment goes, should it be there: the rollout begins again when replicas are needed."""
    ctx, serving, stable = target.ctx, target.ctx.serving, target.ctx.serving.stable
    if wanted or ctx.recreates or stable is None or stable.revision == target.revision:
        return None
    if target.rejection(target.revision) or taken_over(target):
        return None
    service = ctx.observed.service
    routed = service is not None and not service.activator and service.revision == stable.revision
    there = routed and len(serving.alive) == 1 and not stable.spec_replicas
    return alone(
        ctx, stable, 0, "the spec asks for no replica, and nothing else is proven",
        no(Reason.WAITING_FOR_REPLICAS, (
            f"The spec asks for no replica, so that nothing can be proven: revision {stable.revision} stays the stable "
            f"one, and the rollout of revision {target.revision} begins when there are replicas.")),
        RolloutStatus(stable=stable.revision, rolled_back=ctx.rollout.rolled_back),
        requeue=None if there else PROGRESS_CHECK)


def without_turn(target: Target, wanted: int) -> Desired | None:
    """None where the fleet asks for nothing of the kind, or there is nothing to lose: the new revision has begun, or
    the one before it does not answer."""
    ctx, serving, stable = target.ctx, target.ctx.serving, target.ctx.serving.stable
    begun = serving.deployment(target.revision) or target.rejection(target.revision)
    if not ctx.wishes.after or stable is None or begun or not serving.answers(stable):
        return None
    who = ctx.wishes.after
    when = f"when fleet {who} says so" if who == ctx.obj.fleet else f"after that of OptimisedModel {who}"
    why = "with strategy Recreate" if ctx.recreates else "without a replica to spare"
    return alone(
        ctx, stable, wanted, "it waits for its turn",
        no(Reason.WAITING_FOR_CLASSES, (
            f"Revision {target.revision} starts {when}: {why} the classes of a fleet take turns. Revision "
            f"{stable.revision} goes on serving.")),
        RolloutStatus(stable=stable.revision, rolled_back=ctx.rollout.rolled_back), requeue=PROGRESS_CHECK)


def none_serves(target: Target, wanted: int) -> bool:
    """The spec asks for no replica and none answers: there is no traffic to shift and nothing to analyse, so that the
    target takes the place at once. One that was given up does not."""
    given_up = target.ctx.rollout.rolled_back
    rejected = given_up is not None and given_up.revision == target.revision
    return wanted == 0 and not target.ctx.serving.answering and not rejected


def taken_over(target: Target) -> bool:
    """Whether the target has passed its analysis beside another revision that is still there: it expands, or the
    Service has left that one already."""
    ctx, memory = target.ctx, target.ctx.rollout
    if ctx.serving.stable is None or _is_stable(target):
        return False
    known = memory.candidate == target.revision and memory.step in (Step.EXPANDING, Step.SWITCHING)
    return known or (ctx.observed.service is not None and ctx.observed.service.revision == target.revision)

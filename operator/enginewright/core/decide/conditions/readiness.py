"""Conditions Ready and Available: what people wait for, and are paged by.

Why replicas of what serves are missing is said here where no rollout says it: it is over, or of another revision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from enginewright.core.conditions import Finding, Verdict, bad, good
from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.traffic import held
from enginewright.core.decide.trouble import starting_trouble, trouble
from enginewright.core.observed import ObjectView
from enginewright.core.problems import Problem, summarise
from enginewright.core.quantity import count
from enginewright.core.reasons import Condition, Reason
from enginewright.core.serving import Serving, unwatched


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """``unplaced`` says that replicas want for room, which comes and goes on nodes that the operator does not watch."""

    ready: Verdict
    available: Verdict
    unplaced: bool = False


def readiness(ctx: PassContext, engine: EngineResult, wanted: int, before: Iterable[Verdict]) -> Readiness:
    """``before`` are the conditions that must be True first, in the order of the walk: the first that is not tells
    why."""
    revision, wakes = engine.revision, not ctx.suspended
    ready = _ready(ctx, revision, wanted, before, wakes=wakes)
    available = _available(ctx.obj, ctx.serving, revision)
    short = _unready_reason(ctx, engine, revision) if ready.reason == Reason.REPLICAS_NOT_READY else None
    relied = _unready_stable(ctx, engine, available)
    return Readiness(
        ready=_explained(ready, short),
        available=(_held(ctx, revision, wanted) if wakes else None) or _explained(available, relied),
        unplaced=any(one is not None and one.reason == Reason.UNSCHEDULABLE for one in (short, relied)))


def refused(obj: ObjectView, serving: Serving, problems: tuple[Problem, ...]) -> tuple[Verdict, Verdict]:
    """Of a spec that makes no sense: what serves goes on serving, and a revision that is half rolled out keeps its
    share."""
    held = unwatched(serving)
    message = f"{summarise(problems)}.{held}" if held else summarise(problems)
    return (bad(Condition.READY, Reason.INVALID_SPEC, message),
            _available(obj, serving, serving.stable.revision if serving.stable else ""))


def of_run(found: Finding) -> Verdict:
    """Of an object with ``spec.batch``, which serves nothing: how its run stands."""
    return found.about(Condition.READY)


def _available(obj: ObjectView, serving: Serving, revision: str) -> Verdict:
    """True while any proven engine answers behind the Service; ``revision`` is the one that the spec asks for. Where
    none is asked for that is no outage: alarms tell them apart by the reason."""
    if not serving.traffic and _none_asked_for(obj):
        return bad(Condition.AVAILABLE, Reason.SCALED_TO_ZERO, "spec.replicas is 0: nothing serves, as asked.")
    if not serving.traffic:
        return bad(Condition.AVAILABLE, Reason.NO_REPLICA, "No replica is ready behind the Service.")
    if revision in serving.traffic:
        return good(Condition.AVAILABLE, Reason.SERVING, f"Revision {revision} answers.")
    others = ", ".join(sorted(other or "of a replica that is gone" for other in serving.traffic))
    return good(Condition.AVAILABLE, Reason.SERVING_PREVIOUS,
                f"Revision {others} answers; that of the current spec does not yet.")


def _held(ctx: PassContext, revision: str, wanted: int) -> Verdict | None:
    """While the activator answers for ``revision``; None when it does not, or in vain."""
    if ctx.serving.traffic or not held(ctx.observed):
        return None
    if not wanted:
        return good(Condition.AVAILABLE, Reason.SCALED_TO_ZERO,
                    "No request comes and no replica runs: the next one is held, and starts a replica.")
    deployed = ctx.serving.stable or ctx.serving.deployment(revision)
    if deployed is None or starting_trouble(ctx, deployed, deployed.revision):
        return None
    return good(Condition.AVAILABLE, Reason.WAKING, "Requests are held until a replica is ready.")


def _none_asked_for(obj: ObjectView) -> bool:
    """By hand: what autoscaling or the suspension of a rollout leaves without a replica is not meant to stay so. The
    spec may be any rubbish."""
    return obj.spec.get("replicas") == 0 and not obj.spec.get("autoscaling")


def _ready(
    ctx: PassContext, revision: str, wanted: int, before: Iterable[Verdict], *, wakes: bool
) -> Verdict:
    """True only when the engine of the current generation serves on all wanted replicas and nothing else gets traffic.
    Where it was scaled to no replica it is ready to start one, if the next request ``wakes`` it."""
    for verdict in before:
        if not verdict.ok:
            return bad(Condition.READY, verdict.reason, verdict.message)
    if wanted == 0 and ctx.spec.autoscaling is not None and wakes:
        return good(Condition.READY, Reason.SCALED_TO_ZERO, f"Revision {revision} starts with the next request.")
    if wanted == 0:
        return bad(Condition.READY, Reason.NO_REPLICA, "The spec asks for no replica: nothing serves.")
    if short := _shortfall(ctx, revision, wanted):
        return bad(Condition.READY, Reason.REPLICAS_NOT_READY, short)
    return good(Condition.READY, Reason.SERVING, f"Revision {revision} serves on {count(wanted, 'replica')}.")


def _shortfall(ctx: PassContext, revision: str, wanted: int) -> str:
    """What is missing from strict readiness; empty when nothing is."""
    observed, serving = ctx.observed, ctx.serving
    deployed = serving.deployment(revision)
    exact = deployed is not None and deployed.spec_replicas == wanted == deployed.replicas == deployed.ready
    if not exact or not serving.full(deployed, wanted):
        ready = min(deployed.ready, serving.answering.get(revision, 0)) if deployed else 0
        if deployed and ready >= wanted:
            return (f"{count(ready, 'replica')} of revision {revision} ready where {wanted} should be; Deployment "
                    f"{deployed.name} asks for {deployed.spec_replicas}, has {deployed.replicas} and goes on changing.")
        return f"{ready} of {count(wanted, 'replica')} of revision {revision} ready."
    if any(other.revision != revision for other in observed.deployments):
        return "Another revision still runs."
    if observed.service is None or observed.service.revision != revision:
        return f"The Service does not select revision {revision} alone yet."
    if any(endpoint.activator for endpoint in observed.endpoints):
        return "Requests may still come through the activator."
    if any(endpoint.revision != revision for endpoint in observed.endpoints):
        return "A replica of another revision may still get traffic."
    answering = sum(endpoint.ready and not endpoint.terminating for endpoint in observed.endpoints)
    if answering < wanted:
        return f"{answering} of {count(wanted, 'replica')} behind the Service."
    return ""


def _unready_reason(ctx: PassContext, engine: EngineResult, revision: str) -> Trouble | None:
    """``engine`` is what the spec asks for: what another revision was made with is not known any more."""
    placement = engine.placement if revision == engine.revision else None
    return trouble(ctx, ctx.observed.deployment(revision), revision, placement)


def _unready_stable(ctx: PassContext, engine: EngineResult, available: Verdict) -> Trouble | None:
    """Of the revision that traffic relies on: where nothing answers, or another one is asked for, whose rollout is all
    that the other conditions speak of."""
    relied = ctx.serving.stable
    if relied is None or (available.ok and relied.revision == engine.revision):
        return None
    full = ctx.serving.full(relied, relied.spec_replicas)
    return None if full else _unready_reason(ctx, engine, relied.revision)


def _explained(verdict: Verdict, found: Trouble | None) -> Verdict:
    return verdict.adding(found.message) if found else verdict

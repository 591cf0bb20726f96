"""What a fleet says: its conditions are those of its classes, with the class named; its figures are their sums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from enginewright.core.conditions import Verdict, bad, good
from enginewright.core.context import PassContext
from enginewright.core.fleet.agreement import Agreement
from enginewright.core.fleet.departure import Departure, Handover
from enginewright.core.fleet.shares import balance
from enginewright.core.fleet.standing import Member, classes, says_available, summary
from enginewright.core.observed import Observed
from enginewright.core.problems import Problem, summarise
from enginewright.core.quantity import count
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import Weights
from enginewright.core.status import ClassStatus, CostStatus, EngineStatus, SummaryStatus, read
from enginewright.core.step import Step

BEFORE = (Condition.SOURCE_RESOLVED, Condition.ENGINE_BUILT, Condition.ACCURACY_VERIFIED)


def verdicts(
    ctx: PassContext, members: tuple[Member, ...], agreed: Agreement, departure: Departure
) -> tuple[Verdict, ...]:
    """In the order that every OptimisedModel has."""
    first, rollout = [together(members, kind) for kind in BEFORE], agreed.finding.about(Condition.ROLLOUT_COMPLETE)
    taken = [one.name for one in members if one.name in ctx.observed.fleet.taken]
    ready = name_taken(taken) if taken else ready_verdict(ctx, members, (*first, rollout), departure)
    return (
        ready, available_verdict(ctx.observed, _serving(members)), *first, together(members, Condition.OBJECTIVE_MET),
        rollout, together(members, Condition.SCALING_ACTIVE),
        *([together(members, Condition.QUALITY_HELD)] if ctx.spec.quality else []),
    )


def together(members: Iterable[Member], kind: Condition) -> Verdict:
    """False where it is of any class, else Unknown where it is of any; the reason is the first such class's."""
    entries = [(member.entry.name, member.verdict(kind)) for member in members]
    worst = next((rank for rank in ("False", "Unknown") if any(one.status == rank for _, one in entries)), "True")
    shown = [(name, one) for name, one in entries if one.status == worst]
    first = shown[0][1]
    return Verdict(type=kind, status=first.status, reason=first.reason, message=summary(shown))


def ready_verdict(
    ctx: PassContext, members: tuple[Member, ...], before: Iterable[Verdict], departure: Departure
) -> Verdict:
    """True only when every class is, for the current generation, and no other class gets traffic."""
    for verdict in (*before, together(members, Condition.READY)):
        if not verdict.ok:
            return bad(Condition.READY, verdict.reason, verdict.message)
    if departure.staying:
        names = classes(view.class_name for view in departure.staying)
        how = f"serves on {departure.why}" if departure.why else "stops"
        return bad(Condition.READY, Reason.DRAINING, f"Not in the spec any more: {names} {how}.")
    wanted, behind = sum(member.wanted_replicas for member in members), answering(ctx.observed)
    if behind < wanted:
        return bad(Condition.READY, Reason.REPLICAS_NOT_READY, f"{behind} of {count(wanted, 'replica')} behind the "
                   f"Service.")
    lopsided = balance(members) if ctx.spec.rollout.gateway is None else None
    words = (together(members, Condition.READY).message, lopsided.message if lopsided else "")
    return good(Condition.READY, Reason.SERVING, " ".join(filter(None, words)))


def name_taken(names: list[str]) -> Verdict:
    return bad(Condition.READY, Reason.NAME_TAKEN, (
        f"OptimisedModel {', '.join(names)} is there already and is no part of this fleet: delete it, or give the "
        f"class or the fleet another name."))


def refused_verdicts(observed: Observed, problems: tuple[Problem, ...]) -> tuple[Verdict, Verdict]:
    """Of a spec that makes no sense."""
    serving = [view.class_name for view in observed.fleet.members if says_available(view.status)]
    return (bad(Condition.READY, Reason.INVALID_SPEC, f"{summarise(problems)}."), available_verdict(observed, serving))


def available_verdict(observed: Observed, serving: list[str]) -> Verdict:
    """True while any replica of any class answers behind the Service; ``serving`` names the classes that are asked for
    and answer."""
    if not answering(observed):
        return bad(Condition.AVAILABLE, Reason.NO_REPLICA, "No replica of any class is ready behind the Service.")
    message = f"Replicas of {', '.join(serving)} answer." if serving else "Replicas of former classes answer."
    return good(Condition.AVAILABLE, Reason.SERVING, message)


def _serving(members: Iterable[Member]) -> list[str]:
    return [member.entry.name for member in members if member.available]


def answering(observed: Observed) -> int:
    """Ready addresses behind the fleet's Service."""
    return sum(entry.ready and not entry.terminating for entry in observed.endpoints)


def blocks(
    members: tuple[Member, ...], agreed: Agreement, ready: Verdict, weights: Weights, handover: Handover
) -> dict[str, Any]:
    """All of status besides conditions. It has no selector: a fleet is not scaled through /scale."""
    complete = agreed.memory.step == Step.COMPLETE
    rows = [row(member, complete, weights.get(member.entry.name)).model_copy(
        update={"least_replicas": handover.least.get(member.entry.name)}) for member in members]
    return {
        **({"handover": handover.memory.as_json()} if handover.memory else {}),
        "classes": [one.as_json() for one in rows],
        "rollout": agreed.memory.as_json(),
        "summary": _summary(members, rows, ready.reason).as_json(),
        "replicas": sum(one.replicas or 0 for one in rows),
        "readyReplicas": sum(one.ready_replicas or 0 for one in rows),
    }


def row(member: Member, complete: bool, weight: int | None) -> ClassStatus:
    """``complete`` says that what serves now is what all classes serve together."""
    ready = member.verdict(Condition.READY)
    engine, cost = read(EngineStatus, member.status.get("engine")), read(CostStatus, member.status.get("cost"))
    now, before = member.rollout, member.before
    return ClassStatus(
        name=member.entry.name,
        model=member.name,
        ready=ready.status,
        reason=ready.reason,
        engine=engine.backend if engine else None,
        precision=engine.precision if engine else None,
        replicas=member.replicas,
        ready_replicas=member.ready_replicas,
        throughput=engine.throughput if engine else None,
        p99_milliseconds=engine.p99_milliseconds if engine else None,
        per_million_inferences=cost.per_million_inferences if cost else None,
        weight=weight,
        stable=now.stable if complete else (before.stable if before else None),
        candidate=now.candidate if now.candidate != now.stable else None,
    )


def _summary(members: Iterable[Member], rows: list[ClassStatus], reason: str) -> SummaryStatus:
    summaries = [read(SummaryStatus, member.status.get("summary")) or SummaryStatus() for member in members]
    queues = [int(one.queue) for one in summaries if one.queue and one.queue.isdigit()]
    tails = [one.p99_milliseconds for one in rows if one.p99_milliseconds is not None]
    ready, wanted = sum(one.ready_replicas or 0 for one in rows), sum(member.wanted_replicas for member in members)
    return SummaryStatus(
        engine=_each(one.engine for one in summaries),
        precision=_each(one.precision for one in summaries),
        replicas=f"{ready}/{wanted}",
        queue=str(sum(queues)) if queues else None,
        p99=f"{max(tails):.1f} ms" if tails else None,
        accelerator=_each(one.accelerator for one in summaries),
        reason=reason,
    )


def _each(values: Iterable[str | None]) -> str | None:
    """Every one that there is, once."""
    return ", ".join(dict.fromkeys(value for value in values if value)) or None

"""Condition RolloutComplete, and what is remembered of the rollout: how far it is, why it is this revision that is
rolled out, and what the routes have to say."""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core.conditions import Finding, Verdict, no, open_question, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.converge import Converged
from enginewright.core.decide.desired import Desired
from enginewright.core.decide.scale import REFRESH_SECONDS
from enginewright.core.decide.target import Target, Why
from enginewright.core.decide.target.approval import approved, asks, put_back
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import RolloutStatus
from enginewright.core.step import Step
from enginewright.core.way_back import served


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What is said of the rollout, and remembered."""

    finding: Finding
    memory: RolloutStatus


def conclude(target: Target, desired: Desired, wanted: int) -> Rollout:
    """``desired`` says how far the rollout of the target is; here, why it is that one which is rolled out."""
    found = Rollout(finding=desired.progress, memory=desired.memory)
    if not target.ctx.suspended:
        found = _BY_REASON[target.reason](target, found, wanted)
    if target.reason in (Why.GOES_BACK, Why.SERVES_ON):
        return found
    pin, finding = target.pin, found.finding
    if pin.problem:
        finding = no(Reason.ROLLBACK_TARGET_UNKNOWN, f"{pin.problem} {finding.message}")
    elif pin.followed and finding.ok:
        finding = no(Reason.PINNED, f"{pin.note} {finding.message}")
    else:
        finding = finding.adding(pin.note)
    return replace(found, finding=finding)


def verdict(
    ctx: PassContext, found: Rollout, converged: Converged, digest: str | None
) -> tuple[Verdict, RolloutStatus]:
    """``digest`` is what the target was built from, None where that is not the source of today. Complete is only what
    the routes say, too; and what a Gateway has against them is said whatever happens."""
    finding = found.finding
    if finding.ok and converged.unrouted:
        finding = no(Reason.PROGRESSING, f"{finding.message} Routes are written next.")
    finding = finding.adding(" ".join(converged.refused))
    steady, memory = _steady(ctx, finding.about(Condition.ROLLOUT_COMPLETE), found.memory)
    return steady, ctx.with_retry(_with_source(ctx.memory.rollout, memory, digest))


def _asked_for(target: Target, found: Rollout, _: int) -> Rollout:
    """That a user has approved it is remembered until it serves: by then the annotation may be gone. So is the way back
    from it that failed."""
    ctx, revision, memory = target.ctx, target.revision, found.memory
    serves = revision == served(ctx.memory.revisions) or (
        memory.stable == revision and memory.step in (Step.COMPLETE, Step.ROLLED_BACK))
    waits = asks(ctx) and not serves and (approved(target) or put_back(ctx, revision))
    return replace(found, memory=memory.model_copy(update={
        "approved": revision if waits else None, "rolled_back": target.given_up or memory.rolled_back}))


def _goes_back(target: Target, found: Rollout, _: int) -> Rollout:
    """Complete is only the way back: what was given up stays remembered, or it would be tried again. So does a way back
    that failed while what was given up serves."""
    revision, memory, given_up, finding = target.revision, found.memory, target.given_up, found.finding
    failed = memory.rolled_back if memory.rolled_back and memory.rolled_back.revision == revision else None
    if given_up and failed and not target.ctx.retried(failed.retry):
        return replace(found, finding=replace(
            finding, message=f"{given_up.message} The way back failed: {finding.message}"))
    step = Step.ROLLED_BACK if memory.step == Step.COMPLETE else memory.step
    who = "Strategy Recreate" if target.ctx.recreates else "The rollout"
    state = (f"Revision {revision}, the last good one, serves again." if finding.ok else
             f"{who} goes back to revision {revision}, the last good one: {finding.message}")
    also = target.pin.problem or target.pin.note
    message = " ".join(filter(None, (target.message, state, target.ctx.retry_hint, also)))
    return Rollout(finding=no(Reason.ROLLED_BACK, message),
                   memory=memory.model_copy(update={"rolled_back": given_up, "step": step}))


def _serves_on(target: Target, found: Rollout, _: int) -> Rollout:
    message = f"{target.message} Revision {target.revision} is to serve again: {found.finding.message}"
    return Rollout(finding=no(Reason.ROLLED_BACK, message),
                   memory=found.memory.model_copy(update={"rolled_back": target.given_up}))


def _stays(target: Target, found: Rollout, wanted: int) -> Rollout:
    """What serves stays until ``target.awaited`` is built, and approved."""
    ctx, awaited = target.ctx, target.awaited
    if awaited is None or found.finding.reason == Reason.GATEWAY_NOT_INSTALLED:
        return found
    built, there = awaited.record is not None, _there(target, wanted)
    memory = RolloutStatus(
        stable=_stable(target), candidate=awaited.revision if built else None, step=Step.WAITING if built else None,
        rolled_back=ctx.rollout.rolled_back)
    if not built:
        finding = open_question(Reason.WAITING_FOR_ENGINE, f"Rolls out when the engine is built. {there}")
        return Rollout(finding=finding, memory=memory)
    begun = ctx.serving.deployment(awaited.revision)
    taken = f" What runs of revision {awaited.revision} stops first." if begun else ""
    return Rollout(memory=memory, finding=no(Reason.WAITING_FOR_PROMOTION, (
        f"The engine of revision {awaited.revision} is built and proven. Strategy Recreate stops revision "
        f"{target.revision} before it starts, which spec.rollout.autoPromote false leaves to you: promote it with "
        f"{ctx.promote_with(awaited.revision)}. {there}{taken}")))


_BY_REASON = {Why.ASKED_FOR: _asked_for, Why.GOES_BACK: _goes_back, Why.STAYS: _stays, Why.SERVES_ON: _serves_on}


def _stable(target: Target) -> str | None:
    """What traffic relies on, until its Deployment has gone: a pass that comes again says the same."""
    serving, revision = target.ctx.serving, target.revision
    if serving.stable:
        return serving.stable.revision
    return target.ctx.rollout.stable if serving.deployment(revision) else revision


def _there(target: Target, wanted: int) -> str:
    serving, revision = target.ctx.serving, target.revision
    there = serving.deployment(revision)
    if not wanted:
        return f"The spec asks for no replica; when it does, revision {revision} serves until then."
    if there is None:
        return f"Revision {revision} is made again, and serves until then."
    if not serving.answers(there):
        return f"Revision {revision}, which is to serve until then, has no replica that answers."
    return f"Revision {revision} goes on serving."


def _steady(ctx: PassContext, finding: Verdict, memory: RolloutStatus) -> tuple[Verdict, RolloutStatus]:
    """Figures of an analysis that are fresh stay, while nothing else has changed."""
    known = ctx.memory.rollout
    if memory.analysis is None:
        return finding, memory
    if known and known.analysis and _same_moment(known, memory) and ctx.same_words(finding) and ctx.fresh(
            known.analysis.time, REFRESH_SECONDS):
        message = str(ctx.condition(finding.type).get("message"))
        return replace(finding, message=message), memory.model_copy(update={"analysis": known.analysis})
    if memory.analysis.time:
        return finding, memory
    stamped = memory.analysis.model_copy(update={"time": timestamp(ctx.now)})
    return finding, memory.model_copy(update={"analysis": stamped})


def _same_moment(known: RolloutStatus, now: RolloutStatus) -> bool:
    same = (known.candidate, known.step, known.weight_step) == (now.candidate, now.step, now.weight_step)
    return now.step == Step.ANALYSING and same


def _with_source(known: RolloutStatus | None, memory: RolloutStatus, digest: str | None) -> RolloutStatus:
    """``memory`` with the digest of what the stable revision was built from: that of the spec's source once its rollout
    is complete, else as ``known`` as long as it is of the same revision."""
    source = known.stable_source if known and known.stable == memory.stable else None
    if memory.stable and memory.step == Step.COMPLETE:
        source = digest
    return memory.model_copy(update={"stable_source": source})

"""Going back: an annotation makes a kept revision the one that is rolled out, whatever the spec asks for.

The newest wish wins: the pin ends with the annotation, or when the spec asks for something else to be served than it
did when the annotation was first seen. Replicas, scaling and how rollouts go are always the spec's. A fleet that holds
a class back means it whatever the class's spec says: its wish ends with the annotation only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.conditions import bad, find
from enginewright.core.context import PassContext
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.rollout import RolloutResult
from enginewright.core.decide.source_step import RETRY_HINT
from enginewright.core.manifests import deployment_name, revision_name
from enginewright.core.observed import EngineRecord, KeptRevision
from enginewright.core.reasons import Condition, Reason
from enginewright.core.request import store_claim
from enginewright.core.spec import Spec, parse_spec
from enginewright.core.spec.validate import reach_problems
from enginewright.core.status import PinStatus, RolledBackStatus
from enginewright_builder.contract import canonical

# What goes on being the current spec's while another revision is pinned. All else makes a revision, or its engine.
LIVE = ("replicas", "autoscaling", "rollout", "suspend", "revisionHistoryLimit")


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is to be rolled out: ``engine``, made as ``ctx.spec`` says. ``problem`` is why a wish is not followed,
    ``note`` what is to be said of one that is or was. With ``given_up`` it stands in for that revision; with
    ``way_back_failed`` it serves on, or again, as that revision, which was to stand in for it, does not start; with
    ``asked`` it serves until that one is built, and somebody has approved it where that is asked for."""

    ctx: PassContext
    engine: EngineResult
    memory: PinStatus | None = None
    pinned: bool = False
    problem: str = ""
    note: str = ""
    given_up: RolledBackStatus | None = None
    way_back_failed: RolledBackStatus | None = None
    asked: EngineResult | None = None


def choose_goal(ctx: PassContext, engine: EngineResult) -> Goal:
    wish = ctx.obj.annotations.get(labels.ROLLBACK_TO, "").strip()
    plain = Goal(ctx=ctx, engine=engine)
    if not wish:
        return plain
    key = _served_key(ctx.spec)
    memory = _remembered(ctx, wish, key)
    if memory.released or memory.spec_key != key:
        memory = memory.model_copy(update={"released": True})
        return replace(plain, memory=memory, note=f"The spec has changed since annotation {labels.ROLLBACK_TO}={wish} "
                       f"was set, and goes before it; {_release(ctx)} removes it.")
    plain = replace(plain, memory=memory)
    if wish == engine.revision:
        return plain
    kept = ctx.observed.kept.get(wish)
    return _pinned(plain, wish, kept) if kept else replace(plain, problem=_unknown(ctx, wish, "is not kept"))


def say(goal: Goal, rollout: RolloutResult) -> RolloutResult:
    """``rollout`` with what is to be said about the annotation: the current spec's engine does not serve."""
    verdict = rollout.verdict
    if goal.given_up:
        return _back_again(goal, goal.given_up, rollout)
    if failed := goal.way_back_failed:
        told = f"{failed.message} Revision {goal.engine.revision} is to serve again: {verdict.message}"
        return replace(rollout, verdict=bad(Condition.ROLLOUT_COMPLETE, Reason.ROLLED_BACK, told),
                       memory=rollout.memory.model_copy(update={"rolled_back": failed}))
    if goal.problem:
        verdict = bad(Condition.ROLLOUT_COMPLETE, Reason.ROLLBACK_TARGET_UNKNOWN, f"{goal.problem} {verdict.message}")
    elif goal.pinned and verdict.ok:
        verdict = bad(Condition.ROLLOUT_COMPLETE, Reason.PINNED, f"{goal.note} {verdict.message}")
    elif goal.note:
        verdict = replace(verdict, message=f"{verdict.message} {goal.note}")
    return replace(rollout, verdict=verdict)


def made_again(ctx: PassContext, engine: EngineResult, kept: KeptRevision) -> Goal | None:
    """The goal that ``kept`` is, in place of ``engine``. None when this release would make another revision of it."""
    spec, fingerprint = _spec_of(ctx, kept), kept.outcome.fingerprint
    if spec is None or revision_name(fingerprint, spec, kept.placement, ctx.config) != kept.revision:
        return None
    # The engine may have been built again since.
    known = ctx.observed.records.get(fingerprint)
    record = EngineRecord(fingerprint=fingerprint, store_claim=store_claim(spec),
                          outcome=known.outcome if known and known.store_uri == spec.store.uri else kept.outcome,
                          store_uri=spec.store.uri)
    return Goal(
        ctx=replace(ctx, spec=spec),
        engine=EngineResult(verdict=engine.verdict, tried=engine.tried, fingerprint=fingerprint,
                            revision=kept.revision, record=record, placement=kept.placement))


def _pinned(plain: Goal, wish: str, kept: KeptRevision) -> Goal:
    ctx = plain.ctx
    made = made_again(ctx, plain.engine, kept)
    if made is None:
        why = "was made by another release, which this one cannot repeat"
        return replace(plain, problem=_unknown(ctx, wish, why))
    asked = f"revision {plain.engine.revision}" if plain.engine.revision else "that"
    return replace(
        plain, pinned=True, ctx=made.ctx, engine=made.engine,
        note=f"Annotation {labels.ROLLBACK_TO} pins revision {wish} in place of {asked} which the spec asks for; "
             f"{_release(ctx)} goes on with the spec.")


def _back_again(goal: Goal, given_up: RolledBackStatus, rollout: RolloutResult) -> RolloutResult:
    """Complete is only the way back: what was given up stays remembered, or it would be tried again. So does a way back
    that failed while what was given up serves."""
    revision, memory, done = goal.engine.revision, rollout.memory, rollout.verdict.ok
    if memory.rolled_back and memory.rolled_back.revision == revision:
        return replace(rollout, verdict=replace(
            rollout.verdict, message=f"{given_up.message} The way back failed: {rollout.verdict.message}"))
    step = "RolledBack" if memory.step == "Complete" else memory.step
    who = "Strategy Recreate" if goal.ctx.spec.rollout.strategy == "Recreate" else "The rollout"
    state = (f"Revision {revision}, the last good one, serves again." if done else
             f"{who} goes back to revision {revision}, the last good one: {rollout.verdict.message}")
    told = " ".join(filter(None, (f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message}",
                                  state, RETRY_HINT, goal.problem or goal.note)))
    return replace(rollout, verdict=bad(Condition.ROLLOUT_COMPLETE, Reason.ROLLED_BACK, told),
                   memory=memory.model_copy(update={"rolled_back": given_up, "step": step}))


def _spec_of(ctx: PassContext, kept: KeptRevision) -> Spec | None:
    """The kept revision's, with the server image that it led to then, and the current one's live parts."""
    raw = {key: value for key, value in kept.spec.items() if key not in LIVE}
    raw |= {key: value for key, value in ctx.obj.spec.items() if key in LIVE}
    raw["serving"] = {**(kept.spec.get("serving") or {}), "image": kept.image}
    spec = parse_spec(raw)
    # Asked again: it may be an earlier release's, or stand in a ConfigMap that somebody else wrote.
    return spec if isinstance(spec, Spec) and not any(reach_problems(spec)) else None


def _remembered(ctx: PassContext, wish: str, key: str) -> PinStatus:
    """What the wish was made for; ``key`` is the current spec's. It is written anew where the last pass followed the
    wish and nobody wrote the spec since: an earlier release may have made another key of the same spec."""
    told = ctx.memory.pin
    if told is None or told.revision != wish or ctx.obj.annotations.get(labels.HELD_BACK) == wish:
        return PinStatus(revision=wish, spec_key=key)
    return told.model_copy(update={"spec_key": key}) if _untouched(ctx) and not told.released else told


def _untouched(ctx: PassContext) -> bool:
    """Whether the last pass saw this very spec, and made sense of it: one that refused a spec left the pin alone."""
    status = ctx.obj.status
    refused = find(status.get("conditions"), Condition.READY).get("reason") == Reason.INVALID_SPEC
    return status.get("observedGeneration") == ctx.obj.generation and not refused


def _served_key(spec: Spec) -> str:
    """16 hex digits over all of a spec that decides what is served. Without defaults, also those that the apiserver has
    written into it: a release that brings a field with one, which no user wrote, leaves the key as it is."""
    asked = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    served = {key: value for key, value in asked.items() if key not in LIVE}
    return hashlib.sha256(canonical(served).encode()).hexdigest()[:16]


def _release(ctx: PassContext) -> str:
    return kubectl(f"annotate om {ctx.obj.name} {labels.ROLLBACK_TO}-", ctx.obj.namespace)


def _unknown(ctx: PassContext, wish: str, why: str) -> str:
    names = [entry.revision for entry in ctx.memory.revisions
             if entry.promotion_time and entry.revision in ctx.observed.kept]
    kept = f"kept are {', '.join(names)}" if names else "none is kept"
    for entry in ctx.memory.revisions:
        if entry.revision == wish and not entry.promotion_time:
            why = f"never served: it was rolled back ({entry.reason})"
        elif entry.revision == wish and wish not in names:
            why = f"cannot be made again: ConfigMap {deployment_name(ctx.obj.name, wish)} is gone"
    return (f"Annotation {labels.ROLLBACK_TO}={wish} has no effect: revision {wish} {why}; {kept}. Name one of them, "
            f"or remove it with {_release(ctx)}.")

"""An annotation makes a kept revision the one that is rolled out, whatever the spec asks for.

The newest wish wins: the pin ends with the annotation, or when the spec asks for something else to be served than it
did when the annotation was first seen. Replicas, scaling and how rollouts go are always the spec's. A fleet that holds
a class back means it whatever the class's spec says: its wish ends with the annotation only.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.target.base import Pin, Target
from enginewright.core.manifests import deployment_name
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec import Spec
from enginewright.core.status import PinStatus
from enginewright.core.way_back import LIVE
from enginewright_builder.contract import canonical


def asked_for(ctx: PassContext, engine: EngineResult) -> Target:
    """What the spec asks for, or the revision that the annotation names in its place."""
    plain, wish = Target(ctx=ctx, engine=engine, asked=engine), ctx.wishes.back
    if not wish:
        return plain
    key = _served_key(ctx.spec)
    memory = _remembered(ctx, wish, key)
    if memory.released or memory.spec_key != key:
        note = (f"The spec has changed since annotation {labels.ROLLBACK_TO}={wish} was set, and goes before it; "
                f"{_release(ctx)} removes it.")
        return replace(plain, pin=Pin(memory=memory.model_copy(update={"released": True}), note=note))
    if wish == engine.revision:
        return replace(plain, pin=Pin(memory=memory))
    kept = ctx.observed.kept.get(wish)
    if kept is None:
        return replace(plain, pin=Pin(memory=memory, problem=_unknown(ctx, wish, "is not kept")))
    made = plain.made_again(kept)
    if made is None:
        why = "was made by another release, which this one cannot repeat"
        return replace(plain, pin=Pin(memory=memory, problem=_unknown(ctx, wish, why)))
    instead = f"revision {engine.revision}" if engine.revision else "that"
    note = (f"Annotation {labels.ROLLBACK_TO} pins revision {wish} in place of {instead} which the spec asks for; "
            f"{_release(ctx)} goes on with the spec.")
    return replace(made, asked=made.engine, pin=Pin(memory=memory, followed=True, note=note))


def _remembered(ctx: PassContext, wish: str, key: str) -> PinStatus:
    """What the wish was made for; ``key`` is the current spec's. It is written again where the last pass followed the
    wish and no user wrote the spec since: an earlier release may have made another key of the same spec."""
    before = ctx.memory.pin
    if before is None or before.revision != wish or ctx.wishes.held_back == wish:
        return PinStatus(revision=wish, spec_key=key)
    return before.model_copy(update={"spec_key": key}) if _untouched(ctx) and not before.released else before


def _untouched(ctx: PassContext) -> bool:
    """Whether the last pass saw this very spec, and made sense of it: one that refused a spec left the pin alone."""
    refused = ctx.condition(Condition.READY).get("reason") == Reason.INVALID_SPEC
    return ctx.obj.status.get("observedGeneration") == ctx.obj.generation and not refused


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

"""Why replicas of what serves are missing, where no rollout says it: it is over, or of another revision."""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditions import Verdict
from enginewright.core.context import PassContext
from enginewright.core.decide.analysis import trouble
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.serving import Serving


def ailing(ctx: PassContext, engine: EngineResult, revision: str) -> Trouble | None:
    """``engine`` is what the spec asks for: of another revision nobody knows any more what it was made with."""
    placement = engine.placement if revision == engine.revision else None
    return trouble(ctx, ctx.observed.deployment(revision), revision, placement)


def ailing_stable(ctx: PassContext, engine: EngineResult, serving: Serving, available: Verdict) -> Trouble | None:
    """Of the revision that traffic relies on: where nothing answers, or another one is asked for, whose rollout is all
    that the other conditions speak of."""
    relied = serving.stable
    if relied is None or (available.ok and relied.revision == engine.revision):
        return None
    return None if serving.full(relied, relied.spec_replicas) else ailing(ctx, engine, relied.revision)


def explained(verdict: Verdict, found: Trouble | None) -> Verdict:
    return replace(verdict, message=f"{verdict.message} {found.message}") if found else verdict

"""Recreate where a person promotes: what serves is not stopped for a new revision before a user has said so.

Until then what serves takes the place of what the spec asks for, as a pinned revision does: it is scaled, protected,
and made again from what was kept of it should its Deployment be gone. No user is asked about a way back, nor about what
served last, nor where nothing has served yet: there is nothing to lose then, and waiting would be an outage.
"""

from __future__ import annotations

from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.quality import QualityResult
from enginewright.core.decide.target.base import Target
from enginewright.core.decide.trouble import starting_trouble
from enginewright.core.observed import DeploymentView
from enginewright.core.serving import Serving
from enginewright.core.way_back import good_ones, served


def approval(target: Target, _: QualityResult) -> Target | None:
    ctx, serving, revision = target.ctx, target.ctx.serving, target.revision
    last = _last(ctx, revision)
    if not asks(ctx) or revision == last or approved(target) or _begun(serving, revision) or put_back(ctx, revision):
        return None
    if target.rejection(revision):
        # The way back from it is another's to find; there is none where it stays.
        return None
    now = serving.stable
    if now and (now.revision == last or _relied_on(target, now, last)):
        return _as_it_is(target, now)
    if (kept := ctx.observed.kept.get(last)) and (made := target.made_again(kept)):
        return target.until(made.ctx, made.engine)
    there = serving.deployment(last)
    return _as_it_is(target, there) if there else None


def asks(ctx: PassContext) -> bool:
    """The classes of a fleet take turns instead."""
    return ctx.recreates and not (ctx.spec.rollout.auto_promote or ctx.obj.fleet)


def approved(target: Target) -> bool:
    """By its name: another revision of the same engine is another rollout. A user who asks to go back has
    approved it."""
    ctx = target.ctx
    return bool(target.revision) and target.revision in (ctx.wishes.promote, ctx.wishes.back, ctx.rollout.approved)


def put_back(ctx: PassContext, revision: str) -> bool:
    """Whether the spec asks for one that has served, as what serves is broken and answers no request: the way back of
    those who keep their specs in git."""
    now = ctx.serving.stable
    if now is None or any(ctx.serving.answers(view) for view in ctx.serving.alive):
        return False
    has_served = any(entry.revision == revision for entry in good_ones(ctx.memory.revisions, now.revision))
    return has_served and starting_trouble(ctx, now, now.revision) is not None


def _begun(serving: Serving, revision: str) -> bool:
    """Whether it has taken the place already: it is what traffic relies on, or nothing else is there."""
    if serving.stable is not None and serving.stable.revision == revision:
        return True
    return bool(serving.alive) and all(deployment.revision == revision for deployment in serving.alive)


def _last(ctx: PassContext, revision: str) -> str:
    """The revision that served last. Should status have lost its history, what is kept tells which have served."""
    there = (view.revision for view in ctx.serving.alive if view.revision in ctx.observed.kept.keys() - {revision})
    return served(ctx.memory.revisions) or next(there, "")


def _relied_on(target: Target, now: DeploymentView, last: str) -> bool:
    """One that the spec asked for in between, and that has answered: no rollout of it was ever complete. When it fails
    the one that served ``last`` takes its place; not so while that one is on its way out itself."""
    if target.rejection(last):
        return False
    return target.ctx.serving.answers(now) or starting_trouble(target.ctx, now, now.revision) is None


def _as_it_is(target: Target, there: DeploymentView) -> Target:
    """Whatever it was made of: without a placement its Deployment is scaled, and never made."""
    ctx = target.ctx
    kept = ctx.observed.kept.get(there.revision)
    made = target.made_again(kept) if kept else None
    record = made.engine.record if made else ctx.observed.records.get(there.fingerprint)
    return target.until(ctx, EngineResult(verdict=target.engine.verdict, revision=there.revision,
                                          fingerprint=there.fingerprint, record=record))

"""Recreate where a person promotes: what serves is not stopped for a new revision before somebody has said so.

Until then what serves takes the place of what the spec asks for, as a pinned revision does: it is scaled, protected,
and made again from what was kept of it should its Deployment be gone. Nobody is asked about a way back, nor about what
served last, nor where nothing has served yet: there is nothing to lose then, and waiting would be an outage.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.commands import kubectl
from enginewright.core.conditions import Verdict, bad, unknown
from enginewright.core.context import PassContext
from enginewright.core.decide import children
from enginewright.core.decide.analysis import starting_trouble
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.pin import Goal, made_again
from enginewright.core.decide.position import WAITING, named, promote_with
from enginewright.core.decide.rollout import RolloutResult, put_aside
from enginewright.core.decide.serving import Serving
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import RolloutStatus
from enginewright.core.way_back import good_ones, served


def ask(goal: Goal, serving: Serving) -> Goal:
    """``goal``, or in its place what serves, with what is ``asked`` for."""
    ctx, revision, last = goal.ctx, goal.engine.revision, _last(goal.ctx, serving, goal.engine.revision)
    if not _asks(ctx) or ctx.spec.suspend or goal.given_up:
        return goal
    if revision == last or _approved(goal) or _begun(serving, revision) or _put_back(ctx, serving, revision):
        return goal
    if put_aside(ctx, _memory(ctx), revision):
        # The way back from it is another's to find; there is none where it stays.
        return goal
    now = serving.stable
    if now and (now.revision == last or _relied_on(ctx, serving, now, last)):
        return _as_it_is(goal, now)
    if (kept := ctx.observed.kept.get(last)) and (made := made_again(ctx, goal.engine, kept)):
        return replace(goal, ctx=made.ctx, engine=made.engine, asked=goal.engine)
    there = serving.deployment(last)
    return _as_it_is(goal, there) if there else goal


def with_approval(goal: Goal, serving: Serving, wanted: int, rollout: RolloutResult) -> RolloutResult:
    """``rollout`` of ``goal``, and that it waits; or that somebody has approved it, which is remembered until it
    serves: by then the annotation may be gone."""
    if goal.given_up or goal.way_back_failed or goal.ctx.spec.suspend:
        return rollout
    if goal.asked is None:
        return _remembered(goal, serving, rollout)
    if rollout.verdict.reason == Reason.GATEWAY_NOT_INSTALLED:
        return rollout
    built, stays = goal.asked.record is not None, goal.engine.revision
    memory = RolloutStatus(
        stable=_stable(goal.ctx, serving, stays), candidate=goal.asked.revision if built else None,
        step=WAITING if built else None, rolled_back=_memory(goal.ctx).rolled_back)
    there = _stays(serving, stays, wanted)
    verdict = (_waiting(goal, goal.asked, serving, there) if built else
               unknown(Condition.ROLLOUT_COMPLETE, Reason.WAITING_FOR_ENGINE,
                       f"Rolls out when the engine is built. {there}"))
    protected = () if goal.engine.placement else children.protect(goal.ctx)
    return replace(rollout, memory=memory, verdict=verdict, actions=rollout.actions + protected)


def _asks(ctx: PassContext) -> bool:
    """The classes of a fleet take turns instead."""
    rollout = ctx.spec.rollout
    return rollout.strategy == "Recreate" and not (rollout.auto_promote or ctx.obj.fleet)


def _memory(ctx: PassContext) -> RolloutStatus:
    return ctx.memory.rollout or RolloutStatus()


def _approved(goal: Goal) -> bool:
    """By its name: another revision of the same engine is another rollout."""
    revision = goal.engine.revision
    return bool(revision) and revision in (*named(goal.ctx), _memory(goal.ctx).approved)


def _remembered(goal: Goal, serving: Serving, rollout: RolloutResult) -> RolloutResult:
    revision, memory = goal.engine.revision, rollout.memory
    serves = revision == served(goal.ctx.memory.revisions) or (
        memory.stable == revision and memory.step in ("Complete", "RolledBack"))
    agreed = _approved(goal) or _put_back(goal.ctx, serving, revision)
    if serves or not (_asks(goal.ctx) and agreed):
        return replace(rollout, memory=memory.model_copy(update={"approved": None}))
    return replace(rollout, memory=memory.model_copy(update={"approved": revision}))


def _begun(serving: Serving, revision: str) -> bool:
    """Whether it has taken the place already: it is what traffic relies on, or nothing else is there."""
    if serving.stable is not None and serving.stable.revision == revision:
        return True
    return bool(serving.alive) and all(deployment.revision == revision for deployment in serving.alive)


def _put_back(ctx: PassContext, serving: Serving, revision: str) -> bool:
    """Whether the spec asks for one that has served, as what serves is broken and answers nobody: the way back of those
    who keep their specs in git."""
    now = serving.stable
    if now is None or any(serving.answers(view) for view in serving.alive):
        return False
    has_served = any(entry.revision == revision for entry in good_ones(ctx.memory.revisions, now.revision))
    return has_served and starting_trouble(ctx, now, now.revision) is not None


def _last(ctx: PassContext, serving: Serving, revision: str) -> str:
    """The revision that served last. Should status have lost its history, what is kept tells which have served."""
    there = (view.revision for view in serving.alive if view.revision in ctx.observed.kept.keys() - {revision})
    return served(ctx.memory.revisions) or next(there, "")


def _relied_on(ctx: PassContext, serving: Serving, now: DeploymentView, last: str) -> bool:
    """One that the spec asked for in between, and that has answered: no rollout of it was ever complete. When it fails
    the one that served ``last`` takes its place; not so while that one is on its way out itself."""
    if put_aside(ctx, _memory(ctx), last):
        return False
    return serving.answers(now) or starting_trouble(ctx, now, now.revision) is None


def _as_it_is(goal: Goal, there: DeploymentView) -> Goal:
    """Whatever it was made of: without a placement its Deployment is scaled, and never made."""
    ctx = goal.ctx
    kept = ctx.observed.kept.get(there.revision)
    made = made_again(ctx, goal.engine, kept) if kept else None
    record = made.engine.record if made else ctx.observed.records.get(there.fingerprint)
    engine = EngineResult(verdict=goal.engine.verdict, revision=there.revision, fingerprint=there.fingerprint,
                          record=record)
    return replace(goal, engine=engine, asked=goal.engine)


def _stable(ctx: PassContext, serving: Serving, stays: str) -> str | None:
    """What traffic relies on, until its Deployment has gone: a pass that comes again says the same."""
    if serving.stable:
        return serving.stable.revision
    return _memory(ctx).stable if serving.deployment(stays) else stays


def _waiting(goal: Goal, asked: EngineResult, serving: Serving, there: str) -> Verdict:
    ctx, begun = goal.ctx, serving.deployment(asked.revision)
    taken = f" What runs of revision {asked.revision} stops first." if begun else ""
    return bad(
        Condition.ROLLOUT_COMPLETE,
        Reason.WAITING_FOR_PROMOTION,
        f"The engine of revision {asked.revision} is built and proven. Strategy Recreate stops revision "
        f"{goal.engine.revision} before it starts, which spec.rollout.autoPromote false leaves to you: promote it with "
        f"{promote_with(ctx, asked.revision)}, or "
        f"{kubectl(f'optimisedmodel promote {ctx.obj.name}', ctx.obj.namespace)}. {there}{taken}",
    )


def _stays(serving: Serving, revision: str, wanted: int) -> str:
    there = serving.deployment(revision)
    if not wanted:
        return f"No replica is wanted; when one is, revision {revision} serves until then."
    if there is None:
        return f"Revision {revision} is made again, and serves until then."
    if not serving.answers(there):
        return f"Revision {revision}, which is to serve until then, has no replica that answers."
    return f"Revision {revision} goes on serving."

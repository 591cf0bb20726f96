"""What is said of a rollout in the middle: which step it is in, with which figures, and what it waits for."""

from __future__ import annotations

from enginewright.core.conditions import Finding, no
from enginewright.core.decide.strategy.analysis import summary
from enginewright.core.decide.strategy.splits import Split
from enginewright.core.decide.strategy.state import Position, RolloutState
from enginewright.core.decide.target import Target
from enginewright.core.decide.trouble import trouble
from enginewright.core.quantity import count
from enginewright.core.reasons import Reason
from enginewright.core.step import Step


def starting(target: Target, wanted: int) -> Finding:
    """How far a revision is that is getting ready, or why it does not."""
    ctx, deployed = target.ctx, target.ctx.serving.deployment(target.revision)
    if found := trouble(ctx, deployed, target.revision, target.engine.placement):
        return no(found.reason, found.message)
    ready = deployed.available if deployed else 0
    return no(Reason.PROGRESSING, f"Revision {target.revision}: {ready} of {count(wanted, 'replica')} ready.")


def progress(state: RolloutState, at: Position) -> Finding:
    revision, step = state.target.revision, at.step
    if step == Step.STARTING:
        return starting(state.target, state.splits[at.number].candidate)
    if step == Step.ANALYSING:
        return _analysing(state, at)
    passed = summary(state.remember(at).analysis)
    if step == Step.WAITING:
        who = (f"OptimisedModel {state.ctx.obj.fleet} promotes it when every class has a proven candidate"
               if state.ctx.obj.fleet else f"promote it with {state.ctx.promote_with(revision)}")
        return no(Reason.WAITING_FOR_PROMOTION, f"Revision {revision} passed its analysis; {who}.{passed}")
    if step == Step.EXPANDING:
        found = starting(state.target, state.wanted)
        return no(found.reason, f"{found.message}{passed}")
    return no(Reason.DRAINING, f"Traffic moves to revision {revision}; revision {state.stable.revision} stops next."
                               f"{passed}")


def _analysing(state: RolloutState, at: Position) -> Finding:
    revision, split = state.target.revision, state.splits[at.number]
    how = "shares the traffic" if state.canary else "is ready beside the old one, without live traffic,"
    if split.weight is not None:
        how += f" (step {at.number + 1} of {len(state.splits)}, {_share(state, split)})"
    same = state.under_analysis and at.number == state.last
    found = state.answer.message if same else "no request has been measured yet"
    message = f"Revision {revision} {how} and is compared with revision {state.stable.revision}: {found}."
    if same and state.answer.starved:
        message += f" Promote it unmeasured with {state.ctx.promote_with(revision)}."
        return no(Reason.WAITING_FOR_SAMPLES, message)
    return no(Reason.ANALYSING, message)


def _share(state: RolloutState, split: Split) -> str:
    if state.exact:
        return f"{split.weight} % of what comes through the Gateway"
    if split.share == split.weight:
        return f"{split.share} % of it"
    near = f"the nearest to {split.weight} % that {count(state.wanted, 'replica')} allow"
    return f"{split.share} % of it, {near}"

"""From one revision to the next while both run: start, analyse, expand, switch, or roll back.

The position is kept in status (``rollout.step``) but every count is derived from the world, so that a lost status only
makes the analysis start again. A candidate is never shrunk on its way, unless the spec or the load asks for fewer
replicas before it is promoted: it keeps its step's share of them. The stable revision gives up a replica only for one
of the candidate's that is available: together they never fall below what is needed, nor, with Canary, rise above it by
more than ``maxSurge``. With ``maxSurge`` 0 they never rise above it at all, and fall one short of it while a replica is
exchanged.
"""

from __future__ import annotations

from enginewright.core.comparison import Answer, fails_more, proven_worse
from enginewright.core.conditions import Finding, no
from enginewright.core.decide.desired import EVERY, PROGRESS_CHECK, Desired, Stops
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.strategy.analysis import summary
from enginewright.core.decide.strategy.back import roll_back, stay_back
from enginewright.core.decide.strategy.splits import Split
from enginewright.core.decide.strategy.state import Position, RolloutState, flapping, position_of
from enginewright.core.decide.trouble import restarted, restarts, starting, starting_trouble
from enginewright.core.observed import DeploymentView
from enginewright.core.quantity import count
from enginewright.core.reasons import Reason
from enginewright.core.routing import WHOLE, Weights, part, split
from enginewright.core.step import Step


def shift(state: RolloutState) -> Desired:
    if given_up := state.target.rejection(state.target.revision):
        return stay_back(state, given_up)
    if trouble := _trouble(state):
        return roll_back(state, trouble)
    return _go_on(state, position_of(state))


def _trouble(state: RolloutState) -> Trouble | None:
    revision = state.target.revision
    if found := starting_trouble(state.ctx, state.candidate, revision):
        return found
    if state.under_analysis and (found := restarted(state.ctx, revision, state.memory.restarts or 0)):
        return found
    if found := flapping(state):
        return found
    if state.under_analysis:
        waits = state.memory.step != Step.ANALYSING
        limits = state.question(state.last).limits
        return _as_trouble(proven_worse(state.answer, limits) if waits else state.answer)
    # Load shifts from one to the other now, so that latencies are not to be compared any more.
    promoted = state.known and state.memory.step in (Step.EXPANDING, Step.SWITCHING)
    return _as_trouble(fails_more(state.ctx.observed.signals, state.question(state.last))) if promoted else None


def _as_trouble(answer: Answer | None) -> Trouble | None:
    if answer is None or answer.verdict != "worse" or answer.reason is None:
        return None
    return Trouble(reason=answer.reason, message=answer.message)


def _go_on(state: RolloutState, at: Position) -> Desired:
    target, stable, step = state.target.revision, state.stable.revision, at.step
    mine, theirs = _counts(state, at)
    analysing = step in (Step.ANALYSING, Step.WAITING)
    # A replica that goes away takes its restarts along: they must not stand for those of others.
    now = restarts(state.ctx.observed, target)
    baseline = min(state.memory.restarts or 0, now) if state.under_analysis else now
    watched = analysing or step in (Step.EXPANDING, Step.SWITCHING)
    return Desired(
        progress=_progress(state, at),
        memory=state.remember(at, baseline if analysing else None),
        replicas={target: mine, stable: theirs}, starts=mine > 0, protected=True,
        selected=_selected(state, at), weights=_shares(state, at, theirs),
        kept=frozenset({stable, target}), stops=Stops.SPARING, why=f"rollout step {step}",
        why_started=f"revision {target} is to replace {stable}", why_stopped="superseded before it was proven",
        watch=watched, question=state.question(at.number) if watched else None, requeue=PROGRESS_CHECK,
    )


def _counts(state: RolloutState, at: Position) -> tuple[int, int]:
    """Replicas of the candidate and of the stable revision.

    With surge, old ones go when new ones are available. Without, one goes first, and a new one takes its room.
    """
    wanted, candidate, stable = state.wanted, state.candidate, state.stable
    if not state.canary:
        return wanted, wanted
    surge, split = state.ctx.spec.rollout.max_surge, state.splits[at.number]
    if at.step == Step.WAITING:
        # The load may fall meanwhile: the candidate then shrinks with the stable revision, and keeps its share.
        return split.candidate, split.stable
    goal, least = (wanted, 0) if at.step in (Step.EXPANDING, Step.SWITCHING) else (split.candidate, split.stable)
    asked = candidate.spec_replicas if candidate else 0
    room = max(0, wanted + surge - max(stable.spec_replicas, stable.replicas))
    # Where the spec or the load asks for fewer than before, it keeps more than its goal until the stable one can take
    # that.
    held = min(asked, max(goal, wanted - _available(state, stable)))
    mine = min(wanted, max(held, min(goal, room)))
    available = min(mine, _available(state, candidate))
    exchanged = 1 if surge == 0 and goal > available else 0
    theirs = max(least, wanted - available - exchanged, 0)
    if surge == 0:
        # The stable one grows only into room that the candidate does not take, and never makes room for more of it than
        # can answer.
        free = wanted - max(asked, candidate.replicas if candidate else 0)
        theirs = min(theirs, max(stable.spec_replicas, free))
        mine = min(mine, max(available, wanted - theirs))
    return mine, theirs


def _available(state: RolloutState, deployed: DeploymentView | None) -> int:
    """By its own count and by its pods."""
    return min(deployed.available, state.serving.answering.get(deployed.revision, 0)) if deployed else 0


def _selected(state: RolloutState, at: Position) -> str:
    if at.step == Step.SWITCHING:
        return state.target.revision
    if state.lent and state.target.revision in state.serving.traffic:
        return EVERY
    if state.exact:
        # The routes split the traffic; the Service follows when the stable revision is about to go.
        return EVERY if at.step == Step.EXPANDING else state.stable.revision
    # The stable revision gives up replicas for the first new ones, when there are to be several: they must serve, then.
    growing = state.splits[at.number].candidate > 1 and state.available(1)
    shared = at.step != Step.STARTING or at.number > 0 or growing
    return EVERY if state.canary and shared else state.stable.revision


def _shares(state: RolloutState, at: Position, staying: int) -> Weights:
    """``staying`` is how many replicas the stable revision keeps after this pass.

    On its way to a step's share the candidate gets no more than its part of the replicas; afterwards that part and no
    less than the last step's share, since the stable revision shrinks.
    """
    target, stable = state.target.revision, state.stable.revision
    if at.step == Step.SWITCHING:
        return split(target, stable, WHOLE)
    if not state.canary:
        lent = state.lent and target in state.ctx.observed.gateway.routed
        return split(target, stable, _part(state, state.serving.answering.get(stable, 0)) if lent else 0)
    wanted, held = _weight(state.splits[at.number]), _part(state, staying)
    if at.step in (Step.ANALYSING, Step.WAITING):
        return split(target, stable, wanted)
    if at.step == Step.EXPANDING:
        return split(target, stable, max(wanted, held) if staying else WHOLE)
    reached = _weight(state.splits[at.number - 1]) if at.number else 0
    return split(target, stable, max(reached, min(wanted, held)))


def _weight(step: Split) -> int:
    """What was asked for; where nothing was, the candidate's part of the replicas."""
    return step.share if step.weight is None else step.weight


def _part(state: RolloutState, staying: int) -> int:
    """Per cent of the replicas that are the candidate's and can answer."""
    return part(_available(state, state.candidate), staying)


def _progress(state: RolloutState, at: Position) -> Finding:
    revision, step = state.target.revision, at.step
    if step == Step.STARTING:
        return _starting(state, state.splits[at.number].candidate)
    if step == Step.ANALYSING:
        return _analysing(state, at)
    passed = summary(state.remember(at).analysis)
    if step == Step.WAITING:
        who = (f"OptimisedModel {state.ctx.obj.fleet} promotes it when every class has a proven candidate"
               if state.ctx.obj.fleet else f"promote it with {state.ctx.promote_with(revision)}")
        return no(Reason.WAITING_FOR_PROMOTION, f"Revision {revision} passed its analysis; {who}.{passed}")
    if step == Step.EXPANDING:
        found = _starting(state, state.wanted)
        return no(found.reason, f"{found.message}{passed}")
    return no(Reason.DRAINING, f"Traffic moves to revision {revision}; revision {state.stable.revision} stops next."
                               f"{passed}")


def _starting(state: RolloutState, replicas: int) -> Finding:
    return starting(state.ctx, state.target.revision, state.target.engine.placement, replicas)


def _analysing(state: RolloutState, at: Position) -> Finding:
    revision, split = state.target.revision, state.splits[at.number]
    how = "shares the traffic" if state.canary else "is ready beside the old one, without live traffic,"
    if split.weight is not None:
        how += f" (step {at.number + 1} of {len(state.splits)}, {_share(state, split)})"
    same = state.under_analysis and at.number == state.last
    found = state.answer.message if same else "no request has been measured yet"
    message = f"Revision {revision} {how} and is compared with revision {state.stable.revision}: {found}."
    if split.stable and not state.serving.answers(state.stable):
        message += f" Revision {state.stable.revision} has no ready replica to compare it with."
    if same and state.answer.starved:
        message += f" Promote it unmeasured with {state.ctx.promote_with(revision)}."
        return no(Reason.WAITING_FOR_SAMPLES, message)
    return no(state.answer.reason if same and state.answer.reason else Reason.ANALYSING, message)


def _share(state: RolloutState, split: Split) -> str:
    if state.exact:
        return f"{split.weight} % of what comes through the Gateway"
    if split.share == split.weight:
        return f"{split.share} % of it"
    near = f"the nearest to {split.weight} % that {count(state.wanted, 'replica')} allow"
    return f"{split.share} % of it, {near}"

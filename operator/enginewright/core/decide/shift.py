"""From one revision to the next while both run: start, analyse, expand, switch, or roll back.

The position is kept in status (``rollout.step``) but every count is derived from the world, so that a lost status only
makes the analysis start again. A candidate is never shrunk on its way, and the stable revision gives up a replica only
for one of the candidate's that is available: together they never fall below what is wanted, nor, with Canary, rise
above it by more than ``maxSurge``. With ``maxSurge`` 0 they never rise above it at all, and fall one short of it while
a replica is exchanged.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core import labels
from enginewright.core.comparison import Answer, fails_more, proven_worse
from enginewright.core.conditions import Verdict, bad, parse_timestamp, timestamp
from enginewright.core.decide import children
from enginewright.core.decide.analysis import restarted, restarts, starting_trouble
from enginewright.core.decide.evidence import figures, told
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.position import (
    ANALYSING,
    EXPANDING,
    STARTING,
    SWITCHING,
    WAITING,
    Position,
    Shift,
    flapping,
    position_of,
)
from enginewright.core.decide.rollout import (
    PROGRESS_CHECK,
    RolloutResult,
    Target,
    back_to,
    put_aside,
    remove_others,
    route_safely,
    starting,
)
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.source_step import RETRY_HINT
from enginewright.core.decide.steps import Split
from enginewright.core.decide.traffic import shares
from enginewright.core.decide.withdraw import WRONG, give_share_back, shares_traffic
from enginewright.core.decide.world import World, count
from enginewright.core.observed import DeploymentView
from enginewright.core.plan import Action
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import WHOLE, Weights
from enginewright.core.status import RolledBackStatus, RolloutStatus


def shift(
    world: World, target: Target, stable: DeploymentView, serving: Serving, memory: RolloutStatus
) -> RolloutResult:
    moving = Shift(
        world=world,
        target=target,
        stable=stable,
        serving=serving,
        memory=memory,
        candidate=serving.deployment(target.revision),
    )
    if given_up := put_aside(world, memory, target.revision):
        return _stay_back(moving, given_up)
    if world.spec.rollout.strategy == "Recreate":
        return _recreate(moving)
    if trouble := _trouble(moving):
        return _roll_back(moving, trouble)
    return _go_on(moving, position_of(moving))


def _trouble(moving: Shift) -> Trouble | None:
    revision = moving.target.revision
    if found := starting_trouble(moving.world, moving.candidate, revision):
        return found
    if moving.under_analysis and (found := restarted(moving.world, revision, moving.memory.restarts or 0)):
        return found
    if found := flapping(moving):
        return found
    if moving.under_analysis:
        return _as_trouble(moving.answer if moving.memory.step == ANALYSING else proven_worse(moving.answer))
    # Load shifts from one to the other now, so that latencies are not to be compared any more.
    promoted = moving.known and moving.memory.step in (EXPANDING, SWITCHING)
    return _as_trouble(fails_more(moving.world.observed.signals, moving.question(moving.last))) if promoted else None


def _as_trouble(answer: Answer | None) -> Trouble | None:
    if answer is None or answer.verdict != "worse" or answer.reason is None:
        return None
    return Trouble(reason=answer.reason, message=answer.message)


def _go_on(moving: Shift, at: Position) -> RolloutResult:
    world, target, step = moving.world, moving.target, at.step
    mine, theirs = _counts(moving, at)
    actions: tuple[Action, ...] = ()
    if mine:
        actions += children.run(
            world,
            target.revision,
            target.record,
            target.placement,
            f"revision {target.revision} is to replace {moving.stable.revision}",
        )
    actions += children.protect(world)
    actions += route_safely(world, moving.serving, _routed(moving, at), f"rollout step {step}")
    actions += children.resize(moving.candidate, mine, f"rollout step {step}")
    actions += children.resize(moving.stable, theirs, f"rollout step {step}")
    actions += remove_others(
        moving.serving, {moving.stable.revision, target.revision}, "superseded before it was proven"
    )
    analysing = step in (ANALYSING, WAITING)
    baseline = moving.memory.restarts if moving.under_analysis else restarts(world.observed, target.revision)
    watched = analysing or step in (EXPANDING, SWITCHING)
    return RolloutResult(
        memory=moving.remember(at, baseline if analysing else None),
        actions=actions,
        traffic=shares(moving, at, theirs),
        verdict=_verdict(moving, at),
        watch=watched,
        question=moving.question(at.number) if watched else None,
        requeue=PROGRESS_CHECK,
    )


def _counts(moving: Shift, at: Position) -> tuple[int, int]:
    """Replicas of the candidate and of the stable revision.

    With surge, old ones go when new ones are available. Without, one goes first, and a new one takes its room.
    """
    wanted, candidate, stable = moving.target.replicas, moving.candidate, moving.stable
    if not moving.canary:
        return wanted, wanted
    surge, split = moving.world.spec.rollout.max_surge, moving.splits[at.number]
    goal, least = (wanted, 0) if at.step in (EXPANDING, SWITCHING) else (split.candidate, split.stable)
    asked = candidate.spec_replicas if candidate else 0
    room = max(0, wanted + surge - max(stable.spec_replicas, stable.replicas))
    available = min(candidate.available, moving.serving.answering.get(candidate.revision, 0)) if candidate else 0
    mine = min(wanted, max(asked, min(goal, room)))
    exchanged = 1 if surge == 0 and goal > available else 0
    theirs = max(least, wanted - available - exchanged, 0)
    if surge == 0:
        theirs = min(theirs, max(0, wanted - max(asked, candidate.replicas if candidate else 0)))
    return mine, theirs


def _routed(moving: Shift, at: Position) -> str:
    if at.step == SWITCHING:
        return moving.target.revision
    if moving.lent and moving.target.revision in moving.serving.traffic:
        return children.EVERY
    if moving.exact:
        # The routes split the traffic; the Service follows when the stable revision is about to go.
        return children.EVERY if at.step == EXPANDING else moving.stable.revision
    # The stable revision gives up replicas for the first new ones, when there are to be several: they must serve, then.
    growing = moving.splits[at.number].candidate > 1 and moving.available(1)
    shared = at.step != STARTING or at.number > 0 or growing
    return children.EVERY if moving.canary and shared else moving.stable.revision


def _verdict(moving: Shift, at: Position) -> Verdict:
    revision, step = moving.target.revision, at.step
    if step == STARTING:
        return starting(moving.world, moving.target, moving.candidate, moving.splits[at.number].candidate)
    if step == ANALYSING:
        return _analysing(moving, at)
    passed = told(moving.remember(at).analysis)
    if step == WAITING:
        return bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.WAITING_FOR_PROMOTION,
            f"Revision {revision} passed its analysis; promote it with {_promote(moving)}.{passed}",
        )
    if step == EXPANDING:
        verdict = starting(moving.world, moving.target, moving.candidate, moving.target.replicas)
        return replace(verdict, message=f"{verdict.message}{passed}")
    return bad(
        Condition.ROLLOUT_COMPLETE,
        Reason.DRAINING,
        f"Traffic moves to revision {revision}; revision {moving.stable.revision} stops next.{passed}",
    )


def _promote(moving: Shift) -> str:
    return f"kubectl annotate om {moving.world.obj.name} {labels.PROMOTE}={moving.target.revision}"


def _analysing(moving: Shift, at: Position) -> Verdict:
    revision, split = moving.target.revision, moving.splits[at.number]
    how = "shares the traffic" if moving.canary else "is ready beside the old one, without live traffic,"
    if split.weight is not None:
        how += f" (step {at.number + 1} of {len(moving.splits)}, {_share(moving, split)})"
    same = moving.under_analysis and at.number == moving.last
    found = moving.answer.message if same else "no request has been measured yet"
    message = f"Revision {revision} {how} and is compared with revision {moving.stable.revision}: {found}."
    if same and moving.answer.starved:
        message += f" Promote it unmeasured with {_promote(moving)}."
        return bad(Condition.ROLLOUT_COMPLETE, Reason.WAITING_FOR_SAMPLES, message)
    return bad(Condition.ROLLOUT_COMPLETE, Reason.ANALYSING, message)


def _share(moving: Shift, split: Split) -> str:
    if moving.exact:
        return f"{split.weight} % of what comes through the Gateway"
    if split.share == split.weight:
        return f"{split.share} % of it"
    near = f"the nearest to {split.weight} % that {count(moving.target.replicas, 'replica')} allow"
    return f"{split.share} % of it, {near}"


def _roll_back(moving: Shift, trouble: Trouble) -> RolloutResult:
    now, began = moving.world.now, parse_timestamp(moving.memory.step_start_time)
    when = f" This was {(now - began).total_seconds():.0f} s into step {moving.memory.step}." if began else ""
    result = _stay_back(
        moving,
        RolledBackStatus(
            revision=moving.target.revision,
            reason=trouble.reason,
            message=f"{trouble.message}{when}",
            time=timestamp(now),
            retry=moving.world.retry,
        ),
    )
    if not moving.under_analysis:
        return result
    return replace(result, memory=result.memory.model_copy(update={"analysis": figures(moving.answer)}))


def _stay_back(moving: Shift, given_up: RolledBackStatus) -> RolloutResult:
    stable = moving.stable
    why = f"revision {given_up.revision} was rolled back: {given_up.reason}"
    actions, traffic, meanwhile = _retreat(moving, why, wrong=given_up.reason in WRONG)
    return RolloutResult(
        memory=RolloutStatus(
            stable=stable.revision, step="RolledBack", analysis=moving.memory.analysis, rolled_back=given_up
        ),
        actions=actions,
        traffic=traffic,
        requeue=PROGRESS_CHECK if meanwhile else None,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.ROLLED_BACK,
            f"Revision {given_up.revision} was given up ({given_up.reason}): {given_up.message} Revision "
            f"{stable.revision} goes on serving.{meanwhile} {RETRY_HINT}",
        ),
    )


def _retreat(moving: Shift, why: str, *, wrong: bool = False) -> tuple[tuple[Action, ...], Weights, str]:
    """Actions, shares, and what is to be said of a candidate that cannot go at once."""
    world, serving, stable, half = moving.world, moving.serving, moving.stable, moving.candidate
    wanted = moving.target.replicas
    shared = half and shares_traffic(world, serving, half)
    found = give_share_back(world, serving, stable, half, wanted, why, wrong=wrong) if half and shared else None
    if found:
        return *found, f" Until it has all its replicas, {moving.target.revision} keeps a part of the traffic."
    return back_to(world, serving, stable, wanted, why), {stable.revision: WHOLE}, ""


def _recreate(moving: Shift) -> RolloutResult:
    """The old replicas free the device before the new ones ask for it; the gap is what Recreate means."""
    if moving.candidate and not starting_trouble(moving.world, moving.stable, moving.stable.revision):
        return _turn_back(moving)
    going = tuple(
        children.remove(other, "strategy Recreate stops the old first")
        for other in moving.serving.alive
        if other.revision != moving.target.revision
    )
    return RolloutResult(
        memory=RolloutStatus(stable=moving.stable.revision, candidate=moving.target.revision, step="Draining"),
        actions=going,
        requeue=PROGRESS_CHECK,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"Strategy Recreate: {count(moving.stable.replicas, 'replica')} of revision {moving.stable.revision} stop "
            f"before revision {moving.target.revision} starts.",
        ),
    )


def _turn_back(moving: Shift) -> RolloutResult:
    """Recreate was set while another strategy's candidate runs: it goes first, and starts anew when the old ones have
    stopped. Else the stable revision, shrunk for it, would be stopped for one that nothing has shown to be good."""
    revision, stable = moving.target.revision, moving.stable.revision
    actions, traffic, meanwhile = _retreat(moving, "strategy Recreate runs one revision at a time")
    return RolloutResult(
        memory=RolloutStatus(stable=stable, candidate=revision, step="Draining"),
        actions=actions,
        traffic=traffic,
        requeue=PROGRESS_CHECK,
        verdict=bad(
            Condition.ROLLOUT_COMPLETE,
            Reason.DRAINING,
            f"Strategy Recreate: revision {revision}, whose rollout had begun, stops and revision {stable} takes all "
            f"traffic before they change places.{meanwhile}",
        ),
    )

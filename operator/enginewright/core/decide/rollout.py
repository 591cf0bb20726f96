"""What the parts of a rollout share: target, result, and moves that never leave traffic without a replica."""

from __future__ import annotations

from dataclasses import dataclass, field

from enginewright.core.comparison import Question
from enginewright.core.conditions import Verdict, bad
from enginewright.core.context import PassContext, count
from enginewright.core.decide import children
from enginewright.core.decide.analysis import trouble
from enginewright.core.decide.serving import Serving
from enginewright.core.observed import DeploymentView, EngineRecord
from enginewright.core.placement import Placement
from enginewright.core.plan import Action
from enginewright.core.reasons import Condition, Reason
from enginewright.core.routing import Weights
from enginewright.core.status import RolledBackStatus, RolloutStatus

PROGRESS_CHECK = 15.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """The revision that the spec asks for, with all that its Deployment is made of."""

    revision: str
    record: EngineRecord
    placement: Placement
    replicas: int


@dataclass(frozen=True, kw_only=True)
class RolloutResult:
    """``watch`` asks for the replicas to be scraped: ``question`` is what is to be found out. ``traffic`` is how a
    Gateway is to split what comes through it, if there is one; empty leaves it as it is."""

    verdict: Verdict
    memory: RolloutStatus
    actions: tuple[Action, ...] = ()
    traffic: Weights = field(default_factory=dict)
    requeue: float | None = None
    watch: bool = False
    question: Question | None = None


def route_safely(ctx: PassContext, serving: Serving, revision: str, why: str) -> tuple[Action, ...]:
    """The Service selects ``revision``, or all of them while only others are ready: some answer beats none."""
    wanted = serving.deployment(revision)
    others_ready = any(serving.answers(other) for other in serving.alive if other.revision != revision)
    blind = revision != children.EVERY and others_ready and not serving.answers(wanted)
    return children.route(ctx, children.EVERY if blind else revision, why)


def remove_others(serving: Serving, kept: set[str], why: str) -> tuple[Action, ...]:
    """Removes all revisions but ``kept``, sparing those that are ready while none of ``kept`` is."""
    safe = any(serving.answers(deployment) for deployment in serving.alive if deployment.revision in kept)
    return tuple(
        children.remove(other, why)
        for other in serving.alive
        if other.revision not in kept and (safe or not serving.answers(other))
    )


def back_to(ctx: PassContext, serving: Serving, stable: DeploymentView, wanted: int, why: str) -> tuple[Action, ...]:
    """Only ``stable``, at full strength; where no replica is wanted, nobody is spared."""
    routed = route_safely(ctx, serving, stable.revision, why)
    if not wanted:
        gone = tuple(children.remove(other, why) for other in serving.alive if other.revision != stable.revision)
        return routed + children.resize(stable, 0, why) + gone
    if ctx.spec.rollout.max_surge == 0:
        return routed + _give_back(ctx, serving, stable, wanted, why)
    return routed + children.resize(stable, wanted, why) + remove_others(serving, {stable.revision}, why)


def _give_back(
    ctx: PassContext, serving: Serving, stable: DeploymentView, wanted: int, why: str
) -> tuple[Action, ...]:
    """Without capacity to spare others make room before ``stable`` grows: one replica while it has none that answers,
    then all."""
    others = [other for other in ctx.observed.deployments if other.revision != stable.revision]
    taken = sum(max(other.replicas, 0 if other.deleting else other.spec_replicas) for other in others)
    grown = children.resize(stable, min(wanted, max(stable.spec_replicas, wanted - taken)), why)
    if serving.answers(stable):
        return remove_others(serving, {stable.revision}, why) + grown
    shrunk: tuple[Action, ...] = ()
    for other in serving.alive:
        if other.revision != stable.revision and other.spec_replicas:
            shrunk += children.resize(other, min(other.spec_replicas, wanted - 1), why)
    return shrunk + remove_others(serving, {stable.revision}, why) + grown


def put_aside(ctx: PassContext, memory: RolloutStatus, revision: str) -> RolledBackStatus | None:
    """Why ``revision`` was given up, if it was and nobody has asked for another try."""
    found = memory.rolled_back
    return found if found and found.revision == revision and found.retry in (None, ctx.retry) else None


def starting(ctx: PassContext, target: Target, deployed: DeploymentView | None, wanted: int) -> Verdict:
    """How far a revision is that is getting ready, or why it does not."""
    if found := trouble(ctx, deployed, target.revision, target.placement):
        return bad(Condition.ROLLOUT_COMPLETE, found.reason, found.message)
    ready = deployed.available if deployed else 0
    return bad(
        Condition.ROLLOUT_COMPLETE,
        Reason.PROGRESSING,
        f"Revision {target.revision}: {ready} of {count(wanted, 'replica')} ready.",
    )


def with_source(known: RolloutStatus | None, memory: RolloutStatus, digest: str | None) -> RolloutStatus:
    """``memory`` with the digest of what the stable revision was built from: that of the spec's source once its rollout
    is complete, else as ``known`` as long as it is of the same revision."""
    source = known.stable_source if known and known.stable == memory.stable else None
    if memory.stable and memory.step == "Complete":
        source = digest
    return memory.model_copy(update={"stable_source": source})

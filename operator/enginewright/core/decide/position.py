"""Where a rollout stands: as far as remembered, and on from there as far as the world allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.comparison import Answer, Question, compare
from enginewright.core.conditions import parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.evidence import figures, question
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.mirror import mirrored
from enginewright.core.decide.rollout import Target
from enginewright.core.decide.serving import Serving, pods_of
from enginewright.core.decide.steps import Split, splits
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Reason
from enginewright.core.status import AnalysisStatus, RolloutStatus

STARTING, ANALYSING, WAITING, EXPANDING, SWITCHING, DRAINING = (
    "Starting",
    "Analysing",
    "WaitingForPromotion",
    "Expanding",
    "Switching",
    "Draining",
)
# A revision whose replicas were ready and then not so often is given up.
FALLS = 3


@dataclass(frozen=True, kw_only=True)
class RolloutState:
    """A rollout in the middle: ``candidate`` is the target's Deployment, None before it is there."""

    ctx: PassContext
    target: Target
    stable: DeploymentView
    serving: Serving
    memory: RolloutStatus
    candidate: DeploymentView | None

    @property
    def canary(self) -> bool:
        return self.ctx.spec.rollout.strategy == "Canary"

    @property
    def exact(self) -> bool:
        """Whether routes split the traffic, in shares that need no replicas to match them."""
        return self.canary and self.ctx.spec.rollout.gateway is not None

    @property
    def lent(self) -> bool:
        """Whether another strategy was set in the middle of a canary, and the stable revision is not yet back at full
        strength: the candidate may not lose a share of the traffic that it has."""
        return not self.canary and not self.serving.full(self.stable, self.target.replicas)

    @property
    def known(self) -> bool:
        """Whether what is remembered is of this rollout."""
        return self.memory.candidate == self.target.revision

    @property
    def under_analysis(self) -> bool:
        """Whether the last pass left it in its analysis."""
        return self.known and self.memory.step in (ANALYSING, WAITING)

    @property
    def fallen_back(self) -> bool:
        """Whether all traffic had been sent to it, and relies on another revision again. Where that one does not answer
        either, something else is to blame."""
        switched = self.known and self.memory.step in (SWITCHING, DRAINING)
        return switched and not self.serving.answers(self.candidate) and self.serving.answers(self.stable)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        return splits(self.ctx.spec.rollout, self.target.replicas)

    @property
    def last(self) -> int:
        """Of the steps that the candidate has passed, the one that it was analysed in, or is in now."""
        return min(self.memory.weight_step or 0, len(self.splits) - 1) if self.known else 0

    def question(self, number: int) -> Question:
        return question(self.ctx, self.target.revision, self.stable.revision, number, self.splits[number])

    @cached_property
    def answer(self) -> Answer:
        asked = self.question(self.last)
        live = mirrored(self.ctx, self.stable.revision, self.target.revision) if asked.mirror else None
        return compare(self.ctx.observed.signals, asked, live)

    @cached_property
    def falls(self) -> int:
        """Falls out of an analysis or after a switch, one that is seen now included. A replica that went away
        altogether is no fall: it was evicted or its node was drained."""
        before = (self.memory.falls or 0) if self.known else 0
        if not (self.under_analysis or self.fallen_back) or self.available(self.splits[self.last].candidate):
            return before
        began = parse_timestamp(self.memory.step_start_time)
        pods = pods_of(self.ctx.observed, self.target.revision)
        fallen = any(not pod.ready and pod.created and began and pod.created < began for pod in pods)
        return before + fallen

    def available(self, replicas: int) -> bool:
        return self.serving.full(self.candidate, replicas)

    def remember(self, position: Position, restarted: int | None = None) -> RolloutStatus:
        """The clock of a step starts when the step does."""
        same = self.known and (self.memory.step, self.last) == (position.step, position.number)
        return RolloutStatus(
            stable=self.stable.revision,
            candidate=self.target.revision,
            step=position.step,
            step_start_time=self.memory.step_start_time if same else timestamp(self.ctx.now),
            weight_step=position.number or None,
            restarts=restarted,
            falls=self.falls or None,
            analysis=self._figures(position),
            rolled_back=self.memory.rolled_back,
        )

    def _figures(self, position: Position) -> AnalysisStatus | None:
        """Of the analysis while it goes on, then what it came to."""
        if position.step == ANALYSING and position.number == self.last:
            return figures(self.answer)
        if self.known and self.memory.step == ANALYSING and position.step != STARTING:
            return figures(self.answer)
        return self.memory.analysis if self.known and position.step not in (STARTING, ANALYSING) else None


@dataclass(frozen=True)
class Position:
    """``number`` is the index of the split that holds, or that was analysed last."""

    step: str
    number: int


def position_of(moving: RolloutState) -> Position:
    """Where the rollout stands now: as far as remembered, and on from there as far as the world allows."""
    number = moving.last
    step = (moving.memory.step if moving.known else None) or STARTING
    if step in (EXPANDING, SWITCHING) and not moving.fallen_back:
        step = EXPANDING
    elif step not in (ANALYSING, WAITING) or not moving.available(moving.splits[number].candidate):
        # Replicas that went away are replaced; then they are analysed anew.
        step = STARTING
    if step == ANALYSING and moving.under_analysis and analysed(moving):
        step, number = (STARTING, number + 1) if number + 1 < len(moving.splits) else (WAITING, number)
    while step == STARTING and moving.available(moving.splits[number].candidate):
        if moving.splits[number].seconds:
            step = ANALYSING
        elif number + 1 < len(moving.splits):
            number += 1
        else:
            step = WAITING
    if step == WAITING and _promoted(moving):
        step = EXPANDING
    if step == EXPANDING and moving.available(moving.target.replicas):
        step = SWITCHING
    return Position(step, number)


def analysed(moving: RolloutState) -> bool:
    """Time alone proves nothing: without samples somebody has to say so."""
    return moving.answer.verdict == "good" or (moving.answer.starved and _wished(moving))


def _promoted(moving: RolloutState) -> bool:
    return moving.ctx.spec.rollout.auto_promote or _wished(moving)


def _wished(moving: RolloutState) -> bool:
    """By its name alone: an annotation that stays must not promote the next revision of the same engine."""
    return moving.target.revision in named(moving.ctx)


def named(ctx: PassContext) -> tuple[str, str]:
    """The revision that is to be promoted and the one to go back to, as somebody wrote them; each may be empty. Who
    asks to go back has approved it."""
    promote, back = (ctx.obj.annotations.get(key, "").strip() for key in (labels.PROMOTE, labels.ROLLBACK_TO))
    return promote, back


def promote_with(ctx: PassContext, revision: str) -> str:
    return kubectl(f"annotate om {ctx.obj.name} {labels.PROMOTE}={revision}", ctx.obj.namespace)


def flapping(moving: RolloutState) -> Trouble | None:
    """Replicas that are ready in turns, without a restart: no analysis of them ever ends, nor does a rollout of them
    that each switch breaks."""
    if moving.falls < FALLS:
        return None
    look = kubectl(f"describe pod -l {labels.REVISION}={moving.target.revision}", moving.ctx.obj.namespace)
    return Trouble(
        reason=Reason.REPLICAS_NOT_READY,
        message=f"Replicas stopped being ready {moving.falls} times while they were analysed or after all traffic had "
        f"moved to them: {look} says what their readiness probe found.",
    )

"""Where a rollout stands: as far as remembered, and on from there as far as the world allows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from enginewright.core import labels
from enginewright.core.commands import kubectl
from enginewright.core.comparison import Answer, Question, compare
from enginewright.core.comparison.mirrored import Mirrored
from enginewright.core.conditions import parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.strategy.analysis import figures, mirrored, own_answers, question
from enginewright.core.decide.strategy.required import Required, required
from enginewright.core.decide.strategy.splits import Split, splits
from enginewright.core.decide.target import Target
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Reason
from enginewright.core.serving import Serving, pods_of
from enginewright.core.status import AnalysisStatus, RolloutStatus
from enginewright.core.step import Step

# A revision whose replicas were ready and then not so often is given up.
READINESS_LOSSES = 3


@dataclass(frozen=True, kw_only=True)
class RolloutState:
    """A rollout in the middle: from ``stable``, which traffic relies on, to the target, with ``wanted`` replicas."""

    target: Target
    stable: DeploymentView
    wanted: int

    @cached_property
    def ctx(self) -> PassContext:
        return self.target.ctx

    @cached_property
    def serving(self) -> Serving:
        return self.ctx.serving

    @cached_property
    def memory(self) -> RolloutStatus:
        return self.ctx.rollout

    @cached_property
    def candidate(self) -> DeploymentView | None:
        """The target's Deployment, None before it is there."""
        return self.serving.deployment(self.target.revision)

    @cached_property
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
        return not self.canary and not self.serving.full(self.stable, self.wanted)

    @cached_property
    def known(self) -> bool:
        """Whether what is remembered is of this rollout."""
        return self.memory.candidate == self.target.revision

    @cached_property
    def under_analysis(self) -> bool:
        """Whether the last pass left it in its analysis."""
        return self.known and self.memory.step in (Step.ANALYSING, Step.WAITING)

    @property
    def fallen_back(self) -> bool:
        """Whether all traffic had been sent to it, and relies on another revision again. Where that one does not answer
        either, something else is to blame."""
        switched = self.known and self.memory.step in (Step.SWITCHING, Step.DRAINING)
        return switched and not self.serving.answers(self.candidate) and self.serving.answers(self.stable)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        return splits(self.ctx.spec.rollout, self.wanted)

    @cached_property
    def last(self) -> int:
        """Of the steps that the candidate has passed, the one that it was analysed in, or is in now."""
        return min(self.memory.weight_step or 0, len(self.splits) - 1) if self.known else 0

    def question(self, number: int) -> Question:
        return question(self.ctx, self.target.revision, self.stable.revision, number, self.splits[number],
                        self._required(number))

    def _required(self, number: int) -> Required | None:
        return required(self.target, awaited=self.canary and not any(one.seconds for one in self.splits[number + 1:]))

    @cached_property
    def answer(self) -> Answer:
        asked = self.question(self.last)
        return compare(self.ctx.observed.signals, asked, self._agreement(asked))

    def _agreement(self, asked: Question) -> Mirrored | None:
        if asked.generates:
            return own_answers(self.ctx, self.target.revision)
        return mirrored(self.ctx, self.stable.revision, self.target.revision) if asked.mirror else None

    @cached_property
    def readiness_losses(self) -> int:
        """Of replicas in an analysis or after a switch, one that is seen now included. A replica that went away
        altogether has lost none: it was evicted or its node was drained."""
        before = (self.memory.readiness_losses or 0) if self.known else 0
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
            readiness_losses=self.readiness_losses or None,
            failed_switches=self.memory.failed_switches if self.known else None,
            analysis=self._figures(position),
            rolled_back=self.memory.rolled_back,
        )

    def _figures(self, position: Position) -> AnalysisStatus | None:
        """Of the analysis while it goes on, then what it came to."""
        if position.step == Step.ANALYSING and position.number == self.last:
            return figures(self.answer)
        if self.known and self.memory.step == Step.ANALYSING and position.step != Step.STARTING:
            return figures(self.answer)
        return self.memory.analysis if self.known and position.step not in (Step.STARTING, Step.ANALYSING) else None


@dataclass(frozen=True)
class Position:
    """``number`` is the index of the split that holds, or that was analysed last."""

    step: Step
    number: int


def position_of(state: RolloutState) -> Position:
    """Where the rollout stands now: as far as remembered, and on from there as far as the world allows."""
    number = state.last
    step = _remembered(state)
    if step in (Step.EXPANDING, Step.SWITCHING) and not state.fallen_back:
        step = Step.EXPANDING
    elif step not in (Step.ANALYSING, Step.WAITING) or not state.available(state.splits[number].candidate):
        # Replicas that went away are replaced; then they are analysed again.
        step = Step.STARTING
    if step == Step.ANALYSING and state.under_analysis and analysed(state):
        step, number = (Step.STARTING, number + 1) if number + 1 < len(state.splits) else (Step.WAITING, number)
    while step == Step.STARTING and state.available(state.splits[number].candidate):
        if state.splits[number].seconds:
            step = Step.ANALYSING
        elif number + 1 < len(state.splits):
            number += 1
        else:
            step = Step.WAITING
    if step == Step.WAITING and _promoted(state):
        step = Step.EXPANDING
    if step == Step.EXPANDING and state.available(state.wanted):
        step = Step.SWITCHING
    return Position(step, number)


def _remembered(state: RolloutState) -> Step:
    """An earlier release, or a hand, may have left a step that is none."""
    known = state.known and state.memory.step in set(Step)
    return Step(state.memory.step) if known and state.memory.step else Step.STARTING


def analysed(state: RolloutState) -> bool:
    """Time alone proves nothing: without samples a user has to say so."""
    return state.answer.verdict == "good" or (state.answer.starved and _wished(state))


def _promoted(state: RolloutState) -> bool:
    return state.ctx.spec.rollout.auto_promote or _wished(state)


def _wished(state: RolloutState) -> bool:
    """By its name alone: an annotation that stays must not promote the next revision of the same engine. A user who
    asks to go back has approved it."""
    return state.target.revision in (state.ctx.wishes.promote, state.ctx.wishes.back)


def flapping(state: RolloutState) -> Trouble | None:
    """Replicas that are ready in turns, without a restart: no analysis of them ever ends, nor does a rollout of them
    that each switch breaks."""
    if state.readiness_losses < READINESS_LOSSES:
        return None
    look = kubectl(f"describe pod -l {labels.REVISION}={state.target.revision}", state.ctx.obj.namespace)
    return Trouble(
        reason=Reason.REPLICAS_NOT_READY,
        message=f"Replicas stopped being ready {state.readiness_losses} times while they were analysed or after all "
                f"traffic had moved to them: {look} says what their readiness probe found.")

"""After a BlueGreen switch: back to the old revision from a new one that fails more of the live traffic than it did.

What clients send may have changed just when the traffic moved. So the first time the old revision gets the traffic
back, and the new one is analysed again, beside what the old one now makes of it. A change that lasts hits both then;
the second time, the new revision is given up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

from enginewright.core.comparison import Question, compare
from enginewright.core.conditions import no, parse_timestamp, timestamp
from enginewright.core.decide.desired import PROGRESS_CHECK, Desired
from enginewright.core.decide.jobs import Trouble
from enginewright.core.decide.strategy.back import roll_back, stay_back
from enginewright.core.decide.strategy.state import RolloutState
from enginewright.core.decide.target import Target
from enginewright.core.reasons import Reason
from enginewright.core.routing import WHOLE
from enginewright.core.status import RolloutStatus
from enginewright.core.step import Step

MOST_FAILED: Final = 2


@dataclass(frozen=True)
class Switched:
    """``state`` is that of a rollout from the revision which served before; ``since`` is when the Service was switched,
    None once the old revision need not stay for that."""

    state: RolloutState
    since: str | None

    @classmethod
    def of(cls, target: Target, wanted: int, memory: RolloutStatus, since: str | None) -> Self | None:
        """None where there is no old revision to go back to, or none that could serve."""
        ctx = target.ctx
        old = ctx.serving.deployment(memory.stable or "")
        if ctx.spec.rollout.strategy != "BlueGreen" or not wanted or old is None or old.revision == target.revision:
            return None
        return cls(RolloutState(target=target, wanted=wanted, stable=old), since) if ctx.serving.answers(old) else None

    @cached_property
    def question(self) -> Question | None:
        """What is asked while the old revision stays, of the analysis that led to the switch."""
        began, ctx = parse_timestamp(self.since), self.state.ctx
        if began is None:
            return None
        moved = ctx.observed.monotonic - (ctx.now - began).total_seconds()
        return replace(self.state.question(self.state.last), switched=moved)

    def goes_back(self) -> Desired | None:
        """None unless the new revision fails more, or what an earlier pass decided is yet to be done: the Service still
        selects a revision that was given up, or that begins again."""
        state, memory = self.state, self.state.memory
        if given_up := state.target.rejection(state.target.revision):
            return stay_back(state, given_up)
        failed = (memory.failed_switches or 0) if state.known else 0
        if failed and memory.step == Step.STARTING:
            return self._begin_again(failed, "it failed more inferences than that one")
        found = compare(state.ctx.observed.signals, self.question) if self.question else None
        if found is None or found.verdict != "worse":
            return None
        if failed + 1 >= MOST_FAILED:
            return roll_back(state, Trouble(reason=Reason.FAILED_INFERENCES, message=found.message))
        return self._begin_again(failed + 1, found.message.rstrip("."))

    def _begin_again(self, failed: int, why: str) -> Desired:
        state = self.state
        new, old = state.target.revision, state.stable.revision
        memory = RolloutStatus(stable=old, candidate=new, step=Step.STARTING, step_start_time=timestamp(state.ctx.now),
                               failed_switches=failed, rolled_back=state.memory.rolled_back)
        return Desired(
            progress=no(Reason.FAILED_INFERENCES, (
                f"Traffic goes back from revision {new} to {old}: {why}. Requests may have changed meanwhile, so "
                f"{new} is analysed once more; if it happens again, it is given up.")),
            memory=memory, replicas={new: state.wanted, old: state.wanted}, protected=True, selected=old,
            weights={old: WHOLE}, kept=frozenset({new, old}), why=f"revision {new} fails more than {old} did",
            requeue=PROGRESS_CHECK)

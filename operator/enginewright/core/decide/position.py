"""Where a rollout stands: as far as remembered, and on from there as far as the world allows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from enginewright.core import labels
from enginewright.core.conditions import parse_timestamp, timestamp
from enginewright.core.decide.rollout import Target
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.world import World
from enginewright.core.observed import DeploymentView
from enginewright.core.status import RolloutStatus

STARTING, ANALYSING, WAITING, EXPANDING, SWITCHING = (
    "Starting",
    "Analysing",
    "WaitingForPromotion",
    "Expanding",
    "Switching",
)


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A rollout in the middle: ``candidate`` is the target's Deployment, None before it is there."""

    world: World
    target: Target
    stable: DeploymentView
    serving: Serving
    memory: RolloutStatus
    candidate: DeploymentView | None

    @property
    def canary(self) -> bool:
        return self.world.spec.rollout.strategy == "Canary"

    @property
    def under_analysis(self) -> bool:
        """Whether the last pass left it in its analysis."""
        return self.memory.candidate == self.target.revision and self.memory.step in (ANALYSING, WAITING)

    @property
    def first(self) -> int:
        """Replicas of the candidate while it is analysed."""
        return min(1, self.target.replicas) if self.canary else self.target.replicas

    def available(self, replicas: int) -> bool:
        return self.serving.full(self.candidate, replicas)

    def remember(self, step: str, restarted: int | None = None) -> RolloutStatus:
        """The clock of a step starts when the step does."""
        same = self.memory.candidate == self.target.revision and self.memory.step == step
        return RolloutStatus(
            stable=self.stable.revision,
            candidate=self.target.revision,
            step=step,
            step_start_time=self.memory.step_start_time if same else timestamp(self.world.now),
            restarts=restarted,
            rolled_back=self.memory.rolled_back,
        )


def step_of(moving: Shift) -> str:
    """Where the rollout stands now: as far as remembered, and on from there as far as the world allows."""
    known = moving.memory.candidate == moving.target.revision
    step = (moving.memory.step if known else None) or STARTING
    if step in (EXPANDING, SWITCHING):
        step = EXPANDING
    elif step not in (ANALYSING, WAITING) or not moving.available(moving.first):
        # Replicas that went away are replaced; then they are analysed anew.
        step = STARTING
    if step == STARTING and moving.available(moving.first):
        step = ANALYSING
    if step == ANALYSING and _analysed(moving):
        step = WAITING
    if step == WAITING and _promoted(moving):
        step = EXPANDING
    if step == EXPANDING and moving.available(moving.target.replicas):
        step = SWITCHING
    return step


def _analysed(moving: Shift) -> bool:
    return analysis_left(moving) <= 0


def analysis_left(moving: Shift) -> float:
    seconds = moving.world.spec.rollout.analysis_seconds
    known = moving.memory.candidate == moving.target.revision and moving.memory.step == ANALYSING
    began = parse_timestamp(moving.memory.step_start_time) if known else None
    if began is None:
        return float(seconds)
    return (began + timedelta(seconds=seconds) - moving.world.now).total_seconds()


def _promoted(moving: Shift) -> bool:
    """The annotation names the revision, or the engine's fingerprint or enough of it to be unmistakable."""
    if moving.world.spec.rollout.auto_promote:
        return True
    wish = moving.world.obj.annotations.get(labels.PROMOTE, "")
    fingerprint = moving.target.record.fingerprint
    return wish == moving.target.revision or (len(wish) >= 8 and fingerprint.startswith(wish))

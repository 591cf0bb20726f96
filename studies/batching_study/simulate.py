"""One Triton replica under traffic whose clients wait for answers; its batcher may be changed under way.

The batcher is the one of ``enginewright simulate`` (``enginewright_simulation/server.py``), which a test holds this one
against; that one takes arrivals that are known beforehand, and has one setting for its life.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from batching_study.traffic import Phase
from enginewright.core.batching import SafeSet, Setting
from enginewright.core.batching.safe import MICROSECONDS
from enginewright.core.observed import Spent

# Times of one batch vary by so much (the standard deviation of their logarithm).
JITTER = 0.05
# While a model is loaded beside it, everything takes so many times as long. Measured: 1.0 to 1.5.
LOADING = 1.5
# Replicas are scraped so often, seconds.
TICK = 1.0
ROUNDING = 1e-9
Follow = Callable[[float, Spent], Setting]


@dataclass
class Result:
    """``latencies`` in seconds by phase, of requests that came in it; ``changes`` are times and settings."""

    latencies: list[list[float]]
    changes: list[tuple[float, Setting]] = field(default_factory=list)


@dataclass
class Replica:
    """``instances`` of the model, as ``safe.curve`` says. Its clock is that of the events."""

    safe: SafeSet
    setting: Setting
    instances: int = 1
    jitter: float = JITTER
    seed: int = 0

    def __post_init__(self) -> None:
        self.queue: deque[tuple[float, int]] = deque()
        self.idle = self.instances
        self.spent = Spent()
        self.loading_until = 0.0
        self._draw = random.Random(self.seed)  # noqa: S311 - not a secret

    def take(self, now: float) -> list[tuple[float, int]] | float | None:
        """A batch that starts now; or when to look again; None where nothing can start before something happens."""
        if not (self.queue and self.idle):
            return None
        here, most = len(self.queue), self.safe.max_batch
        overdue = self.queue[0][0] + self.setting.delay_us / MICROSECONDS
        sizes = self.setting.preferred or (most,)
        best = max((size for size in sizes if size <= here), default=0)
        if now >= overdue - ROUNDING:
            best = min(here, most) if self.setting.delay_us else best or min(here, most)
        if not best:
            return overdue
        self.idle -= 1
        return [self.queue.popleft() for _ in range(best)]

    def compute(self, batch: Sequence[tuple[float, int]], now: float) -> float:
        """Seconds of this batch, which starts now."""
        seconds = self.safe.seconds(len(batch)) * self._draw.lognormvariate(0.0, self.jitter)
        return seconds * (LOADING if now < self.loading_until else 1.0)

    def answered(self, batch: Sequence[tuple[float, int]], start: float, now: float) -> None:
        self.idle += 1
        waited = sum(start - came for came, _ in batch)
        self.spent += Spent(0.0, len(batch), waited, len(batch) * (now - start), 1)


def play(phases: Sequence[Phase], replica: Replica, follow: Follow | None = None, *, seed: int = 0) -> Result:
    """``follow`` gets the time and what was spent in the second before, and returns the setting to use; it is
    loaded beside the old one, and serves once that is done."""
    world = World(phases, replica, follow, seed)
    while world.events:
        world.step()
    return world.result


class World:
    """The events to come, and what each leads to. A batch that can start does so before the next event."""

    def __init__(self, phases: Sequence[Phase], replica: Replica, follow: Follow | None, seed: int) -> None:
        self.events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.result = Result(latencies=[[] for _ in phases])
        self._phases, self._replica, self._follow = phases, replica, follow
        self._numbers = itertools.count()
        self._clients = random.Random(seed)  # noqa: S311 - not a secret
        self._ends = list(itertools.accumulate(phase.seconds for phase in phases))
        self._before, self._wanted, self._now = Spent(), replica.setting, 0.0
        for number, phase in enumerate(phases):
            start = self._ends[number] - phase.seconds
            offsets = ((0.1 * phase.think * client for client in range(phase.clients)) if phase.clients else
                       itertools.takewhile(lambda offset, phase=phase: offset < phase.seconds,  # type: ignore[misc]
                                           phase.arrivals(1000 * seed + number)))
            for offset in offsets:
                self._push(start + offset, self._came, number)
        if follow is not None:
            self._push(TICK, self._tick)

    def step(self) -> None:
        self._now, _, what, about = heapq.heappop(self.events)
        what(*about)
        while isinstance(found := self._replica.take(self._now), list):
            self._push(self._now + self._replica.compute(found, self._now), self._done, found, self._now)
        if found is not None:
            self._push(found, self._look)

    def _push(self, time: float, what: Callable[..., None], *about: object) -> None:
        heapq.heappush(self.events, (time, next(self._numbers), what, about))

    def _came(self, phase: int) -> None:
        if self._now < self._ends[phase]:
            self._replica.queue.append((self._now, phase))

    def _done(self, batch: Sequence[tuple[float, int]], start: float) -> None:
        self._replica.answered(batch, start, self._now)
        for came, number in batch:
            self.result.latencies[number].append(self._now - came)
            if self._phases[number].clients:
                self._push(self._now + self._phases[number].pause(self._clients), self._came, number)

    def _tick(self) -> None:
        assert self._follow is not None
        grown = self._replica.spent.since(self._before) or Spent()
        self._before = self._replica.spent
        setting = self._follow(self._now, grown + Spent(seconds=TICK))
        if setting != self._wanted:
            self._wanted = setting
            self.result.changes.append((self._now, setting))
            self._replica.loading_until = self._now + self._replica.safe.load_seconds
            self._push(self._replica.loading_until, self._loaded, setting)
        if self._now + TICK < self._ends[-1]:
            self._push(self._now + TICK, self._tick)

    def _loaded(self, setting: Setting) -> None:
        self._replica.setting = setting

    def _look(self) -> None:
        """An overdue request's batch starts."""

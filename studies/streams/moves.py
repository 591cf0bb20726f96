"""What is done to replicas while streams run, again and again until there were enough of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from rollouts.drill import Drill

CANDIDATE_SECONDS = 600


@dataclass
class Moves(Drill):
    def withdraw(self) -> None:
        """A revision that has streams already goes again, as the user's spec goes back meanwhile."""
        before = self.corner.traffic_revisions()
        self.summary.rollbacks += 1
        self._offer("equal")
        self._until(lambda: self.corner.traffic_revisions() > before, CANDIDATE_SECONDS, "the candidate to get traffic")
        self.return_to_good()

    def round(self) -> tuple[Callable[[], None], ...]:
        return (self.promote, self.drain, self.withdraw, lambda: self.scale(self.replicas + 1),
                lambda: self.scale(self.replicas - 1), lambda: self.kill(abruptly=False))

    def until(self, enough: Callable[[], bool], *, latest: float) -> None:
        """Each move once, and on from the first until there is ``enough``; none begins later than ``latest`` of the
        monotonic clock."""
        for number, move in enumerate(itertools.cycle(self.round())):
            if number >= len(self.round()) and enough():
                return
            if time.monotonic() > latest:
                self._surprise(f"the time was over after {number} moves")
                return
            began = time.monotonic()
            move()
            self.console.print(f"    {time.monotonic() - began:.0f} s")

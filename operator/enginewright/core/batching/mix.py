"""What the traffic is like, as far as Triton's counters tell, and the setting that would suit it.

A queue delay is worth its wait only where requests come together: from clients that each wait for their answer before
they ask again, or from one that asks for several things at once. Without a delay the first of them is sent alone, the
others wait for it, and so the crowd falls into two halves that wait for one another forever: each takes two batches'
time. Held back until all are there, it takes one. For arrivals that know nothing of each other, a delay gains next to
nothing (Deb and Serfozo, "Optimal control of batch service queues", 1973: where serving is cheap, serve at once).

How large the crowd is follows from Little's law: requests inside a replica are the seconds that requests took in it,
per second. Clients that think hardly at all are all inside. Where fewer are (bursts with pauses), it is twice the mean
batch: its two halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from enginewright.core.batching.safe import MICROSECONDS, SafeSet, Setting
from enginewright.core.observed import Spent

# Batches of fewer than this are of requests by themselves.
ALONE = 1.25
# Batches of at least this show that requests come together; of at least that, in bursts: some meet by chance.
TOGETHER, BURSTS = 1.5, 2.5
# A crowd is all inside where that makes at least this share of twice the mean batch.
INSIDE = 0.7
# A delay in times of a batch: one half of a crowd is held back for a little longer than the other is computed, so that
# they meet; where no request waits for the others, requests of one burst meet much sooner.
MEET, GATHER = 1.05, 0.2
# A request held back for all of it, in vain, may take so many times what the mean request takes now: about what one in
# a hundred takes now, so that the tail is no worse. With 1.2 a crowd of 12 of which one in 500 requests is late had a
# p99 17 % longer where a batch of 12 takes twice as long as one request.
TAIL = 1.15
# A crowd is whole: what is a little above it is the edge of a window.
ROUNDING = 0.1
STEP_US = 100
# While a setting is kept: batches are of this share of the crowd at least; inside are so many times it at most.
FILLED, OUTGROWN = 0.65, 1.5
# Nor does a request take so many times what it took when the setting was kept: others may have come that look alike.
SLOWER = 1.3


@dataclass(frozen=True)
class Mix:
    """Means over a window: ``taken`` and ``waited`` seconds of a request, ``batch`` requests of an execution,
    ``inside`` requests of one replica."""

    taken: float
    waited: float
    batch: float
    inside: float

    @classmethod
    def of(cls, spent: Spent) -> Mix:
        """Of at least one request in some time."""
        taken = spent.waited + spent.computed
        return cls(taken / spent.answered, spent.waited / spent.answered,
                   spent.answered / max(1.0, spent.executions), taken / spent.seconds)

    @property
    def computed(self) -> float:
        return self.taken - self.waited


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """``expected`` is the mean seconds of a request with it, if the traffic is what it looks like; ``crowd`` 1 for
    requests that are alone."""

    setting: Setting
    crowd: int
    expected: float
    why: str

    @property
    def kind(self) -> int:
        """What was tried in vain: this crowd, or 0 for any bursts."""
        return self.crowd if self.crowd == 1 or self.setting.preferred else 0

    def suits(self, mix: Mix, kept: float) -> bool:
        """Whether traffic seen under this setting is still what it was made for. ``kept`` is the mean seconds of a
        request when that was found; of bursts, whose times vary, only that there are some counts."""
        if self.crowd == 1:
            return mix.batch < TOGETHER and mix.waited < mix.computed
        if not self.setting.preferred:
            return mix.batch >= TOGETHER
        whole = FILLED * self.crowd <= mix.batch and mix.inside <= OUTGROWN * self.crowd
        return whole and mix.taken <= SLOWER * kept


def candidate(mix: Mix, safe: SafeSet) -> Candidate | None:
    """What may suit traffic that was seen under the default; None where that suits it, or nothing safe would."""
    if mix.batch < ALONE:
        found = _at_once(mix, safe)
    elif mix.batch >= TOGETHER:
        found = _together(mix, safe)
    else:
        found = None
    return found if found and found.setting != safe.default and safe.holds(found.setting) else None


def _at_once(mix: Mix, safe: SafeSet) -> Candidate | None:
    if not safe.default.delay_us:
        return None
    return Candidate(setting=Setting(), crowd=1, expected=mix.computed,
                     why=f"batches of {mix.batch:.1f}: requests wait {mix.waited * 1e3:.1f} ms for others in vain")


def _together(mix: Mix, safe: SafeSet) -> Candidate | None:
    halves = 2 * mix.batch
    waiting = mix.inside >= INSIDE * halves
    crowd = math.ceil(mix.inside - ROUNDING) if waiting else round(halves)
    if crowd > safe.max_batch or (not waiting and mix.batch < BURSTS):
        return None
    slower = _slower(mix, safe)
    seconds = safe.seconds(crowd) * slower
    delay = _steps(math.ceil, MEET * safe.seconds(crowd / 2) * slower if waiting else GATHER * seconds)
    if delay / MICROSECONDS + seconds > TAIL * mix.taken:
        return None
    # The maximum too: it is what a backlog is best served in. Bursts run into one another, so that no size is theirs.
    sizes = tuple(sorted({crowd, safe.max_batch})) if waiting else ()
    come = "clients ask again as soon as they are answered" if waiting else "requests come together"
    return Candidate(setting=Setting(delay_us=delay, preferred=sizes), crowd=crowd, expected=seconds,
                     why=f"{crowd} {come}, and are served in batches of {mix.batch:.1f}")


def _steps(rounded: Callable[[float], int], seconds: float) -> int:
    return rounded(seconds * MICROSECONDS / STEP_US) * STEP_US


def _slower(mix: Mix, safe: SafeSet) -> float:
    """How many times what the build measured batches take now. Of sizes with the spread of a geometric distribution the
    mean request sees 2 m - 1, where m is the mean."""
    return max(1.0, mix.computed / safe.seconds(2 * mix.batch - 1))

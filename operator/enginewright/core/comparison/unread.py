"""Ready replicas of the candidate that answer no scrape: what they do is missing from its sums, and may be bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from enginewright.core.comparison.question import Question
from enginewright.core.signals import Reading, SignalWindow

# A stall is shorter. One that answers again is counted in full: its counters went on.
UNREAD: Final = 10.0
NAMED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Unread:
    """``seconds`` is how long the longest silence has lasted, ``words`` whose it is. ``known``: longer than a stall.
    ``blamed``: replicas of the stable revision answer meanwhile, so that it is not the way to all replicas."""

    seconds: float
    words: str
    known: bool
    blamed: bool


def unread(window: SignalWindow, question: Question) -> Unread | None:
    """None where the sums have every ready replica of the candidate, up to :data:`UNREAD` seconds ago."""
    now = window.rounds[-1].time if window.rounds else 0.0
    mine = [one for one in window.readings if one.revision == question.candidate]
    silent = [one for one in mine if now - one.heard >= UNREAD]
    if found := silent or [one for one in mine if not one.counted]:
        seconds = max(now - one.heard for one in found)
        theirs = (one for one in window.readings if one.revision == question.stable and one.counted)
        return Unread(seconds=seconds, known=bool(silent), words=_words(found, seconds if silent else 0.0),
                      blamed=any(now - one.heard < UNREAD for one in theirs))
    return None


def _words(found: Sequence[Reading], seconds: float) -> str:
    names = ", ".join(sorted(one.pod for one in found)[:NAMED])
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    what, verb, whose = ("replicas", "are", "their") if len(found) > 1 else ("replica", "is", "its")
    if not seconds:
        return f"{what} {names}{more} {verb} yet to be measured"
    return f"{what} {names}{more} {verb} ready, but {whose} metrics have not been read for {seconds:.0f} s"

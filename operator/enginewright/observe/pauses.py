"""When a source may be asked again: as often as there is a round while it answers, and ever less while it does not.

A page that is too large costs time each time that it is read, and one that never comes costs a connection. A single
failure, as of a server that stalls, costs no round; a source that answers again has been asked within as many seconds
as it had failed for, and within ``longest``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from enginewright.core.backoff import Backoff


@dataclass
class _Failing:
    times: int
    until: float


class Pauses:
    """``first`` and ``longest`` are seconds: of the pause after a second failure in a row, and of any pause."""

    def __init__(self, *, first: float = 2.0, longest: float = 30.0) -> None:
        self._backoff = Backoff(first, longest)
        self._failing: dict[str, _Failing] = {}

    def due(self, sources: Iterable[str], now: float) -> list[str]:
        """Those of ``sources`` that may be asked. What is not among ``sources`` any more is forgotten."""
        known = sorted(sources)
        self._failing = {one: self._failing[one] for one in known if one in self._failing}
        return [one for one in known if one not in self._failing or self._failing[one].until <= now]

    def note(self, source: str, answered: bool, now: float) -> None:
        """``now`` is when the source was asked."""
        if answered:
            self._failing.pop(source, None)
            return
        times = self._failing[source].times + 1 if source in self._failing else 1
        pause = 0.0 if times == 1 else self._backoff.delay(times - 1)
        self._failing[source] = _Failing(times, now + pause)

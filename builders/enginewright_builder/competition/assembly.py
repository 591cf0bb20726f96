"""What ships: one engine alone where it is as fast as the best everywhere, else the best of each batch bucket. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from enginewright_builder.competition.race import Ratio


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A candidate that may be served. ``held`` has, for each bucket in use where it may ship, its time over that of
    whichever it is furthest behind there; ``covers`` are the buckets that it can answer at all. ``native`` says that a
    backend of the server runs it, without Python in between; ``joinable`` that the server's Python can run it beside
    others; ``accuracy`` is the lower bound that the gate compared."""

    name: str
    held: Mapping[int, Ratio]
    covers: frozenset[int]
    accuracy: float
    size_bytes: int
    native: bool = False
    joinable: bool = True

    def near(self, batch: int) -> bool:
        return batch in self.held and self.held[batch].near

    @property
    def preference(self) -> tuple[float, int, str]:
        """Sorts the more accurate first, then the smaller; the name, so that the order of arrival decides nothing."""
        return -self.accuracy, self.size_bytes, self.name


def assemble(contenders: Sequence[Contender], used: Sequence[int], buckets: Sequence[int]) -> dict[int, str] | None:
    """Which candidate serves each of ``buckets``, by name, the same for all where one is enough. None when some bucket
    in use has no candidate that may ship there.

    One engine alone must be within the indifference zone of the fastest in each bucket of ``used``; of several the ones
    come first that the server runs natively, as the way through Python costs more than the zone. Otherwise the
    smallest set serves that has such an engine for every bucket: each member costs memory and a load. Where the server
    cannot run such a set, the engine alone that is the least behind serves.
    """
    if any(not any(batch in one.held for one in contenders) for batch in used):
        return None
    whole = [one for one in contenders if one.covers >= set(buckets) and all(one.near(batch) for batch in used)]
    if whole:
        best = min(whole, key=lambda one: (not one.native, one.preference))
        return dict.fromkeys(buckets, best.name)
    joinable = sorted((one for one in contenders if one.joinable), key=lambda one: one.preference)
    for count in range(2, len(buckets) + 1):
        # In the order of the contenders, so the first is the most preferred one.
        team = next((team for team in combinations(joinable, count) if _able(team, used, buckets)), None)
        if team:
            return {batch: _serving(team, batch, used).name for batch in buckets}
    alone = [one for one in contenders if one.covers >= set(buckets) and one.held.keys() >= set(used)]
    if not alone:
        return None
    least = min(alone, key=lambda one: (max(one.held[batch].value for batch in used), one.preference))
    return dict.fromkeys(buckets, least.name)


def _able(team: Sequence[Contender], used: Sequence[int], buckets: Sequence[int]) -> bool:
    return (all(any(one.near(batch) for one in team) for batch in used)
            and all(any(batch in one.covers for one in team) for batch in buckets))


def _serving(team: Sequence[Contender], batch: int, used: Sequence[int]) -> Contender:
    """The most preferred of the near ones; in a bucket out of use, who serves the largest in use if it can."""
    if batch in used:
        return min((one for one in team if one.near(batch)), key=lambda one: one.preference)
    able = [one for one in team if batch in one.covers]
    return min(able, key=lambda one: (not one.near(max(used)), one.preference))

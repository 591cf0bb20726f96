"""What replicas that serve language models count of requests and their tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """``begun`` requests have got their first token, after ``waited`` microseconds altogether. ``ended`` ones have
    been answered, with ``generated`` tokens, of which ``cut`` were ended by the largest length. Of those with more
    tokens than one, ``paced``, the mean time per token after the first adds up to ``pace`` microseconds. Their clients
    have left ``gone`` requests at least. ``begun_within`` and ``paced_within`` map milliseconds to how many took no
    longer, until the first token and per token; that of infinity has all of them."""

    begun: float = 0.0
    waited: float = 0.0
    ended: float = 0.0
    generated: float = 0.0
    cut: float = 0.0
    paced: float = 0.0
    pace: float = 0.0
    gone: float = 0.0
    begun_within: Mapping[float, float] = field(default_factory=dict)
    paced_within: Mapping[float, float] = field(default_factory=dict)

    def __add__(self, other: Tokens) -> Tokens:
        numbers = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        return Tokens(**numbers, begun_within=_added(self.begun_within, other.begun_within),
                      paced_within=_added(self.paced_within, other.paced_within))

    def since(self, before: Tokens) -> Tokens:
        """What a server that had counted ``before`` has counted more."""
        numbers = {name: max(0.0, getattr(self, name) - getattr(before, name)) for name in _NUMBERS}
        return Tokens(**numbers, begun_within=_less(self.begun_within, before.begun_within),
                      paced_within=_less(self.paced_within, before.paced_within))

    def known_after(self, before: Tokens) -> Tokens:
        """Requests that are left count as such once they are seen, however many begin afterwards."""
        return replace(self, gone=max(self.gone, before.gone, 0.0))


_NUMBERS: Final = tuple(one.name for one in fields(Tokens) if not one.name.endswith("within"))


def _added(one: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    """Of both sides only bounds that both have, so that servers with other bounds tell nothing wrong."""
    if not one or not other:
        return dict(one or other)
    return {bound: count + other[bound] for bound, count in one.items() if bound in other}


def _less(one: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    return {bound: max(0.0, count - other.get(bound, 0.0)) for bound, count in one.items()}


def beyond(counts: Mapping[float, float], milliseconds: float) -> tuple[float, float]:
    """How many certainly took longer, and how many there were: a histogram knows no better than its next bound,
    and the last one is infinite."""
    within = min((bound for bound in counts if bound >= milliseconds), default=math.inf)
    whole = counts.get(math.inf, 0.0)
    return max(0.0, whole - counts.get(within, whole)), whole

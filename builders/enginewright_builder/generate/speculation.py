"""What speculation does in a load, by vLLM's own counts, and how many tokens at once would do more. Pure.

Each step of a model that speculates is a round: so many tokens are proposed, the model looks at all of them in one
step, keeps those up to the first that it would not have chosen, and adds one of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 8
_COUNTERS = re.compile(r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)_total"
                       r"(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_PLACE = re.compile(r'(?:^|,)position="(\d+)"')


@dataclass(frozen=True, kw_only=True)
class Speculated:
    """In ``rounds`` the model took ``accepted`` of ``proposed`` tokens; ``at`` are those that it took at each place of
    a round."""

    rounds: int
    proposed: int
    accepted: int
    at: tuple[int, ...] = ()


def speculated(before: str, after: str) -> Speculated | None:
    """Between two readings of the server's metrics; None where it did not speculate."""
    begin, end = _counts(before), _counts(after)
    grown = {key: round(value - begin.get(key, 0.0)) for key, value in end.items()}
    rounds, proposed = grown.get(("drafts", -1), 0), grown.get(("draft_tokens", -1), 0)
    if rounds <= 0 or proposed <= 0:
        return None
    places = sorted(place for what, place in grown if what == "accepted_tokens_per_pos")
    return Speculated(rounds=rounds, proposed=proposed, accepted=grown.get(("accepted_tokens", -1), 0),
                      at=tuple(grown["accepted_tokens_per_pos", place] for place in places))


def better_number(found: Speculated, number: int, *, with_ms: float, alone_ms: float, least: float) -> int:
    """How many tokens at once would serve best, where ``number`` did as ``found`` says, and a token took ``with_ms``
    and without speculation ``alone_ms``. ``number`` itself unless another one is better by the factor ``least``, also
    than no speculation.

    A token more at once takes a round as much longer as each of ``number`` did. How often it would be taken is what
    was counted at its place; beyond those, each is taken after the one before as often as the last one was."""
    if not found.at or alone_ms <= 0:
        return number
    steps = with_ms * (1 + found.accepted / found.rounds) / alone_ms  # that a round takes
    cost = max(0.0, steps - 1) / number
    shares = _shares(found)
    rates = [(1 + sum(shares[:count])) / (1 + count * cost) for count in range(1, MOST + 1)]
    best = max(range(1, MOST + 1), key=lambda count: rates[count - 1])
    now = rates[number - 1] if number <= MOST else 0.0
    return best if rates[best - 1] > least * max(now, 1.0) else number


def _shares(found: Speculated) -> list[float]:
    """Of rounds, in which the token of each place was taken: the first :data:`MOST`."""
    shares = [min(1.0, count / found.rounds) for count in found.at]
    before = shares[-2] if len(shares) > 1 else 1.0
    again = min(1.0, shares[-1] / before) if before else 0.0
    while len(shares) < MOST:
        shares.append(shares[-1] * again)
    return shares[:MOST]


def _counts(page: str) -> dict[tuple[str, int], float]:
    """By counter and place in a round, -1 for those of all places."""
    found: dict[tuple[str, int], float] = {}
    for what, labels, value in _COUNTERS.findall(page):
        place = _PLACE.search(labels)
        key = what, int(place[1]) if place else -1
        found[key] = found.get(key, 0.0) + float(value)
    return found

"""How soon can a candidate's p99 be distinguished from the stable revision's, with what there is to measure it by?

``PYTHONPATH=studies:hack:operator:builders python -m rollouts.tails`` prints the table of ADR 0009. Streams are
simulated: log-normal requests, weather that hits both (an autoregressive process, by seconds), weather of each node,
stalls of one node, and a candidate whose first requests are slow. Each instrument refuses where its odds reach a
thousand:

* ``means``: the test in use, ratios of seconds' means with a limit of a quarter;
* ``requests``: the share of requests above ``LIMIT`` ms, against one in a hundred, as an objective has it, where every
  duration is known, as a histogram or traces would tell, and each request counts as one by itself;
* ``blocks``: the same, where ten seconds count for odds of eight at most, whatever came in them: a stall is one event;
* ``counters``: these blocks, of what counters scraped ten times a second prove: one request above, where the mean of
  those that ended in between is;
* ``pairs``: five requests of the operator's own a second to each, in turns; of pairs of which one is beyond 1.25 times
  the stable revision's 95th percentile so far, the candidate's are to be no more than half.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enginewright.core.comparison.latency import Ratio
from enginewright.core.signals import Traffic
from tables import head

ODDS = math.log(1000.0)
RUNS, SECONDS = 100, 300
MEDIAN, SPREAD = 10.0, 0.4
LIMIT = 1.5 * MEDIAN * math.exp(2.326 * SPREAD)  # ms, of an objective that leaves room above the stable p99
WARM_REQUESTS, WARM = 5, 20.0
# What the first seconds bring does not count.
SKIPPED = 10
BLOCK, MOST_OF_BLOCK = 10, math.log(8.0)
MULTIPLES = (2.0, 4.0, 8.0, 16.0, 32.0)
PROBES, WARM_PAIRS = 5, 25
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """``slower`` multiplies all requests of the candidate, ``tail`` a share of them by five."""

    name: str
    slower: float = 1.0
    tail: float = 0.0


CASES = (Case("equal"), Case("twice as slow", slower=2.0), Case("one in twenty takes five times as long", tail=0.05))


def weather(dice: np.random.Generator, memory: float = 0.9, size: float = 0.15) -> Numbers:
    noise = dice.normal(0, size * math.sqrt(1 - memory**2), SECONDS)
    found = np.zeros(SECONDS)
    for second in range(1, SECONDS):
        found[second] = memory * found[second - 1] + noise[second]
    return found


def stream(dice: np.random.Generator, common: Numbers, rate: float, case: Case | None) -> list[Numbers]:
    """Durations in milliseconds, of each second; a candidate's where there is a ``case``."""
    own, left, found = weather(dice, size=0.1), WARM_REQUESTS, []
    stalls = np.repeat(dice.random(SECONDS // 3) < 0.01, 3)
    for second in range(SECONDS):
        durations = MEDIAN * np.exp(common[second] + own[second] + SPREAD * dice.standard_normal(dice.poisson(rate)))
        if stalls[second]:
            durations = durations * 4
        if case is not None:
            durations = durations * case.slower * np.where(dice.random(len(durations)) < case.tail, 5.0, 1.0)
            warm = min(left, len(durations))
            durations[:warm] *= WARM
            left -= warm
        found.append(durations)
    return found


def by_means(mine: list[Numbers], theirs: list[Numbers]) -> Iterator[bool]:
    ratio = Ratio()
    for one, other in zip(mine, theirs, strict=True):
        ratio.add(*(Traffic(requests=len(part), busy=float(part.sum()), replicas=1) for part in (one, other)))
        found = ratio.interval()
        yield found is not None and found.low > math.log(1.25)


def by_shares(above: Iterator[tuple[int, int]], most: float = math.inf) -> Iterator[bool]:
    """Of (beyond, requests) each second, against one in a hundred; ``most``, a logarithm, bounds what a block says."""
    gain = np.log(MULTIPLES)
    loss = np.log((1 - np.array(MULTIPLES) / 100) / 0.99)
    logs, block = np.zeros(len(MULTIPLES)), np.zeros(len(MULTIPLES))
    for second, (beyond, requests) in enumerate(above):
        if second >= SKIPPED:
            block += beyond * gain + (requests - beyond) * loss
        if second % BLOCK == BLOCK - 1:
            logs += np.minimum(block, most)
            block[:] = 0
        yield float(np.logaddexp.reduce(logs) - math.log(len(MULTIPLES))) >= ODDS


def proven(mine: list[Numbers], scrapes: int = 10) -> Iterator[tuple[int, int]]:
    for durations in mine:
        parts = np.array_split(durations, scrapes)
        yield sum(bool(len(part)) and float(part.mean()) > LIMIT for part in parts), len(durations)


def known(mine: list[Numbers]) -> Iterator[tuple[int, int]]:
    for durations in mine:
        yield int((durations > LIMIT).sum()), len(durations)


def by_pairs(mine: list[Numbers], theirs: list[Numbers]) -> Iterator[bool]:
    """``mine`` and ``theirs`` are of probes."""
    shares, logs, pairs = np.array([0.6, 0.75, 0.9]), np.zeros(3), 0
    stable: list[float] = []
    for one, other in zip(mine, theirs, strict=True):
        limit = 1.25 * float(np.quantile(stable, 0.95)) if stable else 0.0
        for candidate, known_one in zip(one[:PROBES], other[:PROBES], strict=False):
            pairs += 1
            if pairs > WARM_PAIRS:
                worse, fair = candidate > limit, 1.25 * known_one > limit
                if worse != fair:
                    logs += np.log(2 * (shares if worse else 1 - shares))
            stable.append(float(known_one))
        yield float(np.logaddexp.reduce(logs) - math.log(3)) >= ODDS


def first(found: Iterator[bool]) -> int:
    """Second of the first word against the candidate; beyond all where there is none."""
    return next((second + 1 for second, said in enumerate(found) if said), SECONDS + 1)


def run(case: Case, rate: float, seed: int) -> dict[str, int]:
    dice = np.random.default_rng([seed, int(rate)])
    common = weather(dice)
    mine, theirs = stream(dice, common, rate, case), stream(dice, common, rate, None)
    probes = [stream(dice, common, 4 * PROBES, one) for one in (case, None)]
    return {"means": first(by_means(mine, theirs)), "requests": first(by_shares(known(mine))),
            "blocks": first(by_shares(known(mine), MOST_OF_BLOCK)),
            "counters": first(by_shares(proven(mine), MOST_OF_BLOCK)), "pairs": first(by_pairs(probes[0], probes[1]))}


def main() -> None:
    print("Refused of 100 within 60 s / 300 s\n")
    print(*head("candidate", "requests/s", "means", "requests", "blocks", "counters", "pairs"), sep="\n")
    for case in CASES:
        for rate in (5.0, 50.0, 500.0):
            found = [run(case, rate, seed) for seed in range(RUNS)]
            cells = [" / ".join(str(sum(one[name] <= limit for one in found)) for limit in (60, 300))
                     for name in ("means", "requests", "blocks", "counters", "pairs")]
            print(f"| {case.name} | {rate:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

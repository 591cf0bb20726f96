"""How often scaling changes its direction from the begin of one burst to that of the next: up, and down, is once."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence

from enginewright_simulation.results import reversals
from scaling_study.loads import HOUR, SPANS
from scaling_study.runs import HPA, US, Cell, run_of
from tables import head, row


def of_bursts(loads: Sequence[str], seeds: int) -> list[Cell]:
    """Whatever ``loads``: only these have bursts whose begin is known."""
    return [Cell(load=load, policy=policy, seed=seed)
            for load in SPANS for seed in range(1, seeds + 1) for policy in (US, HPA)]


def in_each(cell: Cell) -> list[int]:
    """Reversals from the begin of each burst of the hour to that of the next."""
    begins = [begin for begin, _ in SPANS[cell.load](random.Random(cell.seed)) if begin < HOUR]  # noqa: S311
    return between(begins, run_of(cell).changes)


def between(begins: Sequence[float], changes: Sequence[tuple[float, int, int]]) -> list[int]:
    return [reversals([change for change in changes if begin <= change[0] < following])
            for begin, following in itertools.pairwise([*begins, math.inf])]


def reversals_table(cells: Sequence[Cell], found: Mapping[Cell, Sequence[int]]) -> str:
    lines = [*head("Load", "Policy", "Bursts", "With one reversal at most", "With two or three", "With more",
                   right=range(2, 6))]
    for load, policy in dict.fromkeys((cell.load, cell.policy) for cell in cells):
        each = [turns for cell in cells if (cell.load, cell.policy) == (load, policy) for turns in found[cell]]
        one, few = sum(turns <= 1 for turns in each), sum(turns <= 3 for turns in each)
        shares = (one, few - one, len(each) - few)
        said = (f"{100 * share / max(1, len(each)):.0f} %" for share in shares)
        lines.append(row((load, policy, len(each), *said)))
    return "\n".join([*lines, ""])

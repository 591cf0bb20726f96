"""Ours beside every setting of the peers: none may have both fewer late requests and fewer replica-seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from enginewright_simulation.results import Figures
from scaling_study.loads import COLD, HELD_OUT
from scaling_study.runs import GRID, HPA, US, Cell
from tables import head, row

SLOW_SECONDS = 60.0


def grid(loads: Sequence[str], seeds: int) -> list[Cell]:
    """One seed: a load takes as many runs as there are settings."""
    quick = [Cell(load=load, policy=policy, seed=1) for load in loads for policy in (US, *GRID)]
    return quick + [_slow(load, policy, 1) for load in HELD_OUT for policy in (US, *GRID)]


def held_out(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [_slow(load, policy, seed) for load in HELD_OUT
            for seed in range(1, seeds + 1) for policy in (US, HPA)]


def _slow(load: str, policy: str, seed: int) -> Cell:
    return Cell(load=load, policy=policy, seed=seed, cold=COLD.get(load, SLOW_SECONDS))


def better_on_both(ours: Figures, theirs: Figures) -> bool:
    return (theirs["slo_violations"] < ours["slo_violations"]
            and theirs["replica_seconds"] < ours["replica_seconds"])


def dominated(cells: Sequence[Cell], found: Mapping[Cell, Figures]) -> list[Cell]:
    """Settings of peers that beat ours on both."""
    ours = {(cell.load, cell.seed): found[cell] for cell in cells if cell.policy == US}
    return [cell for cell in cells if better_on_both(ours[cell.load, cell.seed], found[cell])]


def grid_table(cells: Sequence[Cell], found: Mapping[Cell, Figures]) -> str:
    """One row for each load: the settings that beat ours on both, the one with the fewest late, and the one with the
    fewest late of those that cost no more; each as so many times our late requests and our replica-seconds."""
    worse = dominated(cells, found)
    lines = [*head("Load", "Cold start", "Settings with fewer of both", "Fewest late, times ours",
                   "Replica-seconds, times", "Fewest late for no more replica-seconds", right=(1, 2, 4))]
    for load in dict.fromkeys(cell.load for cell in cells):
        here = [cell for cell in cells if cell.load == load]
        mine = next(found[cell] for cell in here if cell.policy == US)
        peers = sorted((cell for cell in here if cell.policy != US), key=lambda cell: found[cell]["slo_violations"])
        cheap = [cell for cell in peers if found[cell]["replica_seconds"] <= mine["replica_seconds"]]
        best = peers[0]
        cost = found[best]["replica_seconds"] / mine["replica_seconds"]
        said = _said(cheap[0], mine, found) if cheap else "none costs as little"
        beaten = f"{sum(cell in worse for cell in here)} of {len(peers)}"
        lines.append(row((Path(load).stem, f"{here[0].cold:g} s", beaten, _said(best, mine, found), f"{cost:.2f}",
                          said)))
    return "\n".join([*lines, ""])


def _said(cell: Cell, mine: Figures, found: Mapping[Cell, Figures]) -> str:
    return f"{cell.policy}: {found[cell]['slo_violations'] / max(1, mine['slo_violations']):.1f}"

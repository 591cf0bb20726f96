"""What ``autoscaling.prefer`` moves between late requests and replica-seconds, beside every setting of the peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginewright_simulation.results import Figures
from scaling_study.drawing import Dot, Panel, drawing
from scaling_study.grid import SLOW_SECONDS
from scaling_study.loads import COLD, HELD_OUT
from scaling_study.runs import GRID, HPA, LEANS, MADE, NAMES, ORACLE, US, Cell

SEEDS = 2
DIAL = (LEANS["cost"], US, LEANS["latency"])
# Loads that come and go without warning; of the first a picture is made. A trace is in the table alone.
LOADS = ("on and off", "short bursts")
SHOWN = LOADS[:1]


def frontier(loads: Sequence[str], seeds: int) -> list[Cell]:
    """The dial and the HPA; on loads of the picture the oracle and all settings of the peers too."""
    every = [*(load for load in loads if load not in MADE), *LOADS]
    dial = [_cell(load, policy, seed) for load in every for seed in range(1, min(SEEDS, seeds) + 1)
            for policy in (*DIAL, HPA)]
    return dial + [_cell(load, policy, 1) for load in SHOWN for policy in (ORACLE, *GRID) if policy != HPA]


def dial_alone(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.policy in (*DIAL, HPA)]


def picture(cells: Sequence[Cell], found: Mapping[Cell, Figures]) -> str:
    """SVG text of seed 1; replica-seconds are relative to those of the HPA as it is by default."""
    first = [cell for cell in cells if cell.seed == 1 and cell.load in SHOWN]
    return drawing([_panel(load, [cell for cell in first if cell.load == load], found)
                    for load in dict.fromkeys(cell.load for cell in first)])


def _panel(load: str, cells: Sequence[Cell], found: Mapping[Cell, Figures]) -> Panel:
    base = next(found[cell]["replica_seconds"] for cell in cells if cell.policy == HPA)
    dots = [Dot(kind=_kind(cell.policy), cost=found[cell]["replica_seconds"] / base,
                late=found[cell]["slo_violations"] / found[cell]["requests"], label=_label(cell.policy))
            for cell in cells]
    return Panel(title=load, dots=dots)


def _kind(policy: str) -> str:
    if policy in GRID:
        return NAMES[GRID[policy][0]]
    return ORACLE if policy == ORACLE else US


def _label(policy: str) -> str:
    return {**{policy: word for word, policy in LEANS.items()}, US: "balanced"}.get(policy, "")


def _cell(load: str, policy: str, seed: int) -> Cell:
    cold = COLD.get(load, SLOW_SECONDS) if load in HELD_OUT else Cell.cold
    return Cell(load=load, policy=policy, seed=seed, cold=cold)

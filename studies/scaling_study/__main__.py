"""How the scaler does beside queue depth, the HPA and one that knows the future, and what each part of it is worth.

``make scaling-study`` rewrites the tables in docs/benchmarks/scaling.md; ``SEEDS=20`` takes so many, ``TRACE=FILE.csv``
adds a trace of your own at five times its rate. What takes long is done with fewer seeds, as the tables say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from enginewright_simulation.results import Figures
from scaling_study.bounds import bounds, bounds_table
from scaling_study.frontier import dial_alone, frontier, picture
from scaling_study.grid import dominated, grid, grid_table, held_out
from scaling_study.language import LanguageCell, language, language_table, play_tokens
from scaling_study.loads import LOADS
from scaling_study.reversals import in_each, of_bursts, reversals_table
from scaling_study.runs import HPA, ORACLE, QUEUE, US, VARIANTS, Cell, play
from scaling_study.tuning import COLD, SEEDS, TUNING
from tables import head, row

PAGE = Path("docs/benchmarks/scaling.md")
# Beside the page's folder.
PICTURE = Path("img/scaling-frontier.svg")
FEW = 2
SCALES = (0.5, 2.0)
SPEEDS = (1.2, 0.9, 0.75, 0.5)
# Of replicas that are slower: one that even those can meet.
LAX_SECONDS = 0.5
# Slower replicas that are late before they are full, by the objective of the other tables.
SLIGHTLY = (1.0, 0.9, 0.75)


def peers(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [Cell(load=load, policy=policy, seed=seed)
            for load in loads for seed in range(1, seeds + 1) for policy in (US, HPA)]


def parts(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [Cell(load=load, policy=policy, seed=seed) for load in loads
            for seed in range(1, min(FEW, seeds) + 1) for policy in (*VARIANTS, QUEUE, ORACLE)]


def scales(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [Cell(load=load, policy=policy, seed=seed, scale=scale) for load in loads for scale in SCALES
            for seed in range(1, min(FEW, seeds) + 1) for policy in (US, HPA, ORACLE)]


def speeds(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [Cell(load=load, policy=policy, seed=seed, speed=speed, slo=LAX_SECONDS) for load in loads
            for speed in SPEEDS for seed in range(1, min(FEW, seeds) + 1)
            for policy in (US, "without memory", QUEUE)]


def latencies(loads: Sequence[str], seeds: int) -> list[Cell]:
    return [Cell(load=load, policy=policy, seed=seed, speed=speed) for load in loads for speed in SLIGHTLY
            for seed in range(1, min(FEW, seeds) + 1) for policy in (US, "without latencies", QUEUE)]


def tuning(loads: Sequence[str], seeds: int) -> list[Cell]:
    """Bursts on all of their seeds, a trace on two, each other load on one."""
    traces = [load for load in loads if load not in LOADS]
    made = [*(("bursts", seed) for seed in SEEDS), *((trace, seed) for trace in traces for seed in SEEDS[:FEW]),
            *((load, SEEDS[0]) for load in TUNING)]
    return [Cell(load=load, policy=policy, seed=seed, cold=COLD.get(load, Cell.cold))
            for load, seed in made for policy in (US, HPA)]


def table(cells: Sequence[Cell], found: Mapping[Cell, Figures], columns: Sequence[str], best: str) -> str:
    """Means over seeds, one row for each policy on each load; replica-seconds are relative to those of ``best``."""
    words = len(columns) + 2
    lines = [*head("Load", *columns, "Policy", "Late", f"Replica-seconds, of those of {best}", "Reversals",
                   right=range(words, words + 3))]
    rows: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        where = (Path(cell.load).stem, *(f"{getattr(cell, column.lower()):g}" for column in columns))
        rows.setdefault((*where, cell.policy), []).append(cell)
    for (*named, policy), mine in rows.items():
        each = [found[cell] for cell in mine]
        base = sum(found[cell]["replica_seconds"] for cell in rows[*named, best])
        late = sum(one["slo_violations"] for one in each) / sum(one["requests"] for one in each)
        cost = sum(one["replica_seconds"] for one in each) / base
        turns = sum(one["reversals"] for one in each) / len(each)
        lines.append(row((*named, policy, f"{100 * late:.2f} %", f"{cost:.2f}", f"{turns:.0f}")))
    return "\n".join([*lines, ""])


def dial_table(cells: Sequence[Cell], found: Mapping[Cell, Figures]) -> str:
    return table(dial_alone(cells), found, (), HPA)


def write(page: Path, name: str, text: str) -> None:
    """Between the marks of that table."""
    begin, end = f"<!-- table {name}: make scaling-study -->\n", f"<!-- end of table {name} -->\n"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(before + begin + text + end + rest.split(end)[1], encoding="utf-8")


def run(cells: Iterable[Cell | LanguageCell], processes: int, each: Callable[[Any], Any] = play) -> dict[Any, Any]:
    wanted = list(cells)
    with ProcessPoolExecutor(processes) as pool:
        return dict(zip(wanted, pool.map(each, wanted, chunksize=3), strict=True))


class Table(NamedTuple):
    """Its cells, its text, and what is looked at in each cell; ``picture`` makes SVG text of them, too."""

    make: Callable[[Sequence[str], int], list[Any]]
    text: Callable[..., str]
    each: Callable[[Any], Any] = play
    picture: Callable[..., str] | None = None


TABLES: Mapping[str, Table] = {
    "peers": Table(peers, partial(table, columns=(), best=HPA)),
    "tuning": Table(tuning, partial(table, columns=(), best=HPA)),
    "held-out": Table(held_out, partial(table, columns=(), best=HPA)),
    "dial": Table(frontier, dial_table, picture=picture),
    "grid": Table(grid, grid_table),
    "parts": Table(parts, partial(table, columns=(), best=ORACLE)),
    "bounds": Table(bounds, bounds_table),
    "scales": Table(scales, partial(table, columns=("Scale",), best=ORACLE)),
    "speeds": Table(speeds, partial(table, columns=("Speed",), best=QUEUE)),
    "latencies": Table(latencies, partial(table, columns=("Speed",), best=QUEUE)),
    "reversals": Table(of_bursts, reversals_table, in_each),
    "language": Table(language, language_table, play_tokens),
}


def main() -> int:
    """1 where a setting of a peer had both fewer late requests and fewer replica-seconds than ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    loads = [*([str(options.trace)] if options.trace else []), *LOADS]
    beaten = []
    for name in options.tables:
        chosen = TABLES[name]
        cells = chosen.make(loads, options.seeds)
        found = run(cells, options.processes, chosen.each)
        write(options.output, name, chosen.text(cells, found))
        if chosen.picture:
            (options.output.parent.parent / PICTURE).write_text(chosen.picture(cells, found), encoding="utf-8")
        beaten += dominated(cells, found) if name == "grid" else []
    for cell in beaten:
        print(f"{cell.load}, seed {cell.seed}: {cell.policy} has fewer late requests and fewer replica-seconds")
    return 1 if beaten else 0


if __name__ == "__main__":
    sys.exit(main())

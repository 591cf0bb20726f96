"""The tables of the scaling study, from figures that are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginewright.simulation.results import Figures
from scaling_study.__main__ import latencies, parts, peers, scales, speeds, table, write
from scaling_study.runs import HPA, US, Cell, play


def figures(late: int, seconds: float, reversals: int = 2) -> Figures:
    return Figures(requests=1000, slo_violations=late, violation_rate=late / 1000, replica_seconds=seconds, p50_ms=1.0,
                   p99_ms=2.0, reversals=reversals)  # fmt: skip


def test_rows_are_means_over_seeds_and_costs_are_told_against_the_one_named() -> None:
    cells = peers(["a/trace.csv"], 2)
    assert {(cell.policy, cell.seed) for cell in cells} == {(US, 1), (US, 2), (HPA, 1), (HPA, 2)}
    found = {cell: figures(10 * cell.seed, 100.0, 4) if cell.policy == US else figures(300, 200.0) for cell in cells}
    assert table(cells, found, ("Scale",), HPA).splitlines()[2:] == [
        "| trace | 1 | Enginewright | 1.50 % | 0.50 | 4 |",
        "| trace | 1 | HPA (4 queued, 300 s) | 30.00 % | 1.00 | 2 |",
    ]


@pytest.mark.parametrize("make", [peers, parts, scales, speeds, latencies])
def test_no_cell_is_simulated_twice(make: object) -> None:
    assert callable(make)
    cells = make(["diurnal", "ramps"], 2)
    assert len(set(cells)) == len(cells)


def test_only_between_its_marks_a_page_is_changed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table x: make scaling-study -->\nold\n<!-- end of table x -->\nb\n")
    write(page, "x", "new\n")
    write(page, "x", "newer\n")
    assert page.read_text() == "a\n<!-- table x: make scaling-study -->\nnewer\n<!-- end of table x -->\nb\n"


def test_a_slower_replica_is_not_told_to_the_scaler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaling_study.runs.arrivals", lambda *_: [0.1 * number for number in range(600)])
    fast, slow = (play(Cell(load="diurnal", policy=US, seed=1, slo=0.5, speed=speed)) for speed in (1.0, 0.5))
    assert slow["p50_ms"] > fast["p50_ms"]
    assert fast["requests"] == slow["requests"] == 600

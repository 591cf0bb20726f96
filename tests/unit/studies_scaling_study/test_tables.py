"""The tables of the scaling study, from figures that are given."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

from enginewright.core.scaling import Capacity
from enginewright_simulation.curve import of_figures
from enginewright_simulation.policies.base import Seen
from enginewright_simulation.results import Figures
from enginewright_simulation.run import Scenario
from scaling_study.__main__ import TABLES, dial_table, latencies, parts, peers, scales, speeds, table, tuning, write
from scaling_study.bounds import TRIED, at, bounds, bounds_table
from scaling_study.drawing import LEFT, PANEL, TOP, Dot, Panel, drawing
from scaling_study.frontier import DIAL, SHOWN, frontier, picture
from scaling_study.grid import dominated, grid, grid_table, held_out
from scaling_study.loads import HELD_OUT, HOUR, LOADS, SPANS
from scaling_study.reversals import between, of_bursts, reversals_table
from scaling_study.rivals import Trailing, foreseen, needed, told
from scaling_study.runs import GRID, HPA, MADE, ORACLE, US, Cell, play
from scaling_study.tuning import TUNING


def figures(late: int, seconds: float, reversals: int = 2) -> Figures:
    return Figures(requests=1000, slo_violations=late, violation_rate=late / 1000, replica_seconds=seconds, p50_ms=1.0,
                   p99_ms=2.0, reversals=reversals)


def test_rows_are_means_over_seeds_and_costs_are_told_against_the_one_named() -> None:
    cells = peers(["a/trace.csv"], 2)
    assert {(cell.policy, cell.seed) for cell in cells} == {(US, 1), (US, 2), (HPA, 1), (HPA, 2)}
    found = {cell: figures(10 * cell.seed, 100.0, 4) if cell.policy == US else figures(300, 200.0) for cell in cells}
    assert table(cells, found, ("Scale",), HPA).splitlines()[2:] == [
        "| trace | 1 | Enginewright | 1.50 % | 0.50 | 4 |",
        "| trace | 1 | HPA (4 queued, 300 s) | 30.00 % | 1.00 | 2 |",
    ]


@pytest.mark.parametrize("make", [
    peers, parts, scales, speeds, latencies, grid, held_out, bounds, tuning, of_bursts, frontier])
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


def test_the_picture_has_the_dial_beside_every_setting_of_the_peers() -> None:
    cells = frontier(["a/trace.csv", *LOADS], 2)
    found = {cell: figures(10, 100.0) if cell.policy in DIAL else figures(300, 50.0) for cell in cells}
    drawn = picture(cells, found)
    panels = len(SHOWN)
    assert drawn.count("<title>") == 1 + panels * (len(DIAL) + len(GRID) + 1)
    assert drawn.count("Enginewright latency: 1.00 % late, 2.00") == panels
    assert all(f">{title}</text>" in drawn for title in SHOWN)
    rows = dial_table(cells, found).splitlines()[2:]
    assert len(rows) == (1 + 2) * (len(DIAL) + 1)
    assert rows[0] == "| trace | Enginewright, prefer cost | 1.00 % | 2.00 | 2 |"


def test_a_picture_keeps_what_is_beyond_its_edges() -> None:
    far = Dot(kind="HPA", cost=9.0, late=0.0)
    assert f'cx="{LEFT + PANEL}.0" cy="{TOP + PANEL}.0"' in drawing([Panel(title="a", dots=[far])])


def test_every_setting_of_every_peer_is_in_the_grid() -> None:
    assert len(GRID) == 3 * 4 * 4
    assert HPA in GRID
    cells = grid(["diurnal"], 20)
    assert {cell.load for cell in cells} == {"diurnal", *HELD_OUT}
    assert len(cells) == (1 + len(HELD_OUT)) * (1 + len(GRID))


@pytest.mark.parametrize(
    ("late", "seconds", "beaten"), [(9, 99.0, True), (10, 99.0, False), (9, 100.0, False), (11, 50.0, False)]
)
def test_a_peer_beats_ours_only_with_fewer_of_both(late: int, seconds: float, beaten: bool) -> None:
    cells = grid(["diurnal"], 1)[: 1 + len(GRID)]
    found = {cell: figures(10, 100.0) if cell.policy == US else figures(20, 200.0) for cell in cells}
    odd = cells[-1]
    found[odd] = figures(late, seconds)
    assert dominated(cells, found) == ([odd] if beaten else [])
    assert f"| diurnal | 20 s | {int(beaten)} of {len(GRID)} |" in grid_table(cells, found)


def test_the_grids_row_names_the_best_of_all_and_of_those_that_cost_no_more() -> None:
    cells = grid(["diurnal"], 1)[: 1 + len(GRID)]
    found = {cell: figures(10, 100.0) if cell.policy == US else figures(80, 100.0) for cell in cells}
    found[cells[1]], found[cells[2]] = figures(20, 150.0), figures(40, 90.0)
    row = grid_table(cells, found).splitlines()[2]
    assert row == f"| diurnal | 20 s | 0 of 48 | {cells[1].policy}: 2.0 | 1.50 | {cells[2].policy}: 4.0 |"
    found = {cell: figures(10, 100.0) if cell.policy == US else figures(80, 101.0) for cell in cells}
    assert grid_table(cells, found).splitlines()[2].endswith("| none costs as little |")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_a_place_for_every_table(name: str) -> None:
    assert re.fullmatch("[a-z-]+", name)  # make scaling-study TABLES="one another" has to tell them apart
    page = (Path(__file__).parents[3] / "docs/benchmarks/scaling.md").read_text()
    assert page.count(f"<!-- table {name}: make scaling-study -->\n") == 1
    assert page.count(f"<!-- end of table {name} -->\n") == 1


@pytest.mark.parametrize(
    ("points", "cost"),
    [([(0.012, 1.0), (0.008, 1.2)], 1.1), ([(0.01, 1.3), (0.02, 1.0)], 1.3), ([(0.011, 1.0), (0.02, 0.9)], math.nan)],
)
def test_the_cost_at_one_percent_lies_between_what_was_tried(points: list[tuple[float, float]], cost: float) -> None:
    assert at(0.01, points) == pytest.approx(cost, nan_ok=True)


def test_a_bound_is_told_against_the_oracles_replica_seconds() -> None:
    cells = bounds(["diurnal", "bursts"], 20)
    assert {(cell.load, cell.seed) for cell in cells} == {("diurnal", 1), ("diurnal", 2), ("diurnal", 3)}
    # Late requests and replica-seconds are both linear in the percentile: 10 are late, 1 %, at 99, for 120.
    found = {cell: figures(50, 100.0) if cell.policy == ORACLE
             else figures(round(10 * (100 - cell.percentile)), 120 + 10 * (cell.percentile - 99)) for cell in cells}
    lines = bounds_table(cells, found).splitlines()[2:]
    assert lines == [f"| diurnal | {policy} | 1.20 |" for policy in TRIED]


def test_the_rate_of_the_last_seconds_asks_for_what_the_formula_says_and_holds_it() -> None:
    capacity = Capacity(throughput=20.0, objective_seconds=0.1, cold_start_seconds=20.0)
    rule = Trailing(2, 3, capacity, 50)
    asked = [rule.decide(Seen(time=float(time), desired=1, pending={}, inflight=0, arrived=came))
             for time, came in enumerate([500, 40, 40, 0, 0, 0, 0, 0])]
    high, half = needed(40.0, capacity, 50), needed(20.0, capacity, 50)
    assert 1 < half < high < 50
    assert asked == [1, high, high, high, high, high, half, 1]


def test_who_is_told_starts_replicas_a_cold_start_ahead() -> None:
    capacity = Capacity(throughput=20.0, objective_seconds=0.1, cold_start_seconds=20.0)
    arrivals = [100 + 0.025 * number for number in range(4000)]
    plan = told(arrivals, capacity, 50)
    asked = [plan.decide(Seen(time=float(time), desired=1, pending={}, inflight=0, arrived=0)) for time in range(120)]
    # From second 110 on the ten seconds on both sides are full of requests.
    assert asked[0] == 1
    assert asked.index(needed(40.0, capacity, 50)) == 110 - 20
    assert max(asked) == asked[90]


def test_who_foresees_all_starts_replicas_a_cold_start_ahead() -> None:
    came = [*(100 + 0.5 * number for number in range(200)), *(200 + 0.02 * number for number in range(5000))]
    few, many = (
        foreseen(came, Scenario(service=of_figures(10, 20), cold_start=20.0, percentile=percentile))
        for percentile in (90.0, 99.9)
    )
    asked = [[plan.decide(Seen(time=float(time), desired=1, pending={}, inflight=0, arrived=0))
              for time in range(300)] for plan in (few, many)]
    for made in asked:  # from second 200 on 25 times as many come
        assert max(made[:170]) < min(made[180:]) <= 20
    assert max(asked[0]) < max(asked[1])


@pytest.mark.parametrize("load", SPANS)
def test_each_burst_is_where_it_is_said_to_be(load: str) -> None:
    spans = SPANS[load](random.Random(3))
    came = MADE[load](random.Random(3))
    lasting = sum(min(HOUR, end) - start for start, end in spans if start < HOUR)
    inside = sum(any(start <= one < end for start, end in spans) for one in came)
    assert inside / lasting > 1.5 * (len(came) - inside) / (HOUR - lasting)


def test_up_and_down_is_one_reversal_and_belongs_to_the_burst_before() -> None:
    up, down = (5.0, 1, 2), (40.0, 2, 1)
    later = [(time + 100, before, after) for time, before, after in (up, down)]
    assert between([0.0, 100.0], [up, down, *later]) == [1, 1]
    assert between([0.0, 100.0], [up, down, (60.0, 1, 2), (80.0, 2, 1), *later]) == [3, 1]
    assert between([0.0, 100.0], []) == [0, 0]
    # What goes before the first burst is no burst's.
    assert between([50.0], [up, down]) == [0]


def test_bursts_are_counted_by_their_reversals() -> None:
    cells = [Cell(load="bursts", policy=US, seed=seed) for seed in (1, 2)]
    found = {cells[0]: [0, 1, 1], cells[1]: [1, 1, 2, 3, 5]}
    assert reversals_table(cells, found).splitlines()[2:] == ["| bursts | Enginewright | 8 | 62 % | 25 % | 12 % |"]


def test_what_is_chosen_by_is_not_what_is_judged_by() -> None:
    cells = tuning(["a/trace.csv", "diurnal"], 20)
    assert {cell.load for cell in cells} == {"bursts", "a/trace.csv", *TUNING}
    judged = {(cell.load, cell.seed) for cell in [*peers(["a/trace.csv", *SPANS], 20), *held_out([], 20)]}
    assert judged.isdisjoint((cell.load, cell.seed) for cell in cells)
    assert {cell.cold for cell in cells if "spikes" in cell.load} == {60.0}
    assert {cell.cold for cell in cells if "spikes" not in cell.load} == {20.0}

"""The builder's search on every recorded grid, and the searches that it is compared with."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from enginewright_builder.contract import ObjectiveRequest
from enginewright_builder.sweep.objective import score
from enginewright_builder.sweep.result import Point
from enginewright_builder.sweep.search import MOST_TIMES
from grids import study
from grids.grid import FIGURES, Axes, Cell, Config, Grid, medians, read_all, read_grid
from grids.quick import QuickSearch
from grids.replay import MOST_MEASUREMENTS, achieved, point_of, replay
from grids.simulate import MACHINES, simulated
from grids.study import GOAL, coarse_grid, goals

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "grids"
AXES = Axes(max_batch_sizes=(1, 4, 16), max_queue_delays_us=(0, 200, 1000), instance_counts=(1, 2),
            concurrencies=(1, 2, 4, 8, 16))
# What is known to fall short, and what it reaches: the best differs from what is chosen by less than 3 %, repeats of
# one point of these grids by 8 and 10 %.
SHORT: Mapping[tuple[str, str], float] = {
    ("minilm-int8-dynamic-cpu", "least p99"): 0.97,
    **{("minilm-tensorrt-fp16-h200", f"throughput, {limit} ms"): 0.97
       for limit in ("p99 within 2.56", "p99 within 3.41", "p95 within 2.94")},
}


def figures(cell: Cell) -> dict[str, float]:
    """Two cores, 4 ms a request, 1 ms more a batch: throughput and latency by asymptotic bounds."""
    workers = min(cell.config.instance_count, 2)
    size = min(cell.config.max_batch_size, max(1, cell.concurrency // 2))
    service = (1 + 4 * size) * workers**0.5 + cell.config.max_queue_delay_us / 1e3 * (size > 1)
    rate = min(cell.concurrency, workers * size) / service * 1e3
    mean = cell.concurrency / rate * 1e3
    return {**dict.fromkeys(FIGURES, 0.0), "throughput": rate, "throughput_low": rate, "throughput_high": rate,
            "mean_ms": mean, "p50_ms": mean, "p90_ms": mean * 1.1, "p95_ms": mean * 1.2, "p99_ms": mean * 1.4}


def made_up() -> Grid:
    return Grid(name="made-up", model="made up", hardware={"device": "none", "cores": 2}, versions={}, command="",
                recorded="2026-11-21T00:00:00Z", notes=(), seconds_per_point=1.0, axes=AXES,
                repeats={cell: [figures(cell)] * 3 for cell in AXES.cells()})


def recorded() -> list[Grid]:
    return list(read_all(FOLDER))


@pytest.mark.study
@pytest.mark.parametrize("grid", recorded(), ids=lambda grid: grid.name)
def test_the_search_reaches_the_best_of_every_recorded_grid(grid: Grid) -> None:
    medians_of = {cell: grid.median(cell) for cell in grid.repeats}
    short = {}
    for goal in goals(medians_of):
        points = {cell: point_of(cell, one, goal.objective) for cell, one in medians_of.items()}
        best = max(points.values(), key=lambda point: score(point, goal.objective))
        found = replay(grid.axes, medians_of.__getitem__, goal.objective)
        share = achieved(points[found.chosen], best, goal.objective)
        assert len(found.measured) <= MOST_MEASUREMENTS
        assert max(Counter(found.measured).values()) <= MOST_TIMES
        assert found.chosen in found.measured
        if share < SHORT.get((grid.name, goal.name), GOAL):
            short[goal.name] = round(share, 4)
    assert not short


def test_a_recorded_grid_is_whole() -> None:
    for grid in recorded():
        assert set(grid.repeats) == set(grid.axes.cells()), grid.name
        assert not grid.missing
        assert min(map(len, grid.repeats.values())) >= 2


def test_a_grid_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "made-up.json"
    path.write_text(made_up().to_json(), encoding="utf-8")
    again = read_grid(path)
    assert (again.axes, again.name, set(again.repeats)) == (AXES, "made-up", set(made_up().repeats))
    for cell, repeats in made_up().repeats.items():
        assert again.median(cell) == pytest.approx(medians(repeats), rel=1e-4)


@pytest.mark.parametrize("text", ["", "{}", '{"version": 0}', '{"version": 1, "space": {}, "points": []}'])
def test_what_is_no_grid_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken\.json"):
        read_grid(path)


def test_quick_search_measures_nothing_twice_and_finds_what_it_can() -> None:
    objective = ObjectiveRequest(latency_ms=1e6)
    points = {cell: point_of(cell, one, objective) for cell, one in (
        (cell, figures(cell)) for cell in AXES.cells())}
    asked: list[Cell] = []

    def measure(cell: Cell) -> Point:
        asked.append(cell)
        return points[cell]

    chosen, seen = QuickSearch(AXES, measure, objective).run()
    assert tuple(asked) == seen
    assert len(set(seen)) == len(seen)
    assert {cell.config.max_queue_delay_us for cell in seen} == {0}
    assert score(points[chosen], objective) == max(score(points[cell], objective) for cell in seen)


@pytest.mark.parametrize(
    ("objective", "throughput", "latency", "share"),
    [
        (ObjectiveRequest(latency_ms=10), 90.0, 9.0, 0.9),
        (ObjectiveRequest(latency_ms=10), 200.0, 11.0, 0.0),  # misses what the best keeps
        (ObjectiveRequest(latency_ms=1), 50.0, 10.0, 0.5),  # nobody keeps it: latency counts
        (ObjectiveRequest(), 100.0, 10.0, 0.5),  # power
    ],
)
def test_share_of_the_best(objective: ObjectiveRequest, throughput: float, latency: float, share: float) -> None:
    cell = Cell(config=Config(max_batch_size=1, max_queue_delay_us=0, instance_count=1), concurrency=1)
    best = dataclasses.replace(point_of(cell, figures(cell), objective), throughput=100.0, mean_ms=5.0,
                               objective_ms=5.0)
    point = dataclasses.replace(best, throughput=throughput, mean_ms=latency, objective_ms=latency)
    assert achieved(point, best, objective) == pytest.approx(share)


def test_a_measurement_that_is_made_again_is_another_repeat_and_both_count() -> None:
    """One request alone was slow once. The first asked for is chosen: it is the knee, but beaten by what is busier."""
    rounds: tuple[Mapping[str, float], ...] = ({"p99_ms": 90.0}, {})
    grid = dataclasses.replace(made_up(), repeats={
        cell: [{**figures(cell), **(one if cell.concurrency == 1 else {})} for one in rounds] for cell in AXES.cells()})
    cell = AXES.cells()[0]
    for seed in range(4):
        answer = study.drawn(grid, seed)
        assert sorted(answer(cell)["p99_ms"] for _ in rounds) == sorted(one["p99_ms"] for one in grid.repeats[cell])
    asked: Counter[Cell] = Counter()

    def source(cell: Cell) -> Mapping[str, float]:
        asked[cell] += 1
        return grid.repeats[cell][asked[cell] - 1]

    found = replay(AXES, source, ObjectiveRequest())
    assert asked[found.chosen] == 2
    assert Counter(found.measured) == asked
    assert len(found.measured) <= MOST_MEASUREMENTS


def test_the_coarse_grid_is_a_part_of_the_whole() -> None:
    assert set(coarse_grid(AXES)) < set(AXES.cells())


@pytest.mark.study
@pytest.mark.parametrize("kind", ["cpu", "gpu", "contended"])
def test_the_search_is_not_fitted_to_the_recorded_grids(kind: str) -> None:
    """Servers out of another model than its own. Their points are noisy, so the best of a whole grid is partly luck."""
    grid, shares = simulated(kind, 1), []
    medians_of = {cell: grid.median(cell) for cell in grid.repeats}
    for goal in goals(medians_of):
        points = {cell: point_of(cell, one, goal.objective) for cell, one in medians_of.items()}
        best = max(points.values(), key=lambda point: score(point, goal.objective))
        found = replay(grid.axes, medians_of.__getitem__, goal.objective)
        assert len(found.measured) <= MOST_MEASUREMENTS
        assert max(Counter(found.measured).values()) <= MOST_TIMES
        shares.append(achieved(points[found.chosen], best, goal.objective))
    assert sum(share >= GOAL for share in shares) >= 0.7 * len(shares)
    assert statistics.median(shares) > 0.995
    assert statistics.fmean(shares) > 0.97


@pytest.mark.parametrize("kind", MACHINES)
def test_a_made_up_server_keeps_the_laws_and_is_the_same_every_time(kind: str) -> None:
    grid, again = simulated(kind, 0), simulated(kind, 0)
    assert set(grid.repeats) == set(grid.axes.cells())
    for cell, (one,) in grid.repeats.items():
        assert one == again.repeats[cell][0]
        assert one["throughput"] * one["mean_ms"] / 1e3 == pytest.approx(cell.concurrency)  # Little's law
        assert one["p50_ms"] <= one["p90_ms"] <= one["p95_ms"] <= one["p99_ms"]
        assert 1 <= one["mean_batch"] <= min(cell.concurrency, cell.config.max_batch_size)
        if cell.config.max_batch_size > cell.concurrency and cell.config.max_queue_delay_us == 5000:
            assert one["p50_ms"] > 5  # nobody comes to fill the batch


@pytest.mark.study
def test_the_study_of_made_up_servers_says_how_often_and_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "simulated", lambda kind, seed: made_up())
    monkeypatch.setattr(study, "SIMULATED_SEEDS", 1)
    found = study.study_simulated("cpu")
    assert (found["kind"], found["grids"]) == ("cpu", 1)
    assert 0.9 <= found["ours"]["mean"] <= 1
    assert 1 <= found["ours"]["measurements"] <= MOST_MEASUREMENTS

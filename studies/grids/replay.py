"""The builder's own search on a recorded grid: it asks, the record answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from enginewright_builder.contract import ObjectiveRequest, ServingChoice
from enginewright_builder.sweep import Layers, Point
from enginewright_builder.sweep.objective import met, score
from enginewright_builder.sweep.search import Search
from enginewright_builder.sweep.space import Space, Trial
from grids.grid import Axes, Cell, Config, medians

# What a cell shows when it is measured; asked again, what it shows the next time.
Source = Callable[[Cell], Mapping[str, float]]
MOST_MEASUREMENTS = 12


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search chose, and the cells it measured, in order; a cell measured again is there twice."""

    chosen: Cell
    measured: tuple[Cell, ...]


def replay(axes: Axes, source: Source, objective: ObjectiveRequest, limit: int = MOST_MEASUREMENTS) -> Found:
    search = Search(space=space_of(axes), objective=objective, left=limit)
    measured: list[Cell] = []
    seen: dict[Cell, list[Mapping[str, float]]] = {}
    while (trial := search.ask()) is not None:
        cell = cell_of(trial)
        measured.append(cell)
        seen.setdefault(cell, []).append(source(cell))
        search.tell(trial, point_of(cell, medians(seen[cell]), objective))
    return Found(chosen=cell_of(Trial.of(search.best())), measured=tuple(measured))


def space_of(axes: Axes) -> Space:
    return Space(batch_sizes=axes.max_batch_sizes, preferred_batch_sizes=(), instances=axes.instance_counts,
                 delays_us=axes.max_queue_delays_us, concurrencies=axes.concurrencies)


def cell_of(trial: Trial) -> Cell:
    serving = trial.serving
    return Cell(config=Config(max_batch_size=serving.max_batch_size, max_queue_delay_us=serving.max_queue_delay_us,
                              instance_count=serving.instance_count), concurrency=trial.concurrency)


def point_of(cell: Cell, figures: Mapping[str, float], objective: ObjectiveRequest) -> Point:
    """Raises ``KeyError`` for a percentile that grids do not record."""
    config = cell.config
    serving = ServingChoice(max_batch_size=config.max_batch_size, max_queue_delay_us=config.max_queue_delay_us,
                            instance_count=config.instance_count)
    return Point(
        serving=serving, threads=1, concurrency=cell.concurrency, batch=1, requests=0, errors=0, seconds=0.0,
        throughput=figures["throughput"], mean_ms=figures["mean_ms"], p50_ms=figures["p50_ms"],
        p90_ms=figures["p90_ms"], p95_ms=figures["p95_ms"], p99_ms=figures["p99_ms"],
        objective_ms=figures[f"p{objective.latency_percentile:g}_ms"], throughput_low=figures["throughput_low"],
        throughput_high=figures["throughput_high"], mean_batch=figures["mean_batch"],
        layers=Layers(queue_ms=figures["queue_ms"], compute_ms=figures["compute_ms"],
                      input_output_ms=figures["input_output_ms"], transport_ms=figures["transport_ms"]))


def achieved(point: Point, best: Point, objective: ObjectiveRequest) -> float:
    """The objective that ``point`` reaches ÷ the one of ``best``, the best of the grid, from 0 to 1.

    Throughput within the latency limit; power (throughput ÷ mean latency) without one; where no point of the grid keeps
    the limit, the smallest latency ÷ this one. A point that misses a limit which ``best`` keeps achieves nothing.
    """
    if met(best, objective) and not met(point, objective):
        return 0.0
    if not met(best, objective):
        return best.objective_ms / point.objective_ms
    return score(point, objective)[1] / score(best, objective)[1]

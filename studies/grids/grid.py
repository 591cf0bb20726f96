"""A recorded grid: every point of the search space, measured several times on a real tritonserver. Plain data."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = 1
# What one repeat says, and the point says as the median of its repeats. Throughput is by Little's law, load ÷ mean
# latency; its interval is from the completions in slices of the window.
FIGURES = ("throughput", "throughput_low", "throughput_high", "mean_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms",
           "mean_batch", "queue_ms", "compute_ms", "input_output_ms", "transport_ms")


@dataclass(frozen=True, kw_only=True, order=True)
class Config:
    """What ``config.pbtxt`` says. ``max_batch_size`` 1 forms no batches, so its queue delay is always 0."""

    max_batch_size: int
    max_queue_delay_us: int
    instance_count: int


@dataclass(frozen=True, kw_only=True, order=True)
class Cell:
    """A configuration under ``concurrency`` requests in flight."""

    config: Config
    concurrency: int


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The values of each coordinate, ascending."""

    max_batch_sizes: tuple[int, ...]
    max_queue_delays_us: tuple[int, ...]
    instance_counts: tuple[int, ...]
    concurrencies: tuple[int, ...]

    def configs(self) -> list[Config]:
        return [Config(max_batch_size=batch, max_queue_delay_us=delay, instance_count=count)
                for count in self.instance_counts for batch in self.max_batch_sizes
                for delay in (self.max_queue_delays_us if batch > 1 else (0,))]

    def cells(self) -> list[Cell]:
        return [Cell(config=config, concurrency=concurrency)
                for config in self.configs() for concurrency in self.concurrencies]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """``repeats`` maps each cell to its measurements in the order they were made: one a round, so that the repeats of
    equal index were made within one round. ``missing`` counts measurements that the time budget cut off."""

    model: str
    hardware: Mapping[str, Any]
    versions: Mapping[str, str]
    command: str
    recorded: str
    notes: tuple[str, ...]
    seconds_per_point: float
    axes: Axes
    repeats: Mapping[Cell, Sequence[Mapping[str, float]]]
    missing: int = 0
    name: str = field(default="", compare=False)

    def median(self, cell: Cell) -> dict[str, float]:
        return medians(self.repeats[cell])

    def to_json(self) -> str:
        points = [{**dataclasses.asdict(cell.config), "concurrency": cell.concurrency, **_rounded(self.median(cell)),
                   "repeats": [_rounded(repeat) for repeat in self.repeats[cell]]} for cell in sorted(self.repeats)]
        head = {"version": VERSION, "model": self.model, "hardware": self.hardware, "versions": self.versions,
                "command": self.command, "recorded": self.recorded, "notes": self.notes,
                "seconds_per_point": self.seconds_per_point, "space": dataclasses.asdict(self.axes),
                "missing": self.missing}
        lines = ",\n".join(json.dumps(point) for point in points)
        return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + f',\n "points": [\n{lines}\n]}}\n'


def read_grid(path: Path) -> Grid:
    """Raises ``ValueError`` when the file is no grid, or of another version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise ValueError(f"{path}: version {document['version']!r}, this program reads {VERSION}")
        axes = Axes(**{name: tuple(values) for name, values in document["space"].items()})
        repeats = {Cell(config=Config(**{key: point[key] for key in Config.__dataclass_fields__}),
                        concurrency=point["concurrency"]): point["repeats"] for point in document["points"]}
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a recorded grid: {error!r}; record it again") from error
    return Grid(name=path.stem, model=document["model"], hardware=document["hardware"],
                versions=document["versions"], command=document["command"], recorded=document["recorded"],
                notes=tuple(document["notes"]), seconds_per_point=document["seconds_per_point"], axes=axes,
                repeats=repeats, missing=document["missing"])


def read_all(folder: Path) -> Iterator[Grid]:
    """All grids of the folder, by name."""
    return (read_grid(path) for path in sorted(folder.glob("*.json")))


def medians(repeats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: statistics.median(repeat[name] for repeat in repeats) for name in FIGURES}


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Five digits: more than any of these is known to."""
    return {name: float(f"{figures[name]:.5g}") for name in FIGURES}

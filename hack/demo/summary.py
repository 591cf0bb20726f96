"""What the demo measured: written to ``build/demo/summary.json`` and shown as a short table."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass
class Timed:
    """``seconds`` of each step are wall-clock."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[step] = round(time.monotonic() - started, 2)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")
        temporary.replace(path)


@dataclass
class Summary(Timed):
    """Field names are the file's."""

    ready: bool = False
    backend: str = ""
    precision: str = ""
    speedup_vs_reference: float = 0.0
    accuracy: dict[str, Any] = field(default_factory=dict)
    requests: int = 0
    failed_requests: int = 0
    errors: dict[str, str] = field(default_factory=dict)
    peak_replicas: int = 0
    final_replicas: int = 0

    def add_load(self, load: str, result: dict[str, Any]) -> None:
        self.requests += int(result["requests"])
        self.failed_requests += int(result["failed"])
        for kind, count in result["errors"].items():
            self.errors[f"{load}: {count} {kind}"] = result["messages"].get(kind, "")

    def show(self, console: Console) -> None:
        table = Table(title="What was measured", show_header=False, title_justify="left")
        table.add_row("engine", f"{self.backend} {self.precision}")
        table.add_row("speed-up over the PyTorch model", f"{self.speedup_vs_reference:.2f}×")
        if self.accuracy:
            table.add_row(f"accuracy ({self.accuracy['metric']})",
                          f"{self.accuracy['value']:.4f} (needs ≥ {1 - self.accuracy['tolerance']:.4f})")
        table.add_row("requests, failed", f"{self.requests}, {self.failed_requests}")
        table.add_row("replicas, peak and final", f"{self.peak_replicas}, {self.final_replicas}")
        table.add_row("seconds", ", ".join(f"{step} {value:.1f}" for step, value in self.seconds.items()))
        console.print(table)

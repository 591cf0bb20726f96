"""The chart's Grafana dashboards, as Grafana would ask Prometheus for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "charts" / "enginewright" / "files" / "dashboards"


def expressions(prefix: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Panel and expression of every target that reads metrics named ``prefix…``, with ``variables`` filled in."""
    for file in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                text = str(target["expr"])
                if prefix not in text:
                    continue
                for name, value in variables.items():
                    text = text.replace(f"${name}", value)
                yield f"{file.stem}: {panel['title']}", text

"""What the time budget of real builds went into, and what their races measured: ``python -m trial_order trials
NAME=build-report.json…``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def trials(reports: dict[str, Path]) -> dict[str, Any]:
    """``{"hardware", "versions", "steps": {model: {step: seconds}}, "models": {model: [{"name", "verdict", "build_s",
    "gate_s", "ms": {batch: median}}]}}`` of the builds with these reports. Raises ``ValueError`` where the hardware
    differs."""
    read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in sorted(reports.items())}
    first = next(iter(read.values()))
    for name, report in read.items():
        if (report["hardware"], report["versions"]) != (first["hardware"], first["versions"]):
            raise ValueError(f"{name} was built on {report['hardware']} with {report['versions']}, others on "
                             f"{first['hardware']} with {first['versions']}")
    return {"hardware": first["hardware"], "versions": first["versions"],
            "steps": {name: report["steps"] for name, report in read.items()},
            "models": {name: [_trial(one) for one in report["candidates"] if one["verdict"] != "Skipped"]
                       for name, report in read.items()}}


def _trial(one: dict[str, Any]) -> dict[str, Any]:
    """Reports from before they said what a candidate took have no seconds."""
    return {"name": one["name"], "verdict": one["verdict"], "build_s": one.get("build_seconds"),
            "gate_s": one.get("gate_seconds"), "ms": {figure["batch"]: figure["p50_ms"] for figure in one["buckets"]}}

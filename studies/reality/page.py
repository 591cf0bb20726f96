"""``docs/benchmarks/reality.json`` and ``reality.md``: what was found of each model under each kind of load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.machine import processor_of
from reality.compare import NAMES, Row
from tables import head

JSON, PAGE = "reality.json", "reality.md"
HEAD = """# The simulator beside real replicas

Written by `make reality-check` from `reality.json`. The same requests went to a real tritonserver and to the simulator
of `enginewright simulate`. **Off by** is simulated ÷ real − 1, the median over the repeats; the goal is at most 15 %.

- **Load** is a share of what the replica answers when all its batches are full.
- The simulator knows the time of each batch and of a lone request, measured on the same replica just before and after
  each replay, as a build measures them (`sweep/curve.py`); nothing of the replay itself.
- **Pace** is how long the replica took for its batches during the replay, by Triton's own count, ÷ what was measured
  around it: what the machine did meanwhile, and what taking requests up costs while a batch computes on the same core.
- **Off at pace** is the same with the simulated replica so much slower: what is left is the simulator's own error.
"""


def said(study: Mapping[str, Any]) -> Table:
    heads = ("requests/s", "p50, ms", "off by", "p95, ms", "off by", "answered/s", "off by", "pace", "off at pace")
    table = Table(*heads, title=f"{study['model']}, {study['trace']}")
    for row in study["rows"]:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    """Real figures are those of the middle repeat by each figure."""
    cells = [f"{row['rate']:.1f}"]
    for name in NAMES:
        real = sorted(one["real"][name] for one in row["repeats"])  # type: ignore[literal-required]
        cells += [f"{real[len(real) // 2]:.1f}", f"{row['off'][name]:+.0%}"]  # type: ignore[literal-required]
    pace = sorted(one["pace"] for one in row["repeats"])
    paced = ", ".join(f"{row['off_at_pace'][name]:+.0%}" for name in NAMES)  # type: ignore[literal-required]
    return [*cells, f"{pace[len(pace) // 2]:.2f}", paced]


def write(folder: Path, study: Mapping[str, Any]) -> None:
    """Puts ``study`` in the place of an earlier one of this model under this load."""
    path = folder / JSON
    known = json.loads(path.read_text(encoding="utf-8"))["studies"] if path.exists() else []
    kept = [one for one in known if (one["model"], one["trace"]) != (study["model"], study["trace"])]
    studies = sorted([*kept, study], key=lambda one: (one["model"], one["trace"] != "Poisson", one["trace"]))
    path.write_text(json.dumps({"studies": studies}, indent=1) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(page(studies), encoding="utf-8")


def page(studies: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join([HEAD, *map(_section, studies)])


def _section(study: Mapping[str, Any]) -> str:
    hardware, times = study["hardware"], study["service_ms"]
    shown = ", ".join(f"{batch}: {times[batch]:g}" for batch in times if int(batch) & (int(batch) - 1) == 0)
    repeats = [one for row in study["rows"] for one in row["repeats"]]
    lines = [
        f"## {study['model']}, {study['trace']}", "",
        f"{study['replicas']} replica of {study['cores_of_a_replica']} core of {processor_of(hardware)}, the client on "
        f"another. Milliseconds by batch: {shown}; after a pause "
        f"{study['wake_ms']:g} more, and {study['transport_ms']:g} for the client. "
        f"{len(study['rows'][0]['repeats'])} repeats; {sum(one['failed'] for one in repeats)} requests failed. "
        f"`{study['command']}`", "",
        *head("load", "requests/s", "p50, ms", "off by", "p95, ms", "off by", "answered/s", "off by", "pace",
              "off at pace"),
        *(f"| {row['load']:.0%} | {' | '.join(_cells(row))} |" for row in study["rows"]), "",
        "Each repeat, off by (p50, p95, answered): " + "; ".join(
            f"{row['load']:.0%}: " + ", ".join(map(_each, row["repeats"])) for row in study["rows"]) + ".", "",
    ]
    return "\n".join(lines)


def _each(repeat: Mapping[str, Any]) -> str:
    real, simulated = repeat["real"], repeat["simulated"]
    return "(" + ", ".join(f"{simulated[name] / real[name] - 1:+.0%}" for name in NAMES) + ")"

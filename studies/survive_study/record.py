"""What sequences came to: a line of ``sequences.jsonl`` as each ends, of which the summary is made at any time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINES = "sequences.jsonl"


@dataclass
class Told:
    """What a sequence came to. ``alarms`` are in words, with the number of the step before them; ``broke`` is what
    ended the sequence where the study itself could not go on."""

    seed: int = 0
    steps: int = 0
    rests: int = 0
    kills: int = 0
    deaths: int = 0
    faults: int = 0
    fields: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    slowest_rest: float = 0.0
    broke: str = ""

    def as_line(self) -> str:
        return json.dumps({**vars(self), "fields": sorted(self.fields)}) + "\n"


def keep(folder: Path, told: Told) -> None:
    with (folder / LINES).open("a") as lines:
        lines.write(told.as_line())


def kept(folder: Path) -> list[Told]:
    """Of all processes that write below ``folder``. A last line that is not whole yet is left out."""
    return [_told(line) for path in sorted(folder.rglob(LINES))
            for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _told(line: str) -> Told:
    raw = json.loads(line)
    return Told(**{**raw, "fields": set(raw["fields"]), "done": Counter(raw["done"])})


def report(told: Iterable[Told], seconds: float, bound: float) -> dict[str, Any]:
    told = list(told)
    return {
        "steps": sum(one.steps for one in told), "kills": sum(one.kills for one in told),
        "ended_by_themselves": sum(one.deaths for one in told), "faults": sum(one.faults for one in told),
        "rests": sum(one.rests for one in told),
        "slowest_rest_s": round(max((one.slowest_rest for one in told), default=0), 1), "bound_s": bound,
        "fields_changed": len({name for one in told for name in one.fields}),
        "alarms": sum(len(one.alarms) for one in told), "broke": sum(bool(one.broke) for one in told),
        "seconds": round(seconds), "done": dict(sorted(sum((one.done for one in told), Counter[str]()).items())),
        "seeds": sorted(one.seed for one in told),
    }

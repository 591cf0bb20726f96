"""What may happen, as data that can be printed, played again and cut."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MODELS = ("minilm", "twin")
# By how often each comes.
KINDS: Mapping[str, int] = {
    "spec": 30, "act": 22, "engine": 8, "fault": 12, "delete-child": 8, "edit-child": 8, "delete-model": 5,
    "delete-pods": 5, "evict": 3, "node": 2, "claim": 2, "retry": 3, "rollback": 2, "promote": 2, "suspend": 2,
    "scale": 6, "refused-spec": 4, "two-leaders": 3, "calm": 4,
}
ACTS: Mapping[str, tuple[str, ...]] = {
    "resolve": ("succeed", "hold", "user-error", "transient-error", "silent-error", "out-of-memory", "pull-error",
                "unschedulable", "taken-back", "out-of-time"),
    "ask": ("succeed", "hold", "silent-error", "pull-error", "unschedulable", "taken-back"),
    "build": ("succeed", "hold", "user-error", "transient-error", "silent-error", "out-of-memory", "pull-error",
              "unschedulable", "taken-back", "out-of-time"),
    "server": ("succeed", "hold", "hold-new", "crash", "refuse-engine", "unfit", "pull-error", "unschedulable"),
}
FAULTS = ("throttle", "conflict", "break", "lose-answer", "hang", "expire", "deaf", "partition")
CHILDREN = ("jobs", "deployments", "services", "configmaps", "poddisruptionbudgets", "leases")
EDITS = ("replicas", "image", "label", "owner", "selector", "hash")
# Of the least and the most that an operator lives before it is killed.
SOON, LATE = 0.0, 0.6
KILLED = 0.3


@dataclass(frozen=True)
class Step:
    """``pick`` chooses among what is there when the step is done; ``killed`` is after how many seconds the operator is
    killed, None: it is not; ``pause`` is how long the world goes on before the oracles look."""

    kind: str
    model: str
    pick: float
    pause: float
    killed: float | None = None
    what: str = ""
    where: str = ""

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}


def drawn(dice: random.Random, kills: float = KILLED) -> Step:
    kind = dice.choices(list(KINDS), weights=list(KINDS.values()))[0]
    what, where = "", ""
    if kind == "act":
        where = dice.choice(list(ACTS))
        what = dice.choice(ACTS[where])
    elif kind == "fault":
        what = dice.choice(FAULTS)
    elif kind in ("delete-child", "edit-child"):
        where = dice.choice(CHILDREN if kind == "delete-child" else ("deployments", "services", "jobs", "configmaps"))
        what = dice.choice(EDITS)
    elif kind == "delete-model":
        what = dice.choice(("Background", "Foreground", "Orphan"))
    killed = round(dice.uniform(SOON, LATE), 3) if dice.random() < kills else None
    return Step(kind, dice.choice(MODELS), round(dice.random(), 6), round(dice.uniform(0.05, 0.5), 3), killed, what,
                where)


def sequence(seed: int, length: int, kills: float = KILLED) -> list[Step]:
    dice = random.Random(seed)  # noqa: S311  (no secret)
    return [drawn(dice, kills) for _ in range(length)]


def from_json(raw: Mapping[str, Any]) -> Step:
    return Step(**raw)

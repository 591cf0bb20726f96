"""What replicas of each class can do, by what builds measured on one: of all classes of a fleet, or of none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core.status import EngineStatus, read


def measured(statuses: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float] | None:
    """Inferences a second of one replica of each, by its build; None unless all were measured."""
    engines = {name: read(EngineStatus, told.get("engine")) for name, told in statuses.items()}
    found = {name: engine.throughput for name, engine in engines.items() if engine and engine.throughput}
    return found if len(found) == len(engines) else None


def evenly(ready: Mapping[str, int], each: Mapping[str, float]) -> float:
    """What ready replicas carry together where each gets the same share: no more than the least capable of them all
    can do. ``each`` has every class with ready replicas."""
    return sum(ready.values()) * min((each[name] for name, count in ready.items() if count), default=0.0)


def ready_of(told: Mapping[str, Any]) -> int:
    """Ready replicas by the status ``told``."""
    return int(told.get("readyReplicas") or 0)

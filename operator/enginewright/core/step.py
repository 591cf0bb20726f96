"""Where a rollout stands, as status says it."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """Of an object and of a fleet; ``SWITCHING`` and ``DRAINING`` are an object's alone, ``AWAITING`` a fleet's."""

    STARTING = "Starting"
    ANALYSING = "Analysing"
    AWAITING = "WaitingForClasses"
    WAITING = "WaitingForPromotion"
    EXPANDING = "Expanding"
    SWITCHING = "Switching"
    DRAINING = "Draining"
    COMPLETE = "Complete"
    ROLLED_BACK = "RolledBack"

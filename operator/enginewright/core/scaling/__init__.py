"""How many replicas should run: a pure function of what was seen, what one replica can do, and the limits.

Nothing here reads a clock or the network, so the simulator runs the same code as the operator does.
"""

from enginewright.core.scaling.capacity import Capacity
from enginewright.core.scaling.decide import decide_replicas
from enginewright.core.scaling.evidence import capacity_asked_for, capacity_of
from enginewright.core.scaling.limits import ScaleDecision, ScaleLimits, limits_of

__all__ = [
    "Capacity",
    "ScaleDecision",
    "ScaleLimits",
    "capacity_asked_for",
    "capacity_of",
    "decide_replicas",
    "limits_of",
]

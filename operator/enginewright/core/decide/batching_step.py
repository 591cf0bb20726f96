"""Whether replicas' batching follows the traffic: condition BatchingAdaptive, where the spec asks for it.

Each replica decides for itself, on its own counters; what is said here is whether it may, by what the build measured
and the memory that there is. What serves otherwise is what the build proved, so that nobody's readiness depends on it.
"""

from __future__ import annotations

from enginewright.core.batching import Refusal, SafeSet
from enginewright.core.conditions import Verdict, bad, good, unknown
from enginewright.core.decide.engine_step import EngineResult
from enginewright.core.decide.world import World
from enginewright.core.manifests import adaptive
from enginewright.core.reasons import Condition, Reason


def batching_verdict(world: World, engine: EngineResult) -> Verdict | None:
    """None where nobody asks."""
    kind = Condition.BATCHING_ADAPTIVE
    if not world.spec.batching.adaptive:
        return None
    if engine.record is None or engine.placement is None:
        return unknown(kind, Reason.WAITING_FOR_ENGINE, "What batching may be is known once the engine is built.")
    found = adaptive(world.spec, engine.record, engine.placement, world.config)
    if isinstance(found, SafeSet):
        return good(kind, Reason.FOLLOWING, f"Each replica begins with what the build chose, {found.default}, and "
                                            "follows its own traffic from there.")
    if isinstance(found, Refusal):
        return bad(kind, found.reason, f"{found.message} Replicas serve with the batching that the build chose.")
    return None

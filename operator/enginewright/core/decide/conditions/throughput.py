"""Condition ThroughputHeld: whether one replica does as much as one of what served before. It stays when that has gone,
for as long as the engine is what is rolled out or serves."""

from __future__ import annotations

from enginewright.core.conditions import Verdict, no, open_question, yes
from enginewright.core.decide.built import beside_stable
from enginewright.core.decide.target import Target
from enginewright.core.reasons import Condition, Reason
from enginewright.core.status import ThroughputStatus


def throughput(target: Target) -> tuple[Verdict | None, ThroughputStatus | None]:
    """None and None where nothing served before the engine, or only in another revision of it."""
    known, built = target.ctx.memory.throughput, target.awaited if target.awaited and target.awaited.record else None
    kept = known if known and known.fingerprint == (built or target.engine).fingerprint else None
    found = beside_stable(target) or kept
    if found is None:
        return None, None
    says = {str(Reason.AS_FAST): yes, str(Reason.BUILT_SLOWER): no}.get(found.reason, open_question)
    return says(found.reason, found.message).about(Condition.THROUGHPUT_HELD), found

"""From an engine's record to the settings that its build's measurements allow."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.batching.safe import MICROSECONDS, SafeSet, Setting
from enginewright.core.observed import EngineRecord
from enginewright.core.reasons import Reason
from enginewright.core.scaling.evidence import capacity_of
from enginewright.core.spec.engine import ObjectiveSpec


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why batching cannot follow the traffic; ``message`` is a whole sentence or more."""

    reason: Reason
    message: str


def safe_set(record: EngineRecord, objective: ObjectiveSpec) -> SafeSet | Refusal:
    """A delay is the most that it costs, so that all up to a safe one are safe: the one that shipped was measured
    within the objective, and two of the largest batches are what a request that just misses one takes anyway."""
    capacity, serving, engine = capacity_of(record, objective), record.outcome.serving, record.outcome.engine
    if serving is None or engine is None or serving.max_batch_size < 2:
        return Refusal(reason=Reason.NO_BATCHES, message="The engine is served without batches: there is nothing to "
                                                         "wait for.")
    # A record without a curve of its own has one point, the median of a closed loop: that says nothing of batches.
    if capacity is None or len(capacity.curve) < 2:
        return Refusal(reason=Reason.BATCHES_NOT_MEASURED, message="The build's record has no latency of batches; "
                                                                   "a rebuilt engine has that.")
    default = Setting(delay_us=serving.max_queue_delay_us, preferred=serving.preferred_batch_sizes)
    return SafeSet(
        default=default, curve=capacity.curve, max_batch=serving.max_batch_size,
        longest_delay_us=max(default.delay_us, int(2 * capacity.curve[-1][1] * MICROSECONDS)),
        load_seconds=engine.load_seconds, objective_seconds=capacity.objective_seconds, allowed=capacity.allowed,
    )

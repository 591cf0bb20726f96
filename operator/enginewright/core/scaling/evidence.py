"""From an engine's record to what one replica can do."""

from __future__ import annotations

from enginewright.core.observed import EngineRecord
from enginewright.core.scaling.capacity import Capacity
from enginewright.core.spec import Spec
from enginewright.core.spec.engine import ObjectiveSpec

# From the write of a scale-up until the server's process begins to load, where the image is on the node: the scheduler,
# the volume, the check of the engine, and the first probe. An assumption; loading itself is measured.
POD_SECONDS = 10.0


def capacity_asked_for(spec: Spec, record: EngineRecord | None) -> Capacity | None:
    """None where queue depth alone is to decide: it is asked to, or Prometheus is read, which tells no arrivals."""
    scaling = spec.autoscaling
    if scaling is None or scaling.algorithm != "measured" or scaling.source != "direct":
        return None
    return capacity_of(record, spec.objective)


def capacity_of(record: EngineRecord | None, objective: ObjectiveSpec) -> Capacity | None:
    """None without a record that tells a throughput. Records hold no service curve: a replica is taken to work on so
    many requests side by side as its throughput and median latency make (Little's law), each in that latency."""
    engine = record.outcome.engine if record else None
    if engine is None:
        return None
    throughput = engine.throughput_at_objective or engine.throughput
    seconds = engine.p50_ms / 1000
    if throughput <= 0 or seconds <= 0:
        return None
    latency = objective.latency
    return Capacity(
        throughput=throughput,
        curve=((1, seconds),),
        instances=max(1, round(throughput * seconds)),
        objective_seconds=latency.milliseconds / 1000 if latency else None,
        percentile=latency.percentile if latency else 99.0,
        cold_start_seconds=engine.load_seconds + POD_SECONDS,
    )

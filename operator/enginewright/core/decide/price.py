"""What a replica costs, where autoscaling.costCeilingPerHour asks."""

from __future__ import annotations

from enginewright.core.conditions import Verdict, bad, unknown
from enginewright.core.context import PassContext
from enginewright.core.cost import replica_price
from enginewright.core.observed import DeploymentView
from enginewright.core.reasons import Condition, Reason


def price_of(ctx: PassContext, stable: DeploymentView | None) -> float | None:
    """For an hour of one replica of ``stable``; None when not known."""
    record = ctx.observed.records.get(stable.fingerprint) if stable else None
    return replica_price(record.outcome.engine, ctx.config.prices) if record and record.outcome.engine else None


def no_price(ctx: PassContext, stable: DeploymentView) -> Verdict | None:
    """Says why a ceiling cannot be kept; None where it can, or where there is none. Meanwhile replicas stay as they
    are: more might cost more than the ceiling, and fewer might not be enough."""
    ceiling = ctx.spec.autoscaling.cost_ceiling_per_hour if ctx.spec.autoscaling else None
    if ceiling is None or price_of(ctx, stable) is not None:
        return None
    record = ctx.observed.records.get(stable.fingerprint)
    if record is None or record.outcome.engine is None:
        return unknown(Condition.SCALING_ACTIVE, Reason.HOLDING,
                       f"autoscaling.costCeilingPerHour {ceiling:g}: the evidence that says on which device replicas "
                       f"run is not read yet. Replicas stay as they are.")
    device = record.outcome.engine.device_class or "its device"
    return bad(
        Condition.SCALING_ACTIVE, Reason.PRICE_UNKNOWN,
        f"autoscaling.costCeilingPerHour {ceiling:g}: no price of {device} is known. Add it to config.prices.perHour "
        f"of the operator's chart, or remove costCeilingPerHour. Until then replicas stay as they are.",
    )

"""Whether one replica of a new engine does as much as one of the engine that serves, as the builds of both measured it.

Each was measured on a device of its own, at another time: what the live analysis allows a candidate beside the stable
revision, ``rollout.analysis.maxSlowdown``, is allowed here as well, and by default is more than two builds of the same
engine differ by. Accuracy has no part in it: the gate holds every engine against its source.
"""

from __future__ import annotations

from enginewright.core.context import PassContext
from enginewright.core.decide.engine.obtain import EngineResult
from enginewright.core.decide.target import Target
from enginewright.core.language_models import asks_of_tokens
from enginewright.core.observed import DeploymentView
from enginewright.core.published import Published, published
from enginewright.core.reasons import Reason
from enginewright.core.spec import Spec
from enginewright.core.status import TargetStatus, ThroughputStatus
from enginewright_builder.contract import EngineSummary


def beside_stable(target: Target) -> ThroughputStatus | None:
    """Of the target, or of what waits to be approved in its place. None where that has served or has no engine yet, or
    where the stable revision, if any, has the same."""
    engine, stable = target.awaited or target.engine, target.ctx.serving.stable
    record = engine.record if target.awaited else target.untried
    mine = published(record.outcome) if record else None
    if record is None or mine is None or stable is None or stable.fingerprint == record.fingerprint:
        return None
    reason, message = _judge(target.ctx, engine, mine, stable)
    return ThroughputStatus(fingerprint=record.fingerprint, before=stable.revision, reason=reason, message=message)


def _judge(ctx: PassContext, engine: EngineResult, mine: Published, stable: DeploymentView) -> tuple[Reason, str]:
    record = ctx.observed.records.get(stable.fingerprint)
    theirs = published(record.outcome) if record else None
    why = "the record of the older engine is not at hand" if theirs is None else _apart(
        ctx, engine, stable.revision, (mine, theirs))
    if theirs is None or why:
        return Reason.NOT_COMPARABLE, (f"What the builds of revisions {engine.revision} and {stable.revision} measured "
                                       f"cannot be compared: {why}.")
    rate, before, most = _rate(ctx.spec, mine), _rate(ctx.spec, theirs), ctx.spec.rollout.analysis.max_slowdown
    words = (f"One replica of revision {engine.revision} does {rate:.4g} {_unit(ctx.spec, mine)} within "
             f"{_objective(engine.target)}, as its build measured; one of revision {stable.revision}, which served "
             f"before, does {before:.4g}")
    if rate * (1 + most) >= before:
        return Reason.AS_FAST, f"{words}."
    return Reason.BUILT_SLOWER, (f"{words}: {1 - rate / before:.0%} less, and spec.rollout.analysis.maxSlowdown "
                                 f"{most:g} allows {most / (1 + most):.0%}.")


def _apart(ctx: PassContext, engine: EngineResult, stable: str, summaries: tuple[Published, Published]) -> str:
    """Why the figures are not of the same measure; empty where they are."""
    here, there = (f"{one.device_count} × {one.device_class or one.device}" for one in summaries)
    if here != there:
        return f"a replica has {here} now, and had {there}"
    if not any(_rate(ctx.spec, one) for one in summaries):
        return "neither keeps the objective under any load that was measured"
    entry = next((one for one in ctx.memory.revisions if one.revision == stable), None)
    kept, now = _objective(entry.target if entry else None), _objective(engine.target)
    if not kept:
        return f"the objective of revision {stable} is not known"
    return "" if kept == now else f"the objective is {now} now, and was {kept}"


def _objective(built_for: TargetStatus | None) -> str:
    return (built_for.objective if built_for else None) or ""


def _rate(spec: Spec, summary: Published) -> float:
    """0 where no load that was measured keeps the objective."""
    if isinstance(summary, EngineSummary):
        return summary.throughput_at_objective or 0.0
    return summary.tokens.goodput if asks_of_tokens(spec) else summary.tokens.output_rate


def _unit(spec: Spec, summary: Published) -> str:
    if isinstance(summary, EngineSummary):
        return "inferences a second"
    return "requests a second" if asks_of_tokens(spec) else "tokens a second"

"""The heart: from the object and what was observed to a plan. Pure, and walked from the start in every pass:

spec → server image → source → engine → scale → quality → target → desired → converge → report

Each stage takes what those before it found, and returns data. What is desired stands apart from how to get there:
:mod:`~enginewright.core.decide.target` says which revision is rolled out and why,
:mod:`~enginewright.core.decide.strategy` what is to serve meanwhile, and
:mod:`~enginewright.core.decide.converge` alone makes the writes. Each condition is set in one module:
``SourceResolved``, ``EngineBuilt``, ``ScalingActive`` and ``QualityHeld`` in the stage that finds them, the rest in
:mod:`~enginewright.core.decide.conditions`.

A fleet, which asks for several classes of devices, has a pass of its own: :mod:`enginewright.core.fleet`. So has a data
set that is run through the engine: :mod:`enginewright.core.decide.batch`.
"""

from __future__ import annotations

from enginewright.core.conditional import conditional
from enginewright.core.config import OperatorConfig
from enginewright.core.context import PassContext, read_spec
from enginewright.core.decide import target as targets
from enginewright.core.decide.batch import decide_batch
from enginewright.core.decide.conditions.rollout import conclude
from enginewright.core.decide.converge import converge
from enginewright.core.decide.engine.obtain import obtain
from enginewright.core.decide.orphans import take_back
from enginewright.core.decide.quality import live_quality
from enginewright.core.decide.report import Findings, refuse, report
from enginewright.core.decide.scale import contested, replicas
from enginewright.core.decide.server_step import informed, server_step
from enginewright.core.decide.source import resolve
from enginewright.core.decide.strategy import desire
from enginewright.core.fleet import decide_fleet
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Plan
from enginewright.core.spec import Spec
from enginewright.core.spec.fleet import is_fleet


def decide(obj: ObjectView, observed: Observed, config: OperatorConfig) -> Plan:
    """What is to be done about ``obj`` now, and what its status is to say. The same world gives the same plan."""
    return conditional(_decide(obj, observed, config), observed)


def _decide(obj: ObjectView, observed: Observed, config: OperatorConfig) -> Plan:
    if obj.deleting:
        # Owner references take the children along; the engine stays in the store for others.
        return Plan(status=obj.status)
    if is_fleet(obj.spec):
        return decide_fleet(obj, observed, config)
    if observed.orphans:
        return take_back(obj, observed)
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return refuse(obj, observed, spec)
    ctx = PassContext.of(obj, observed, config, spec)
    if spec.batch is not None:
        return decide_batch(ctx, spec.batch)
    server = server_step(ctx)
    ctx = informed(ctx, server)
    source = resolve(ctx)
    engine = obtain(ctx, source, server)
    scale = replicas(ctx)
    quality = live_quality(ctx)
    target = targets.choose(ctx, engine, quality)
    desired = desire(target, scale.wanted)
    rollout = conclude(target, desired, scale.wanted)
    contest = contested(ctx, desired, rollout.memory)
    converged = converge(target, desired, contest)
    return report(ctx, Findings(
        server=server, source=source, engine=engine, scale=scale, quality=quality, target=target, desired=desired,
        rollout=rollout, contest=contest, converged=converged))


__all__ = ["decide"]

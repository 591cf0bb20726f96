"""The heart: from the object and the observed world to a plan. Pure, and walked anew from the start in every pass:

spec → server image → source → engine → serving → scale → goal → rollout → history → report

A fleet, which asks for several classes of devices, goes a shorter way: see :mod:`~enginewright.core.decide.fleet`.

Each step is a file, takes what the steps before it found, and returns data; each condition is set in one place only.
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.conditional import conditional
from enginewright.core.config import OperatorConfig
from enginewright.core.context import Memory, PassContext
from enginewright.core.decide.activation import with_activator
from enginewright.core.decide.approval import ask, with_approval
from enginewright.core.decide.contest import hold_back
from enginewright.core.decide.drift_back import drift_back
from enginewright.core.decide.engine_step import engine_step
from enginewright.core.decide.evidence import steady
from enginewright.core.decide.fall_back import fall_back
from enginewright.core.decide.fleet import decide_fleet
from enginewright.core.decide.gateway import with_routes
from enginewright.core.decide.history import history_step
from enginewright.core.decide.mirror_step import with_mirror
from enginewright.core.decide.pin import choose_goal, say
from enginewright.core.decide.quality_step import quality_step
from enginewright.core.decide.report import Findings, refuse, report
from enginewright.core.decide.rollout import with_source
from enginewright.core.decide.rollout_step import rollout_step
from enginewright.core.decide.scale_step import scale_step
from enginewright.core.decide.server_step import informed, server_step
from enginewright.core.decide.serving import Serving
from enginewright.core.decide.source_step import source_step
from enginewright.core.decide.spec_step import read_spec
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
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return refuse(obj, observed, spec)
    ctx = PassContext(obj=obj, observed=observed, config=config, spec=spec, memory=Memory.of(obj.status))
    server = server_step(ctx)
    ctx = informed(ctx, server)
    source = source_step(ctx)
    engine = engine_step(ctx, source, server)
    serving = Serving.of(observed, ctx.memory.rollout)
    scale = scale_step(ctx, serving)
    quality = quality_step(ctx, serving)
    wish = choose_goal(ctx, engine)
    goal = drift_back(ask(fall_back(wish, serving), serving), serving, quality)
    rollout = rollout_step(goal.ctx, goal.engine, serving, scale.wanted)
    rollout = say(goal, with_approval(goal, serving, scale.wanted, rollout))
    scale, rollout, contest = hold_back(ctx, scale, rollout)
    rollout = with_mirror(ctx, with_activator(ctx, serving, scale.wanted, with_routes(ctx, serving, rollout)))
    rollout = steady(ctx, rollout)
    digest = source.memory.digest if goal.ctx is ctx else None
    rollout = replace(rollout, memory=with_source(ctx.memory.rollout, rollout.memory, digest))
    return report(ctx, Findings(server=server, source=source, engine=engine, serving=serving, scale=scale,
                                  rollout=rollout,
                                  history=history_step(goal.ctx, goal.engine, wish.engine, rollout),
                                  quality=quality,
                                  pin=goal.memory, contest=contest))


__all__ = ["decide"]

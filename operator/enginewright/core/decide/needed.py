"""Which engine records a pass may look up: a namespace may hold any number of them, and a pass reads these alone."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.context import PassContext, read_spec
from enginewright.core.decide.engine.slice import fingerprints
from enginewright.core.decide.server_step import informed, server_step
from enginewright.core.decide.source import resolve, stated_fingerprints
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.spec import Spec


def needed_records(obj: ObjectView, observed: Observed, config: OperatorConfig) -> frozenset[str]:
    """Fingerprints: of the engines that the spec may lead to, of what serves, of what is kept, and of what status says
    is wanted. ``observed`` is all that the pass sees but the records."""
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return frozenset()
    ctx = PassContext.of(obj, observed, config, spec)
    ctx = informed(ctx, server_step(ctx))
    source = resolve(ctx).resolved
    found = {str(obj.status.get("fingerprint") or ""), *(one.fingerprint for one in observed.deployments)}
    found |= {kept.outcome.fingerprint for kept in observed.kept.values()}
    found |= fingerprints(ctx, source) if source else stated_fingerprints(ctx)
    return frozenset(found - {""})

"""What a pass may look up beyond the object's own children: engine records and leases of builds, of which a namespace
may hold any number, and what other objects know of the server image."""

from __future__ import annotations

from dataclasses import dataclass

from enginewright.core.config import OperatorConfig
from enginewright.core.context import PassContext, read_spec
from enginewright.core.decide.server_step import Unanswered, informed, server_step, unanswered
from enginewright.core.decide.slice import fingerprints
from enginewright.core.decide.source import resolve, stated_fingerprints
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.spec import Spec


@dataclass(frozen=True)
class NeededEngines:
    """Fingerprints of the engines that the spec may lead to, which another object may be ``building``; and of those of
    which a pass looks at ``records``: these, what serves, what is kept, and the one that status asks for."""

    building: frozenset[str] = frozenset()
    records: frozenset[str] = frozenset()


def needed_engines(obj: ObjectView, observed: Observed, config: OperatorConfig) -> NeededEngines:
    """``observed`` is all that the pass sees but records and leases."""
    ctx = _context(obj, observed, config)
    if ctx is None:
        return NeededEngines()
    ctx = informed(ctx, server_step(ctx))
    source = resolve(ctx).resolved
    asked = fingerprints(ctx, source) if source else stated_fingerprints(ctx)
    known = {str(obj.status.get("fingerprint") or ""), *(one.fingerprint for one in observed.deployments)}
    known |= {kept.outcome.fingerprint for kept in observed.kept.values()}
    return NeededEngines(asked, asked | known - {""})


def needed_answer(obj: ObjectView, observed: Observed, config: OperatorConfig) -> Unanswered | None:
    """What is not known of the server image; None where all is, or where the spec makes no sense. Of ``observed`` the
    serving pods are looked at."""
    ctx = _context(obj, observed, config)
    return unanswered(ctx) if ctx is not None else None


def _context(obj: ObjectView, observed: Observed, config: OperatorConfig) -> PassContext | None:
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return None
    return PassContext.of(obj, observed, config, spec)

"""What a pass may look up beyond the object's own children: engine records, of which a namespace may hold any number,
and what other objects know of the server image."""

from __future__ import annotations

from enginewright.core.config import OperatorConfig
from enginewright.core.decide.server_step import Unanswered, informed, server_step, unanswered
from enginewright.core.decide.slice_choice import fingerprints
from enginewright.core.decide.source_step import source_step
from enginewright.core.decide.spec_step import read_spec
from enginewright.core.decide.stated_source import stated_fingerprints
from enginewright.core.decide.world import Memory, World
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.spec import Spec


def needed_records(obj: ObjectView, observed: Observed, config: OperatorConfig) -> frozenset[str]:
    """Fingerprints: of the engines that the spec may lead to, of what serves, of what is kept, and of what status says
    is wanted. ``observed`` is all that the pass sees but the records."""
    world = _world(obj, observed, config)
    if world is None:
        return frozenset()
    world = informed(world, server_step(world))
    source = source_step(world).resolved
    found = {str(obj.status.get("fingerprint") or ""), *(one.fingerprint for one in observed.deployments)}
    found |= {kept.outcome.fingerprint for kept in observed.kept.values()}
    found |= fingerprints(world, source) if source else stated_fingerprints(world)
    return frozenset(found - {""})


def needed_answer(obj: ObjectView, observed: Observed, config: OperatorConfig) -> Unanswered | None:
    """What is not known of the server image; None where all is, or where the spec makes no sense. Of ``observed`` the
    serving pods are looked at."""
    world = _world(obj, observed, config)
    return unanswered(world) if world is not None else None


def _world(obj: ObjectView, observed: Observed, config: OperatorConfig) -> World | None:
    spec = read_spec(obj, config)
    if not isinstance(spec, Spec):
        return None
    return World(obj=obj, observed=observed, config=config, spec=spec, memory=Memory.of(obj.status))

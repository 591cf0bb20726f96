"""Which nodes the replicas of a new revision prefer: those on which they break up the least, by the planner.

A wish, not a demand: the scheduler weighs it with the spread over nodes, and takes any node when these are full. It is
made once, with the revision's Deployment, so that no plan ever rolls a pod (docs/adr/0013).
"""

from __future__ import annotations

from dataclasses import replace

from enginewright.core.decide.room import site
from enginewright.core.decide.world import World
from enginewright.core.observed import EngineRecord
from enginewright.core.placement import Placement, pinned
from enginewright.core.planner.planner import place
from enginewright.core.planner.spare import free_of

HOSTNAME = "kubernetes.io/hostname"
MOST = 8  # nodes that are ranked; the rest are equal


def preferred_nodes(world: World, record: EngineRecord, placement: Placement) -> tuple[str, ...]:
    """Host names, the best first; empty where nodes are not known, or there is nothing to choose."""
    engine = record.outcome.engine
    there = site(pinned(placement, engine.device if engine else ""), world.observed.nodes, world.obj.namespace)
    if there is None:
        return ()
    names = {node.name: node.labels.get(HOSTNAME, "") for node in there.usable}
    left = {node.name: (free_of(node, there.resource), node.name) for node in there.usable}
    # As they are cut now: a replica that starts today has no use for another layout. Of equals the fuller node first.
    gpus = [replace(gpu, layout="kept") for gpu in there.gpus if names.get(gpu.node)]
    gpus.sort(key=lambda gpu: (left[gpu.node], gpu.index))
    found: list[str] = []
    while len(found) < MOST and (seats := place([there.demand(1)], gpus, cut=False)):
        node = seats[0].node
        found.append(names[node])
        gpus = [gpu for gpu in gpus if gpu.node != node]
    return tuple(found) if len(names) > 1 else ()

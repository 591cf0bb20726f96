"""Which nodes the replicas of a new revision prefer: those on which they break up the least, by the planner.

A wish, not a demand: the scheduler weighs it with the spread over nodes, and takes any node when these are full. It is
made once, with the revision's Deployment, so that no plan ever rolls a pod (docs/adr/0013).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from enginewright.core.observed import EngineRecord, NodeView
from enginewright.core.placement import Placement, pinned
from enginewright.core.planner.nodes import boards_of
from enginewright.core.planner.planner import place
from enginewright.core.planner.site import LOOKED, site
from enginewright.core.planner.spare import free_of

HOSTNAME = "kubernetes.io/hostname"
MOST = 8  # nodes that are ranked; the rest are equal


def preferred_nodes(
    nodes: Sequence[NodeView] | None, namespace: str, record: EngineRecord, placement: Placement
) -> tuple[str, ...]:
    """Host names, the best first; empty where nodes are not known, or there is nothing to choose."""
    engine = record.outcome.engine
    there = site(pinned(placement, engine.device if engine else ""), nodes, namespace)
    if there is None:
        return ()
    names = {node.name: node.labels.get(HOSTNAME, "") for node in there.usable}
    # The fuller node first: of equals the planner takes what comes first.
    ranked = sorted((free_of(node, there.resource), node.name, node) for node in there.usable if names[node.name])
    boards = [boards_of(node) for free, _, node in ranked if free >= there.need][:LOOKED]
    # As they are cut now: a replica that starts today has no use for another layout.
    gpus = [replace(gpu, layout="kept") for found in boards if isinstance(found, list) for gpu in found]
    best: list[str] = []
    while len(best) < MOST and (seats := place([there.demand(1)], gpus, cut=False)):
        best.append(names[seats[0].node])
        gpus = [gpu for gpu in gpus if gpu.node != seats[0].node]
    return tuple(best) if len(names) > 1 else ()

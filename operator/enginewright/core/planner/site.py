"""Where pods of one placement may run, of the nodes that were seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from enginewright.core.observed import NodeView
from enginewright.core.placement import MIG_STATE_LABEL, PRODUCT_LABEL, Placement
from enginewright.core.planner.fleet import GPU, Demand, Option
from enginewright.core.planner.models import suits
from enginewright.core.planner.nodes import boards_of, product_of
from enginewright.core.planner.spare import free_of

LOOKED = 100  # nodes that are planned with: a pass must not take long


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where pods of one placement may run. ``usable`` are nodes that take them as they are, ``near`` those that would
    with another layout, too, of many those with the most free devices. ``closed`` would but for what keeps all pods
    away. Pods of other namespaces than ``namespace`` are not named: who may read an object of this one need not know of
    them."""

    namespace: str
    resource: str
    need: int
    option: Option
    usable: tuple[NodeView, ...]
    near: tuple[NodeView, ...]
    closed: tuple[NodeView, ...]

    @cached_property
    def gpus(self) -> tuple[GPU, ...]:
        """The boards of ``near``; those of a node that makes no sense are left out."""
        found = (boards_of(node) for node in self.near)
        return tuple(gpu for boards in found if isinstance(boards, list) for gpu in boards)

    def demand(self, replicas: int) -> Demand:
        return Demand(name="", replicas=replicas, options=(self.option,))


def site(placement: Placement | None, nodes: Sequence[NodeView] | None, namespace: str) -> Site | None:
    """None where nodes are not known, or devices are not counted by nodes (CPUs, claims)."""
    if nodes is None or placement is None or len(placement.limits) != 1:
        return None
    ((resource, need),) = placement.limits.items()
    device = placement.device
    fitting = [node for node in nodes if suits(node, placement)]
    near = [node for node in fitting if not node.closed]
    looked = {node.name for node in sorted(near, key=_room)[:LOOKED]}
    return Site(
        namespace=namespace, resource=resource, need=int(need),
        option=Option(profile=device.mig_profile, gpus=device.gpu_count,
                      products=device.products or _products(placement)),
        usable=tuple(node for node in near if _takes(node, placement)),
        near=tuple(node for node in near if node.name in looked),
        closed=tuple(node for node in fitting if node.closed and _takes(node, placement)),
    )


def _room(node: NodeView) -> tuple[int, str]:
    return -sum(free_of(node, resource) for resource in node.allocatable), node.name


def _takes(node: NodeView, placement: Placement) -> bool:
    """Whether the labels are right, too, that a new layout would change."""
    labelled = all(node.labels.get(key) == value for key, value in placement.node_selector.items()
                   if key in (PRODUCT_LABEL, MIG_STATE_LABEL))
    return labelled and all(node.labels.get(key) in values for key, values in _required(placement))


def _required(placement: Placement) -> list[tuple[str, list[str]]]:
    """(label, values): what :func:`~enginewright.core.placement.pinned` adds."""
    terms = (placement.node_affinity or {}).get("nodeSelectorTerms", ())
    return [(one["key"], one["values"]) for term in terms for one in term["matchExpressions"]]


def _products(placement: Placement) -> tuple[str, ...]:
    """Those that an engine was proven on; empty for any."""
    return tuple(sorted({product_of(value) for key, values in _required(placement) if key == PRODUCT_LABEL
                         for value in values}))

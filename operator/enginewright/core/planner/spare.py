"""What nodes have free by their own resources, and whose move would make room: all without guessing what lies where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginewright.core.observed import DeviceUse, NodeView

MOVED = 4  # pods that an advice names; moving more than these is a migration, not an advice
TRIED = 16  # nodes that are looked at


@dataclass(frozen=True, kw_only=True)
class Move:
    """``pods`` leave ``node`` for ``targets``, where there is room for them as things are."""

    node: str
    pods: tuple[DeviceUse, ...]
    targets: tuple[str, ...]


def free_of(node: NodeView, resource: str) -> int:
    """Devices that no pod of the node holds."""
    amount = node.allocatable.get(resource, "0")
    there = int(amount) if amount.isdecimal() else 0
    return max(0, there - sum(pod.devices.get(resource, 0) for pod in node.pods))


def best_move(nodes: Sequence[NodeView], helps: Callable[[NodeView, Sequence[DeviceUse]], bool]) -> Move | None:
    """The fewest pods of one node that ``helps`` says make room there when they are gone, and for which others of
    ``nodes`` have room; of equal ones the first by name. Small pods first: they find a place most easily."""
    found: list[Move] = []
    users = {node.name: sorted((pod for pod in node.pods if pod.devices), key=_size) for node in nodes}
    for node in sorted(nodes, key=lambda node: (len(users[node.name]), node.name))[:TRIED]:
        going: list[DeviceUse] = []
        for pod in users[node.name][:MOVED]:
            if _targets([*going, pod], node, nodes) is None:
                continue
            going.append(pod)
            if helps(node, going):
                targets = _targets(going, node, nodes) or ()
                found.append(Move(node=node.name, pods=tuple(going), targets=targets))
                break
    return min(found, key=lambda move: (len(move.pods), move.node), default=None)


def _size(pod: DeviceUse) -> tuple[int, str, str]:
    return sum(pod.devices.values()), pod.namespace, pod.pod


def _targets(pods: Sequence[DeviceUse], source: NodeView, nodes: Sequence[NodeView]) -> tuple[str, ...] | None:
    """Where ``pods`` find room, each on the first node that has it, the largest pod first; None where one does not."""
    spare = {node.name: {resource: free_of(node, resource) for resource in node.allocatable}
             for node in nodes if node is not source}
    found = set()
    for pod in sorted(pods, key=_size, reverse=True):
        fitting = [name for name, free in sorted(spare.items())
                   if all(free.get(resource, 0) >= count for resource, count in pod.devices.items())]
        if not fitting:
            return None
        found.add(fitting[0])
        for resource, count in pod.devices.items():
            spare[fitting[0]][resource] -= count
    return tuple(sorted(found))

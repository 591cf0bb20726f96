"""What stands in the way of pods that no node can take, by the planner: too few devices, devices in pieces, or boards
that are cut otherwise. It only says; nothing is moved and no layout is changed (docs/adr/0013)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from enginewright.core.observed import DeviceUse, NodeView, PodView
from enginewright.core.placement import GPU_RESOURCE, Placement
from enginewright.core.planner.explain import packed
from enginewright.core.planner.fleet import LayoutChange, Plan
from enginewright.core.planner.nodes import boards_of
from enginewright.core.planner.objects import SLICE_PREFIX, is_device
from enginewright.core.planner.planner import place, plan
from enginewright.core.planner.site import Site, site
from enginewright.core.planner.spare import best_move, free_of
from enginewright.core.quantity import count

NAMED = 3  # nodes or GPUs that a message names before it counts


def room(
    nodes: Sequence[NodeView] | None, namespace: str, placement: Placement | None, pods: Iterable[PodView]
) -> str:
    """Sentences that follow what the scheduler says of those of ``pods`` that no node can take; empty where there are
    none, or nothing is known."""
    waiting = sum(bool(pod.unschedulable) for pod in pods)
    there = site(placement, nodes, namespace) if waiting else None
    return f" {in_the_way(there, waiting)}" if there else ""


def in_the_way(there: Site, replicas: int) -> str:
    closed = _list([f"{node.name} ({node.closed})" for node in there.closed if _has(node, there.resource)])
    return _reason(there, replicas) + (f" Not counted: node {closed}." if closed else "")


def _reason(there: Site, replicas: int) -> str:
    free = {node.name: free_of(node, there.resource) for node in there.usable}
    if any(left >= there.need for left in free.values()):
        return f"Devices do not stand in the way: free are {_free(free, there.resource)}."
    if not there.gpus:
        return ("No node that it may run on has GPUs that are known (label nvidia.com/gpu.product): install NVIDIA's "
                "GPU operator, or let spec.placement name nodes that have GPUs, or accelerator: cpu.")
    made = plan([there.demand(replicas)], there.gpus)
    if made.seats:
        nodes = _list(sorted({seat.node for seat in made.seats}))
        return (f"What it needs is free on node {nodes}, whose labels are not those asked for: another MIG strategy, "
                f"or a layout that is not finished.")
    hardware = next((one.message for one in made.unplaced if one.why == "hardware"), "")
    if hardware:
        return f"It {hardware}."
    parts = []
    by_layout = sum(one.replicas for one in made.unplaced if one.why == "layout")
    if by_layout:
        parts.append(_proposal(there, made, by_layout, replicas))
    if by_layout < replicas:
        parts.append(_pieces(there, replicas, by_layout) or _too_few(there, by_layout))
    return " ".join(parts)


def _proposal(there: Site, made: Plan, fitting: int, replicas: int) -> str:
    busy = {node.name for node in there.near if any(pod.devices for pod in node.pods)}
    part = "it" if fitting == replicas == 1 else f"{fitting} of {count(replicas, 'pod')}"
    changes = _list([_change(change, change.node in busy) for change in made.changes])
    return (f"With another MIG layout {part} would fit: {changes}. This is a proposal, not carried out by the "
            "operator; "
            f"enginewright plan prints it for the MIG manager.")


def _change(change: LayoutChange, busy: bool) -> str:
    after = _layout(change.after) if change.after else "MIG off"
    idle = "nothing runs, if what runs on the node lies on others," if busy else "nothing runs,"
    return f"GPU {change.gpu} of node {change.node}, on which {idle} as {after} (now {_layout(change.before)})"


def _layout(instances: Iterable[tuple[str, int]]) -> str:
    found = Counter(profile for profile, _ in instances)
    return " + ".join(f"{number} × {profile}" for profile, number in sorted(found.items())) or "whole"


def _pieces(there: Site, replicas: int, by_layout: int) -> str:
    """Where there is enough in sum for more than ``by_layout``; empty where there is not."""
    if there.option.profile:
        free_to_cut = [replace(gpu, layout="proposal") for gpu in there.gpus]
        fitting = packed([there.demand(replicas)], free_to_cut)[""]
    else:
        fitting = by_layout + sum(free_of(node, there.resource) for node in there.usable) // there.need
    if fitting <= by_layout:
        return ""
    free = _list([_free({node.name: left}, resource) for node in there.near
                  for resource in sorted(filter(is_device, node.allocatable)) if (left := free_of(node, resource))])
    begin = "For the rest only" if by_layout else "Only"
    advice = "It would fit if what runs were repacked." if by_layout else _advice(there)
    return f"{begin} fragmentation stands in the way: free are {free or 'slices beside those in use'}. {advice}"


def _advice(there: Site) -> str:
    move = best_move(there.near, lambda node, going: _would_fit(there, node, going))
    if move is None:
        return "It would fit if what runs were repacked."
    own = [pod.pod for pod in move.pods if pod.namespace == there.namespace]
    others = len(move.pods) - len(own)
    pods = _list([*own, *([f"{count(others, 'pod')} of other namespaces"] if others else [])])
    room = f"{there.need} GPUs" if there.need > 1 else "a GPU that can be cut for it"
    return f"Moving {pods} from node {move.node} to {_list(list(move.targets))} would free {room} on {move.node}."


def _would_fit(there: Site, node: NodeView, going: Sequence[DeviceUse]) -> bool:
    """Once ``going`` have left ``node``. Slices only when nothing runs on it any more: which of them lie on one board,
    nodes do not tell."""
    rest = replace(node, pods=tuple(pod for pod in node.pods if pod not in going))
    if not there.option.profile:
        return node in there.usable and free_of(rest, there.resource) >= there.need
    boards = boards_of(rest)
    if any(pod.devices for pod in rest.pods) or not isinstance(boards, list):
        return False
    return bool(place([there.demand(1)], boards, cut=True))


def _too_few(there: Site, by_layout: int) -> str:
    total = sum(_has(node, there.resource) for node in there.usable)
    begin = "For the rest there is" if by_layout else "There is"
    if not total:
        return f"{begin} no {there.resource} on any node that it may run on, and no idle GPU to cut for it."
    used = total - sum(free_of(node, there.resource) for node in there.usable)
    recut = ", and other layouts of idle GPUs would not make room" if there.option.profile else ""
    where = f"on the nodes that it may run on ({len(there.usable)})"
    return f"{begin} not enough: {used} of {total} × {there.resource} {where} are in use{recut}."


def _has(node: NodeView, resource: str) -> int:
    amount = node.allocatable.get(resource, "")
    return int(amount) if amount.isdecimal() else 0


def _free(free: Mapping[str, int], resource: str) -> str:
    unit = "GPU" if resource == GPU_RESOURCE else resource.removeprefix(SLICE_PREFIX)
    return _list([f"{left} × {unit} on node {name}" for name, left in free.items() if left])


def _list(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    shown = [*names[:NAMED], *([f"{more} more"] if more > 0 else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))

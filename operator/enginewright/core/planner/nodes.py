"""From nodes and pods as the cluster has them to the boards of a fleet.

Nodes say how many slices of each profile they have, not on which board or where: that is inferred, each board cut alike
where the numbers allow it, and what runs is put on the first boards. So boards on which something runs are kept as they
are; a layout is proposed only for idle ones. Labels are those of GPU feature discovery, resources those of NVIDIA's
device plugin (NVIDIA/k8s-device-plugin: internal/lm/mig-strategy.go, internal/rm/device_map.go).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from enginewright.core import mig
from enginewright.core.observed import DeviceUse, NodeView
from enginewright.core.placement import GPU_RESOURCE, PRODUCT_LABEL
from enginewright.core.planner.fleet import GPU, Demand, Instance, Option
from enginewright.core.planner.objects import SLICE_PREFIX, Object, views_of
from enginewright.core.planner.planner import occupied, place
from enginewright.core.problems import Problem
from enginewright.core.spec.parse import show

COUNT_LABEL = "nvidia.com/gpu.count"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """``running`` counts replicas by (namespace, model). ``notes`` are what was left out or inferred, for people."""

    gpus: tuple[GPU, ...]
    nodes: tuple[NodeView, ...]
    running: Mapping[tuple[str, str], int]
    notes: tuple[str, ...]


def fleet_of(objects: Sequence[Object]) -> Fleet | list[Problem]:
    """``objects`` are Nodes and Pods; others are passed over. Nodes without NVIDIA GPUs are, too."""
    views = views_of(objects)
    gpus: list[GPU] = []
    used_nodes, notes, problems = [], [], []
    for node in views:
        if node.closed:
            notes.append(f"node {node.name} is left out: it is {node.closed}")
            continue
        boards = boards_of(node)
        if isinstance(boards, Problem):
            problems.append(boards)
        elif boards:
            used_nodes.append(node)
            gpus += boards
    if not any(one.get("kind") == "Pod" for one in objects):
        notes.append("no pods are given, so all GPUs count as free")
    if any(gpu.instances for gpu in gpus):
        notes.append("nodes do not publish the positions of slices: they are inferred")
    return problems or Fleet(gpus=tuple(gpus), nodes=tuple(used_nodes), running=_running(views), notes=tuple(notes))


def boards_of(node: NodeView) -> list[GPU] | Problem:
    """The node's boards with what runs on them; none where it has no NVIDIA GPU. Those in use are kept as they are."""
    boards = _boards(node)
    if isinstance(boards, Problem):
        return boards
    return [_kept(gpu) for gpu in _with_pods(boards, node.pods)]


def product_of(label: str) -> str:
    """The product in the value of the label, which has suffixes for slices and sharing."""
    return label.removesuffix("-SHARED").partition("-MIG-")[0]


def _boards(node: NodeView) -> list[GPU] | Problem:
    """The node's boards, nothing running on them."""
    resources: dict[str, int] = {}
    for name, amount in node.allocatable.items():
        if not re.fullmatch(r"\d+", amount):
            return _problem(node, f"status.allocatable[{name}]", amount, "is not a number of devices", "write a number")
        resources[name] = int(amount)
    if not any(resources.values()):
        return []
    label = node.labels.get(PRODUCT_LABEL, "")
    if not label:
        return _problem(node, f"metadata.labels[{PRODUCT_LABEL}]", label, "is missing, so its GPUs are unknown",
                        "run GPU feature discovery (part of NVIDIA's GPU operator) on it, or set the label")
    product, single = product_of(label), label.removesuffix("-SHARED").partition("-MIG-")[2]
    slices = {name.removeprefix(SLICE_PREFIX): count for name, count in resources.items() if name != GPU_RESOURCE}
    whole = resources.get(GPU_RESOURCE, 0)
    if single:  # strategy single: the slices are called nvidia.com/gpu
        slices, whole = {single: whole}, 0
    return _cut(node, product, whole, {name.replace(".me", "+me"): n for name, n in slices.items() if n}, bool(single))


def _cut(node: NodeView, product: str, whole: int, slices: Mapping[str, int], single: bool) -> list[GPU] | Problem:
    unknown = [name for name in slices if mig.profile(product, name) is None]
    if unknown:
        return _problem(node, f"status.allocatable[{SLICE_PREFIX}{unknown[0]}]", slices[unknown[0]],
                        f"is not a profile of {product}", "correct the label of its product")
    boards = _number_of_boards(node, product, whole, slices, single)
    if isinstance(boards, Problem):
        return boards
    gpus = [GPU(node=node.name, index=index, product=product) for index in range(whole + boards)]
    cut = _layouts(product, boards, slices)
    if cut is None:
        return _problem(node, "status.allocatable", dict(slices), f"is more than {boards} boards of {product} can hold",
                        f"correct the label {COUNT_LABEL}")
    return [replace(gpu, mig=True, instances=layout) for gpu, layout in zip(gpus, cut, strict=False)] + gpus[boards:]


def _number_of_boards(
    node: NodeView, product: str, whole: int, slices: Mapping[str, int], single: bool
) -> int | Problem:
    """Boards in MIG mode: all but the whole ones; with strategy single the label counts slices, so that they are
    inferred."""
    count = node.labels.get(COUNT_LABEL, "")
    if single or not count:
        return next((n for n in range(sum(slices.values()) + 1) if _layouts(product, n, slices) is not None), 0)
    if not re.fullmatch(r"\d+", count) or int(count) < whole:
        return _problem(node, f"metadata.labels[{COUNT_LABEL}]", count, f"is not the number of its GPUs, {whole} of "
                        "which are whole", "correct the label")
    return int(count) - whole


def _layouts(product: str, boards: int, slices: Mapping[str, int]) -> list[tuple[Instance, ...]] | None:
    return _layouts_of(product, boards, tuple(slices.items()))


@lru_cache(maxsize=1024)  # a fleet has many nodes and few ways to cut one, and the operator looks again and again
def _layouts_of(product: str, boards: int, counts: tuple[tuple[str, int], ...]) -> list[tuple[Instance, ...]] | None:
    """Each board alike where the numbers allow it, else packed; None where they do not fit."""
    slices = dict(counts)
    each = {name: count // boards for name, count in slices.items()} if boards else {}
    if boards and all(each[name] * boards == count for name, count in slices.items()):
        alike = _packed(product, 1, each)
        if alike is not None:
            return alike * boards
    return _packed(product, boards, slices)


def _packed(product: str, boards: int, slices: Mapping[str, int]) -> list[tuple[Instance, ...]] | None:
    """With the planner itself, on boards that are free to be cut."""
    empty = [GPU(node="", index=index, product=product, layout="dynamic") for index in range(boards)]
    demands = [Demand(name=name, replicas=count, options=(Option(profile=name.removesuffix("+me")),))
               for name, count in slices.items() if count]
    seats = place(demands, empty, cut=True)
    if len(seats) < sum(slices.values()):
        return None
    named = {(seat.gpus[0], seat.start): seat.demand for seat in seats}
    return [tuple(Instance(profile=named[gpu.index, i.start], start=i.start) for i in gpu.instances)
            for gpu in occupied(empty, seats)]


def _with_pods(boards: Sequence[GPU], pods: Sequence[DeviceUse]) -> list[GPU]:
    """Each pod on the first free slices or boards of those that it asks for."""
    found = list(boards)
    single = not any(not gpu.mig for gpu in boards)
    for pod in pods:
        for resource, count in pod.devices.items():
            for _ in range(count):
                profile = resource.removeprefix(SLICE_PREFIX).replace(".me", "+me")
                _take(found, "" if resource == GPU_RESOURCE else profile, pod.pod, single)
    return found


def _take(gpus: list[GPU], profile: str, user: str, single: bool) -> None:
    for place_, gpu in enumerate(gpus):
        if not profile and not gpu.mig and not gpu.used_by:
            gpus[place_] = replace(gpu, used_by=user)
            return
        for number, instance in enumerate(gpu.instances):
            if not instance.used_by and (instance.profile == profile or (single and not profile)):
                taken = replace(instance, used_by=user)
                gpus[place_] = replace(gpu, instances=(*gpu.instances[:number], taken, *gpu.instances[number + 1:]))
                return


def _kept(gpu: GPU) -> GPU:
    return gpu if gpu.idle else replace(gpu, layout="kept")


def _running(nodes: Iterable[NodeView]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for pod in (pod for node in nodes for pod in node.pods if pod.model):
        found[pod.namespace, pod.model] = found.get((pod.namespace, pod.model), 0) + 1
    return found


def _problem(node: NodeView, field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=f"node {node.name}: {field}", value=show(value), message=message, remedy=remedy)

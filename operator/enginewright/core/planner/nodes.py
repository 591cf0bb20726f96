"""From nodes and pods as the cluster has them to the boards of a fleet.

Nodes say how many slices of each profile they have, not on which board or where: that is inferred, each board cut alike
where the numbers allow it, and what runs is put on the first boards. So boards on which something runs are kept as they
are; a layout is proposed only for idle ones. Labels are those of GPU feature discovery, resources those of NVIDIA's
device plugin (NVIDIA/k8s-device-plugin: internal/lm/mig-strategy.go, internal/rm/device_map.go).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from enginewright.core import mig
from enginewright.core.labels import COMPONENT, COMPONENT_SERVER, MODEL
from enginewright.core.placement import GPU_RESOURCE, PRODUCT_LABEL
from enginewright.core.planner.fleet import GPU, Demand, Instance, Option
from enginewright.core.planner.planner import occupied, place
from enginewright.core.problems import Problem
from enginewright.core.spec.parse import show

COUNT_LABEL = "nvidia.com/gpu.count"
SLICE_PREFIX = "nvidia.com/mig-"
ENDED = ("Succeeded", "Failed")

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """``running`` counts replicas by (namespace, model). ``notes`` are what was left out or inferred, for people."""

    gpus: tuple[GPU, ...]
    nodes: tuple[Object, ...]
    running: Mapping[tuple[str, str], int]
    notes: tuple[str, ...]


def fleet_of(objects: Sequence[Object]) -> Fleet | list[Problem]:
    """``objects`` are Nodes and Pods; others are passed over. Nodes without NVIDIA GPUs are, too."""
    pods = [one for one in objects if one.get("kind") == "Pod" and _runs(one)]
    gpus: list[GPU] = []
    used_nodes, notes, problems = [], [], []
    for node in sorted((one for one in objects if one.get("kind") == "Node"), key=_name):
        if _ready(node) is not None:
            notes.append(f"node {_name(node)} is left out: it is {_ready(node)}")
            continue
        boards = _boards(node)
        if isinstance(boards, Problem):
            problems.append(boards)
        elif boards:
            used_nodes.append(node)
            mine = [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") == _name(node)]
            gpus += [_kept(gpu) for gpu in _with_pods(boards, mine)]
    if not any(one.get("kind") == "Pod" for one in objects):
        notes.append("no pods are known, so that all GPUs count as free")
    if any(gpu.instances for gpu in gpus):
        notes.append("nodes do not say which slice lies where: positions are inferred")
    return problems or Fleet(gpus=tuple(gpus), nodes=tuple(used_nodes), running=_running(pods), notes=tuple(notes))


def _name(one: Object) -> str:
    return str((one.get("metadata") or {}).get("name") or "")


def labels(one: Object) -> Mapping[str, str]:
    return (one.get("metadata") or {}).get("labels") or {}


def _runs(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName")) and (pod.get("status") or {}).get("phase") not in ENDED


def _ready(node: Object) -> str | None:
    """What keeps pods from it, or None."""
    if (node.get("spec") or {}).get("unschedulable"):
        return "cordoned"
    conditions = (node.get("status") or {}).get("conditions") or []
    return "not ready" if any(c.get("type") == "Ready" and c.get("status") != "True" for c in conditions) else None


def _boards(node: Object) -> list[GPU] | Problem:
    """The node's boards, nothing running on them."""
    resources: dict[str, int] = {}
    for name, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
        if name != GPU_RESOURCE and not name.startswith(SLICE_PREFIX):
            continue
        if not re.fullmatch(r"\d+", str(amount)):
            return _problem(node, f"status.allocatable[{name}]", amount, "is not a number of devices", "write a number")
        resources[name] = int(amount)
    if not any(resources.values()):
        return []
    label = labels(node).get(PRODUCT_LABEL, "")
    if not label:
        return _problem(node, f"metadata.labels[{PRODUCT_LABEL}]", label, "is missing, so that its GPUs are not known",
                        "run GPU feature discovery (part of NVIDIA's GPU operator) on it, or set the label")
    product, _, single = label.removesuffix("-SHARED").partition("-MIG-")
    slices = {name.removeprefix(SLICE_PREFIX): count for name, count in resources.items() if name != GPU_RESOURCE}
    whole = resources.get(GPU_RESOURCE, 0)
    if single:  # strategy single: the slices are called nvidia.com/gpu
        slices, whole = {single: whole}, 0
    return _cut(node, product, whole, {name.replace(".me", "+me"): n for name, n in slices.items() if n}, bool(single))


def _cut(node: Object, product: str, whole: int, slices: Mapping[str, int], single: bool) -> list[GPU] | Problem:
    unknown = [name for name in slices if mig.profile(product, name) is None]
    if unknown:
        return _problem(node, f"status.allocatable[{SLICE_PREFIX}{unknown[0]}]", slices[unknown[0]],
                        f"is no profile of {product}", "correct the label of its product")
    boards = _number_of_boards(node, product, whole, slices, single)
    if isinstance(boards, Problem):
        return boards
    gpus = [GPU(node=_name(node), index=index, product=product) for index in range(whole + boards)]
    cut = _layouts(product, boards, slices)
    if cut is None:
        return _problem(node, "status.allocatable", dict(slices), f"is more than {boards} boards of {product} can hold",
                        f"correct the label {COUNT_LABEL}")
    return [replace(gpu, mig=True, instances=layout) for gpu, layout in zip(gpus, cut, strict=False)] + gpus[boards:]


def _number_of_boards(
    node: Object, product: str, whole: int, slices: Mapping[str, int], single: bool
) -> int | Problem:
    """Boards in MIG mode: all but the whole ones; with strategy single the label counts slices, so that they are
    inferred."""
    count = labels(node).get(COUNT_LABEL, "")
    if single or not count:
        return next((n for n in range(sum(slices.values()) + 1) if _layouts(product, n, slices) is not None), 0)
    if not re.fullmatch(r"\d+", count) or int(count) < whole:
        return _problem(node, f"metadata.labels[{COUNT_LABEL}]", count, f"is not the number of its GPUs, {whole} of "
                        "which are whole", "correct the label")
    return int(count) - whole


def _layouts(product: str, boards: int, slices: Mapping[str, int]) -> list[tuple[Instance, ...]] | None:
    """Each board alike where the numbers allow it, else packed; None where they do not fit."""
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


def _with_pods(boards: Sequence[GPU], pods: Sequence[Object]) -> list[GPU]:
    """Each pod on the first free slices or boards of those that it asks for."""
    found = list(boards)
    single = not any(not gpu.mig for gpu in boards)
    for pod in sorted(pods, key=_name):
        for resource, count in _asks(pod).items():
            for _ in range(count):
                profile = resource.removeprefix(SLICE_PREFIX).replace(".me", "+me")
                _take(found, "" if resource == GPU_RESOURCE else profile, _name(pod), single)
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


def _asks(pod: Object) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in (pod.get("spec") or {}).get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        for name, amount in limits.items():
            if (name == GPU_RESOURCE or name.startswith(SLICE_PREFIX)) and re.fullmatch(r"\d+", str(amount)):
                total[name] = total.get(name, 0) + int(amount)
    return total


def _kept(gpu: GPU) -> GPU:
    return gpu if gpu.idle else replace(gpu, layout="kept")


def _running(pods: Sequence[Object]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for pod in pods:
        model = labels(pod).get(MODEL)
        if model and labels(pod).get(COMPONENT) == COMPONENT_SERVER:
            key = (str(pod["metadata"].get("namespace") or "default"), model)
            found[key] = found.get(key, 0) + 1
    return found


def _problem(node: Object, field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=f"node {_name(node)}: {field}", value=show(value), message=message, remedy=remedy)

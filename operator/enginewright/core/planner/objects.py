"""Nodes and pods, as the apiserver has them, to what is planned with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from enginewright.core.asks import requests_of
from enginewright.core.labels import COMPONENT, COMPONENT_SERVER, MODEL
from enginewright.core.observed import DeviceUse, NodeView
from enginewright.core.placement import GPU_RESOURCE

SLICE_PREFIX = "nvidia.com/mig-"
ENDED = ("Succeeded", "Failed")

Object = Mapping[str, Any]


def views_of(objects: Iterable[Object]) -> tuple[NodeView, ...]:
    """``objects`` are Nodes and Pods; others are passed over. By name."""
    nodes, pods = [], []
    for one in objects:
        if one.get("kind") == "Node":
            nodes.append(one)
        elif one.get("kind") == "Pod":
            pods.append(one)
    on: dict[str, list[Object]] = {}
    for pod in pods:
        on.setdefault(str((pod.get("spec") or {}).get("nodeName") or ""), []).append(pod)
    return tuple(node_view(node, on.get(name_of(node), ())) for node in sorted(nodes, key=name_of))


def node_view(node: Object, pods: Iterable[Object]) -> NodeView:
    """``pods`` are those bound to the node; those that have ended hold nothing."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return NodeView(
        name=name_of(node), labels=_labels(node), taints=tuple((node.get("spec") or {}).get("taints") or ()),
        allocatable={name: str(amount) for name, amount in allocatable.items() if is_device(name)},
        closed=_closed(node),
        pods=tuple(_use(pod) for pod in sorted(pods, key=name_of)
                   if (pod.get("status") or {}).get("phase") not in ENDED),
    )


def name_of(one: Object) -> str:
    return str((one.get("metadata") or {}).get("name") or "")


def is_device(resource: str) -> bool:
    return resource == GPU_RESOURCE or resource.startswith(SLICE_PREFIX)


def _labels(one: Object) -> Mapping[str, str]:
    return (one.get("metadata") or {}).get("labels") or {}


def _closed(node: Object) -> str:
    if (node.get("spec") or {}).get("unschedulable"):
        return "cordoned"
    conditions = (node.get("status") or {}).get("conditions") or []
    return "not ready" if any(c.get("type") == "Ready" and c.get("status") != "True" for c in conditions) else ""


def _use(pod: Object) -> DeviceUse:
    replica = _labels(pod).get(COMPONENT) == COMPONENT_SERVER
    return DeviceUse(pod=name_of(pod), namespace=str((pod.get("metadata") or {}).get("namespace") or "default"),
                     model=_labels(pod).get(MODEL, "") if replica else "", devices=_asks(pod))


def _asks(pod: Object) -> dict[str, int]:
    """Devices alone."""
    return {name: int(amount) for name, amount in requests_of(pod).items() if is_device(name) and amount >= 1}

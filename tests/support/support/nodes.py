"""Nodes and pods as an apiserver gives them, as far as the planner looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def node(name: str, product: str, *, count: int | None = None, **devices: int) -> dict[str, Any]:
    """``devices`` by the resource's name without ``nvidia.com/``; ``count`` is the label with the number of GPUs."""
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    if product:
        labels["nvidia.com/gpu.product"] = product
    if count is not None:
        labels["nvidia.com/gpu.count"] = str(count)
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {},
        "status": {"allocatable": {"cpu": "64", **{f"nvidia.com/{key}": str(n) for key, n in devices.items()}},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    name: str, on: str, limits: Mapping[str, int], *, labels: Mapping[str, str] | None = None, phase: str = "Running"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels or {})},
        "spec": {**({"nodeName": on} if on else {}),
                 "containers": [{"name": "main", "resources": {"limits": {k: str(n) for k, n in limits.items()}}}]},
        "status": {"phase": phase},
    }

"""Of a pod that no node can take: what it asks for, and which field asks for less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from enginewright.core.observed import PodView
from enginewright.core.placement import Placement


class Asked(StrEnum):
    """Where a pod's requests of ``{}`` (cpu, memory) are stated."""

    BUILD = "spec.engine.resources.requests.{}"
    REPLICA = "spec.serving.resources.requests.{}"
    SMALL_JOB = "config.resolveResources.requests.{} of the operator's chart"
    ELSEWHERE = ""  # in a spec that is another one by now


_PLACED = (Asked.BUILD, Asked.REPLICA)
_SHORT = re.compile(r"Insufficient (cpu|memory|ephemeral-storage)")
_LABELS = re.compile(r"node affinity/selector|node selector")
_TAINT = "untolerated taint"


def no_node(pod: PodView, asked_in: Asked, placement: Placement | None) -> str:
    """The scheduler's words, what the pod asks for, and what to change. ``placement`` tells of a claimed device."""
    return "".join((f"No node can take pod {pod.name}: {pod.unschedulable.rstrip('.')}.", _unbound(pod),
                    _wishes(pod, placement), *(f" {remedy}" for remedy in _remedies(pod.unschedulable, asked_in))))


def _unbound(pod: PodView) -> str:
    if "unbound immediate PersistentVolumeClaims" not in pod.unschedulable:
        return ""
    return (" A claim that it mounts has no volume, mostly for lack of a storage class that can do its access mode; "
            "the events of the claim say why.")


def _wishes(pod: PodView, placement: Placement | None) -> str:
    wants = [f"{name}: {amount}" for name, amount in sorted(pod.requests.items())]
    if placement and placement.claim:
        wants.append(f"a device of class {placement.claim.device_class} ({placement.claim.expression})")
    nodes = ", ".join(f"{key}={value}" for key, value in sorted(pod.node_selector.items()))
    text = " and ".join(filter(None, (", ".join(wants[:-1]), *wants[-1:])))
    asked = " on ".join(filter(None, (text, f"nodes labelled {nodes}" if nodes else "")))
    return f" It asks for {asked}; check with: kubectl describe nodes." if asked else ""


def _remedies(message: str, asked_in: Asked) -> Iterator[str]:
    if asked_in:
        for name in sorted(set(_SHORT.findall(message))):
            yield f"Set a lower {asked_in.format(name)}, or add a node with more {name} to spare."
    if asked_in in _PLACED and _LABELS.search(message):
        yield "Label a node so, or change spec.placement."
    if asked_in in _PLACED and _TAINT in message:
        yield "Tolerate the taint in spec.placement.tolerations."

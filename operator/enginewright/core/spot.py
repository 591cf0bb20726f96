"""Spot nodes: capacity that costs less and may be taken back at any moment.

Providers and Karpenter label such nodes, and some taint them by the same key and value: GKE with
``cloud.google.com/gke-spot`` (``gke-preemptible`` the older kind), EKS ``eks.amazonaws.com/capacityType``, AKS
``kubernetes.azure.com/scalesetpriority``, Karpenter ``karpenter.sh/capacity-type``. Which labels count is a setting of
the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from enginewright.core.placement import Placement

Wish = Literal["Prefer", "Require"]


@dataclass(frozen=True, kw_only=True)
class Preferring(Placement):
    """A placement of pods that rather run on some nodes: ``terms`` are weighted. Made for a manifest alone; what is
    kept of a revision, and what engines are distinguished by, is the placement without."""

    terms: tuple[Mapping[str, Any], ...] = ()


def on_spot(placement: Placement, wish: Wish | None, nodes: Mapping[str, str]) -> Placement:
    """``placement`` on nodes that have one of the labels ``nodes``, with their taints tolerated. As it is without a
    ``wish``, or where no label tells a spot node."""
    if wish is None or not nodes:
        return placement
    taints = tuple({"key": key, "operator": "Equal", "value": value} for key, value in sorted(nodes.items()))
    alternatives = [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(nodes.items())]
    tolerated = replace(placement, tolerations=(*placement.tolerations, *taints))
    if wish == "Prefer":
        return Preferring(
            **{one.name: getattr(tolerated, one.name) for one in fields(tolerated)},
            terms=tuple({"weight": 100, "preference": {"matchExpressions": [one]}} for one in alternatives))
    return replace(tolerated, node_affinity={"nodeSelectorTerms": [
        _with(term, one) for term in (placement.node_affinity or {}).get("nodeSelectorTerms", ({},))
        for one in alternatives]})


def _with(term: Mapping[str, Any], expression: Mapping[str, Any]) -> dict[str, Any]:
    return {**term, "matchExpressions": [*term.get("matchExpressions", ()), expression]}

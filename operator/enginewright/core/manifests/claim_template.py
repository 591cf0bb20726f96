"""The ResourceClaimTemplate of a placement that uses Dynamic Resource Allocation."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.manifests.common import DEVICE_CLAIM, JSON, Owner, claim_template_name, metadata, sealed
from enginewright.core.placement import Placement

__all__ = ["claim_template", "claim_template_name"]


def claim_template(owner: Owner, placement: Placement) -> JSON | None:
    """None where the placement claims nothing."""
    claim = placement.claim
    if claim is None:
        return None
    request = {
        "name": DEVICE_CLAIM,
        "exactly": {
            "deviceClassName": claim.device_class,
            "allocationMode": "ExactCount",
            "count": claim.count,
            "selectors": [{"cel": {"expression": claim.expression}}],
        },
    }
    return sealed({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata(owner, claim_template_name(owner.name, placement), labels.COMPONENT_SERVER),
        "spec": {"spec": {"devices": {"requests": [request]}}},
    })

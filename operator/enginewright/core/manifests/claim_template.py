"""The ResourceClaimTemplate of a placement that uses Dynamic Resource Allocation."""

from __future__ import annotations

from enginewright.core.manifests.common import JSON, Owner
from enginewright.core.placement import Placement


def claim_template_name(owner_name: str, placement: Placement) -> str:
    """``<om>-<8 of a hash of what is claimed>``: templates are immutable."""
    raise NotImplementedError


def claim_template(owner: Owner, placement: Placement) -> JSON | None:
    """None where the placement claims nothing."""
    raise NotImplementedError

"""The PodDisruptionBudget of all serving pods."""

from __future__ import annotations

from enginewright.core.manifests.common import JSON, Owner


def pdb(owner: Owner) -> JSON:
    """Named as the object."""
    raise NotImplementedError

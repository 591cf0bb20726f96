"""The Service in front of the replicas."""

from __future__ import annotations

from enginewright.core.manifests.common import JSON, Owner


def service(owner: Owner, revision: str = "") -> JSON:
    """Named as the object. Selects every revision, or only ``revision`` where given."""
    raise NotImplementedError

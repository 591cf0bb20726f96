"""What a fleet is made of: an ``OptimisedModel`` for each of its classes, and one Service before all their replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginewright.core import labels
from enginewright.core.manifests.common import JSON, Owner, metadata, sealed, short_hash
from enginewright.core.manifests.service import model_service
from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.spec.fleet import member_name


def fleet_service(owner: Owner, server: Server = TRITON) -> JSON:
    """Named as the fleet; selects the replicas of all classes."""
    return model_service(owner, labels.fleet_selector(owner.name), server)


def member(owner: Owner, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> JSON:
    """The object that serves class ``name`` as ``spec`` says; ``annotations`` are what the fleet wishes of it."""
    extra = {labels.FLEET: owner.name, labels.CLASS: name}
    noted = {labels.MEMBER_KEY: member_key(spec), **annotations}
    return sealed({
        "apiVersion": labels.API_VERSION,
        "kind": labels.KIND,
        "metadata": metadata(owner, member_name(owner.name, name), labels.COMPONENT_CLASS, extra=extra,
                             annotations=noted),
        "spec": dict(spec),
    })


def member_key(spec: Mapping[str, Any]) -> str:
    """16 hex digits over a member's spec, kept beside it: what was taken out of the spec shows in nothing else."""
    return short_hash(spec, 16)

"""The Gateway API's routes to the replicas (gateway.networking.k8s.io/v1), split by weight between revisions.

Each is named as the object, and each of its backends is the Service of one revision. ``weights`` maps revisions to
shares that sum to 100; a revision without a share is left out, so that its Service may go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginewright.core import labels
from enginewright.core.manifests.common import JSON, Owner, metadata, sealed
from enginewright.core.manifests.service import revision_service_name
from enginewright.core.routing import API_VERSION, GRPC_ROUTE, HTTP_ROUTE
from enginewright.core.servers import Server
from enginewright.core.servers.triton import TRITON
from enginewright.core.spec.gateway import GatewaySpec, ParentRefSpec

WHOLE = 100
# The Open Inference Protocol's: https://github.com/kserve/open-inference-protocol
GRPC_SERVICE = "inference.GRPCInferenceService"


def http_route(owner: Owner, gateway: GatewaySpec, weights: Mapping[str, int], server: Server = TRITON) -> JSON:
    """Raises ValueError when ``weights`` don't sum to 100."""
    match = {"path": {"type": "PathPrefix", "value": server.api_prefix}}
    return _route(HTTP_ROUTE, owner, gateway, gateway.hostnames, match, _backends(owner, weights, labels.HTTP_PORT))


def grpc_route(owner: Owner, gateway: GatewaySpec, weights: Mapping[str, int]) -> JSON:
    """Raises ValueError when ``weights`` don't sum to 100."""
    match = {"method": {"type": "Exact", "service": GRPC_SERVICE}}
    backends = _backends(owner, weights, labels.GRPC_PORT)
    return _route(GRPC_ROUTE, owner, gateway, gateway.grpc_hostnames, match, backends)


def routes(owner: Owner, gateway: GatewaySpec, weights: Mapping[str, int],
           server: Server = TRITON) -> tuple[JSON, ...]:
    """All that ``gateway`` asks for."""
    found = (http_route(owner, gateway, weights, server),)
    return (*found, grpc_route(owner, gateway, weights)) if gateway.grpc_hostnames else found


def _route(
    kind: str, owner: Owner, gateway: GatewaySpec, hostnames: Sequence[str], match: JSON, backends: list[JSON]
) -> JSON:
    return sealed({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": metadata(owner, owner.name, labels.COMPONENT_SERVER),
        "spec": {
            "parentRefs": [_parent(parent) for parent in gateway.parent_refs],
            "hostnames": list(hostnames),
            "rules": [{"matches": [match], "backendRefs": backends}],
        },
    })


def _parent(parent: ParentRefSpec) -> JSON:
    """With the defaults that the apiserver fills in: they are part of the key of server-side apply's list."""
    found = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": parent.name}
    if parent.namespace:
        found["namespace"] = parent.namespace
    if parent.section_name:
        found["sectionName"] = parent.section_name
    return found


def _backends(owner: Owner, weights: Mapping[str, int], port: int) -> list[JSON]:
    if sum(weights.values()) != WHOLE or min(weights.values()) < 0:
        raise ValueError(f"weights must be shares of {WHOLE}: {dict(weights)}")
    return [
        {"group": "", "kind": "Service", "name": revision_service_name(owner.name, revision), "port": port,
         "weight": weight}
        for revision, weight in sorted(weights.items())
        if weight
    ]

"""The Service in front of the replicas, and one of each revision for routes that split the traffic by weight."""

from __future__ import annotations

from enginewright.core import labels
from enginewright.core.manifests.common import JSON, Owner, metadata, sealed


def service(owner: Owner, revision: str = "") -> JSON:
    """Named as the object. Selects every revision, or only ``revision`` where given."""
    selector = labels.revision_selector(owner.name, revision) if revision else labels.model_selector(owner.name)
    return sealed({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, owner.name, labels.COMPONENT_SERVER),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [
                _port(labels.PORT_HTTP, labels.HTTP_PORT, "http"),
                _port(labels.PORT_GRPC, labels.GRPC_PORT, "kubernetes.io/h2c"),
                _port(labels.PORT_METRICS, labels.METRICS_PORT, "http"),
            ],
        },
    })


def revision_service_name(owner_name: str, revision: str) -> str:
    """As the revision's Deployment."""
    return f"{owner_name}-{revision}"


def revision_service(owner: Owner, revision: str) -> JSON:
    """The backend of routes. Without the port of the metrics, which are read through the other one."""
    return sealed({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, revision_service_name(owner.name, revision), labels.COMPONENT_SERVER,
                             extra={labels.REVISION: revision}),
        "spec": {
            "type": "ClusterIP",
            "selector": labels.revision_selector(owner.name, revision),
            "ports": [
                _port(labels.PORT_HTTP, labels.HTTP_PORT, "http"),
                _port(labels.PORT_GRPC, labels.GRPC_PORT, "kubernetes.io/h2c"),
            ],
        },
    })


def _port(name: str, number: int, protocol: str) -> JSON:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP", "appProtocol": protocol}

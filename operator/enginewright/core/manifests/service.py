"""The Service in front of the replicas."""

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


def _port(name: str, number: int, protocol: str) -> JSON:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP", "appProtocol": protocol}

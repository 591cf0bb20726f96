"""The Service in front of the replicas, one of each revision for routes that split the traffic by weight, and one by
which an activator reaches replicas."""

from __future__ import annotations

import functools

from enginewright.core import labels
from enginewright.core.manifests.activator import backend_name
from enginewright.core.manifests.common import JSON, Owner, metadata, sealed, short_hash
from enginewright.core.servers import Port, Server
from enginewright.core.servers.triton import TRITON

# No revision is called so: revisions are hexadecimal.
NO_REVISION = "none"
LONGEST_NAME = 63  # of a DNS label, as a Service's name is


def service(owner: Owner, revision: str = "", server: Server = TRITON) -> JSON:
    """Named as the object. Selects every revision, or only ``revision`` where given."""
    return model_service(owner, _selector(owner, revision), server)


def activator_service(owner: Owner, server: Server = TRITON) -> JSON:
    """The same Service, before the activator instead of replicas."""
    return model_service(owner, labels.activator_selector(owner.name), server)


def _selector(owner: Owner, revision: str) -> dict[str, str]:
    return labels.revision_selector(owner.name, revision) if revision else labels.model_selector(owner.name)


def model_service(owner: Owner, selector: dict[str, str], server: Server = TRITON) -> JSON:
    """What clients talk to, before the pods that ``selector`` selects, which run ``server``."""
    return sealed({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, owner.name, labels.COMPONENT_SERVER),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [_port(port) for port in server.ports],
        },
    })


def backend_service(owner: Owner, revision: str, server: Server = TRITON) -> JSON:
    """Where an activator passes requests on to: ``revision``, every one where empty, or :data:`NO_REVISION`."""
    return _for_clients(owner, backend_name(owner.name), _selector(owner, revision), {}, server)


def revision_service_name(owner_name: str, revision: str) -> str:
    """As the revision's Deployment."""
    return f"{owner_name}-{revision}"


def revision_service(owner: Owner, revision: str, server: Server = TRITON) -> JSON:
    """The backend of routes."""
    return _for_clients(owner, revision_service_name(owner.name, revision),
                        labels.revision_selector(owner.name, revision), {labels.REVISION: revision}, server)


@functools.lru_cache(maxsize=1024)
def mirror_name(owner_name: str) -> str:
    """As long as a name can be. Objects' names have 40 characters at most, so that no other Service of any object is
    called so, whatever the object is called."""
    start = f"{owner_name}-mirror-"
    return start + short_hash(owner_name, LONGEST_NAME - len(start))


def mirror_service(owner: Owner, revision: str) -> JSON:
    """Where monitors send the requests that they sample: to ready replicas of ``revision``, each by its own address."""
    return sealed({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, mirror_name(owner.name), labels.COMPONENT_SERVER),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": labels.revision_selector(owner.name, revision),
            "ports": [_port(port) for port in TRITON.ports if port.name == labels.PORT_HTTP],
        },
    })


def _for_clients(owner: Owner, name: str, selector: dict[str, str], extra: dict[str, str],
                 server: Server = TRITON) -> JSON:
    return sealed({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(owner, name, labels.COMPONENT_SERVER, extra=extra),
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [_port(port) for port in server.client_ports],
        },
    })


def _port(port: Port) -> JSON:
    return {"name": port.name, "port": port.number, "targetPort": port.name, "protocol": "TCP",
            "appProtocol": port.protocol}

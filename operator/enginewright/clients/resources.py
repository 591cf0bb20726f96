"""The resources that the operator reads and writes, and where the apiserver has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from enginewright.clients.errors import UnexpectedError
from enginewright.core import labels


@dataclass(frozen=True)
class Resource:
    """``api_version`` as manifests write it: ``v1``, ``apps/v1``. All of ours are namespaced."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path. ``namespace`` None means all namespaces (lists only)."""
        prefix = "/apis/" if "/" in self.api_version else "/api/"
        parts = [prefix + self.api_version]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


OPTIMISED_MODEL = Resource(labels.API_VERSION, labels.KIND, labels.PLURAL)
JOB = Resource("batch/v1", "Job", "jobs")
POD = Resource("v1", "Pod", "pods")
DEPLOYMENT = Resource("apps/v1", "Deployment", "deployments")
SERVICE = Resource("v1", "Service", "services")
CONFIG_MAP = Resource("v1", "ConfigMap", "configmaps")
SECRET = Resource("v1", "Secret", "secrets")  # created, and never read
CLAIM = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
ENDPOINT_SLICE = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
DISRUPTION_BUDGET = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
CLAIM_TEMPLATE = Resource("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates")
LEASE = Resource("coordination.k8s.io/v1", "Lease", "leases")
HTTP_ROUTE = Resource("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
GRPC_ROUTE = Resource("gateway.networking.k8s.io/v1", "GRPCRoute", "grpcroutes")
EVENT = Resource("v1", "Event", "events")
NODE = Resource("v1", "Node", "nodes")  # not namespaced, and never written

RESOURCES = (
    OPTIMISED_MODEL, JOB, POD, DEPLOYMENT, SERVICE, CONFIG_MAP, SECRET, CLAIM, ENDPOINT_SLICE, DISRUPTION_BUDGET,
    CLAIM_TEMPLATE, LEASE, HTTP_ROUTE, GRPC_ROUTE, EVENT,
)

_BY_KIND = {(resource.api_version, resource.kind): resource for resource in RESOURCES}


def resource_of(api_version: str, kind: str) -> Resource:
    """Raises :class:`UnexpectedError` for a kind that the operator has no business with: RBAC would refuse it
    anyway."""
    try:
        return _BY_KIND[api_version, kind]
    except KeyError:
        raise UnexpectedError(f"{api_version} {kind} is not a resource that the operator manages") from None


def resource_of_manifest(manifest: Mapping[str, Any]) -> Resource:
    """Raises :class:`UnexpectedError`."""
    return resource_of(str(manifest.get("apiVersion")), str(manifest.get("kind")))

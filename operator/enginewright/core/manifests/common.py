"""Parts that several manifests share: ownership, metadata, security, resources, volumes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from enginewright.core import labels
from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.observed import ObjectView
from enginewright.core.placement import Placement
from enginewright.core.quantity import parse_quantity
from enginewright.core.servers import Server
from enginewright.core.spec import ResourcesSpec
from enginewright.core.spot import Preferring
from enginewright_builder.contract import canonical

JSON = dict[str, Any]

# The user of all images: no name is needed for it, so that any image will do.
UID = 65532

DEVICE_CLAIM = "accelerator"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The ``OptimisedModel`` that owns a child; ``fleet`` is the name of the fleet that it belongs to, or empty."""

    name: str
    namespace: str
    uid: str
    fleet: str = ""

    @classmethod
    def of(cls, view: ObjectView) -> Self:
        return cls(name=view.name, namespace=view.namespace, uid=view.uid, fleet=view.fleet)

    @property
    def served_as(self) -> str:
        """The model's name, as clients say it to Triton: that of the fleet, where there is one."""
        return self.fleet or self.name

    @property
    def reference(self) -> JSON:
        return {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "name": self.name, "uid": self.uid,
                "controller": True, "blockOwnerDeletion": True}


def metadata(owner: Owner, name: str, component: str, *, extra: Mapping[str, str] | None = None,
             annotations: Mapping[str, str] | None = None) -> JSON:
    return {"name": name, "namespace": owner.namespace,
            "labels": {**labels.common(owner.name, component), **(extra or {})},
            "annotations": dict(annotations or {}), "ownerReferences": [owner.reference]}


def sealed(manifest: JSON) -> JSON:
    """``manifest`` with the hash of itself as an annotation: the shell compares it before it writes."""
    meta = manifest["metadata"]
    annotations = {**meta.get("annotations", {}), labels.MANIFEST_HASH: short_hash(manifest, 16)}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def short_hash(value: Any, digits: int) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:digits]


def pod_security(config: OperatorConfig) -> JSON:
    """On OpenShift without ids: its security context constraint gives those of the namespace, and refuses others."""
    return restricted_pod(own_ids=not config.openshift)


def restricted_pod(*, own_ids: bool) -> JSON:
    """``own_ids``: with the user of Enginewright's images."""
    ids = {"runAsUser": UID, "runAsGroup": UID, "fsGroup": UID} if own_ids else {}
    return {"runAsNonRoot": True, **ids,
            "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}}


def container_security(*, read_only_root: bool = True) -> JSON:
    """What the Pod Security Standard ``restricted`` asks of a container, and a read-only root."""
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
                  "seccompProfile": {"type": "RuntimeDefault"}}
    return {**restricted, "readOnlyRootFilesystem": True} if read_only_root else restricted


def no_devices() -> JSON:
    """Of a container that was given none: NVIDIA's runtime goes by this variable, which images for GPUs set to
    ``all``."""
    return {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def resources(default: Resources, asked: ResourcesSpec | None = None, placement: Placement | None = None) -> JSON:
    """What the user asks, filled up from ``default`` where that does not contradict it, and the accelerator."""
    requests: dict[str, str] = {name: str(value) for name, value in (asked.requests if asked else {}).items()}
    limits: dict[str, str] = {name: str(value) for name, value in (asked.limits if asked else {}).items()}
    for name, value in default.requests.items():
        requests.setdefault(name, _smaller(value, limits[name]) if name in limits else value)
    for name, value in default.limits.items():
        if name not in limits and (name not in requests or parse_quantity(requests[name]) <= parse_quantity(value)):
            limits[name] = value
    result: JSON = {"requests": requests, "limits": limits}
    if placement and placement.limits:
        result["limits"] = {**limits, **placement.limits}
    if placement and placement.claim:
        result["claims"] = [{"name": DEVICE_CLAIM}]
    return {key: value for key, value in result.items() if value}


def _smaller(left: str, right: str) -> str:
    return left if parse_quantity(left) <= parse_quantity(right) else right


def claim_volume(name: str, claim: str) -> JSON:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def scratch_volumes(shared_memory: str) -> list[JSON]:
    """``/tmp``, the only writable folder, and ``/dev/shm``, which the Python backend and data loaders talk through."""
    return [tmp_volume(),
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}}]


def scratch_mounts() -> list[JSON]:
    return [tmp_mount(), {"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108  (in the pod)


def tmp_volume(name: str = "tmp") -> JSON:
    return {"name": name, "emptyDir": {}}


def tmp_mount(volume: str = "tmp") -> JSON:
    return {"name": volume, "mountPath": "/tmp"}  # noqa: S108  (in the pod)


def module(name: str) -> list[str]:
    """The command of a module of the builder's. ``-P``: Python would look into the working folder before it looks into
    the image, and that is ``/tmp``, where anything may lie."""
    return ["python3", "-P", "-m", f"enginewright_builder.{name}"]


def pull_secrets(config: OperatorConfig, more: Sequence[JSON] = ()) -> JSON:
    secrets = [*({"name": name} for name in config.image_pull_secrets), *more]
    return {"imagePullSecrets": secrets} if secrets else {}


def node_placement(placement: Placement) -> JSON:
    """The parts of a pod spec that put it on the right node."""
    spec: JSON = {}
    if placement.node_selector:
        spec["nodeSelector"] = dict(placement.node_selector)
    if placement.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in placement.tolerations]
    node: JSON = {}
    if placement.node_affinity:
        node["requiredDuringSchedulingIgnoredDuringExecution"] = placement.node_affinity
    if isinstance(placement, Preferring):
        node["preferredDuringSchedulingIgnoredDuringExecution"] = [dict(term) for term in placement.terms]
    if node:
        spec["affinity"] = {"nodeAffinity": node}
    if placement.runtime_class_name:
        spec["runtimeClassName"] = placement.runtime_class_name
    return spec


def device_claims(owner_name: str, placement: Placement) -> JSON:
    if placement.claim is None:
        return {}
    template = claim_template_name(owner_name, placement)
    return {"resourceClaims": [{"name": DEVICE_CLAIM, "resourceClaimTemplateName": template}]}


def claim_template_name(owner_name: str, placement: Placement) -> str:
    """``<om>-<8 of a hash of what is claimed>``: templates are immutable. Raises ValueError where nothing is
    claimed."""
    if placement.claim is None:
        raise ValueError("the placement claims no device")
    claim = placement.claim
    return f"{owner_name}-{short_hash([claim.device_class, claim.expression, claim.count], 8)}"


def spread_over_nodes(selector: Mapping[str, str]) -> list[JSON]:
    """``topologySpreadConstraints`` of pods with these labels: apart where nodes allow it."""
    return [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": dict(selector)}}]


def container_ports(server: Server) -> list[JSON]:
    """Of the server, and of what stands in for it."""
    return [{"name": port.name, "containerPort": port.number, "protocol": "TCP"} for port in server.ports]


def http_probe(path: str, *, period: int, timeout: int, failures: int) -> JSON:
    return {"httpGet": {"path": path, "port": labels.PORT_HTTP}, "periodSeconds": period, "timeoutSeconds": timeout,
            "failureThreshold": failures}

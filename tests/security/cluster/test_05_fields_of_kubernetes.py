"""Every field of a pod that the apiserver knows is either listed here or refused in a pod template, so that a new
version of Kubernetes opens nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enginewright.core.spec import Spec, parse_spec, validate
from support.kubectl import Kubectl

JSON = dict[str, Any]
Step = str | int
TERM = {"matchExpressions", "matchFields"}
SELECTOR = {"key", "operator", "values"}
PROBE = {"exec", "grpc", "httpGet", "tcpSocket", "initialDelaySeconds", "periodSeconds", "timeoutSeconds",
         "successThreshold", "failureThreshold", "terminationGracePeriodSeconds"}
DURING = {"requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"}
# By type of Kubernetes: what a sidecar's pod template may hold. Of types that are not here, nothing.
OPEN = {
    "core.v1.PodSpec": {"affinity", "containers", "dnsConfig", "hostAliases", "imagePullSecrets", "priorityClassName",
                        "schedulerName", "topologySpreadConstraints", "volumes"},
    "core.v1.Container": {"name", "image", "imagePullPolicy", "command", "args", "env", "envFrom", "ports", "resources",
                          "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe", "workingDir"},
    "core.v1.EnvVar": {"name", "value", "valueFrom"},
    "core.v1.EnvVarSource": {"configMapKeyRef", "fieldRef", "resourceFieldRef", "secretKeyRef"},
    "core.v1.EnvFromSource": {"prefix", "configMapRef", "secretRef"},
    "core.v1.ConfigMapEnvSource": {"name", "optional"}, "core.v1.SecretEnvSource": {"name", "optional"},
    "core.v1.ConfigMapKeySelector": {"key", "name", "optional"},
    "core.v1.SecretKeySelector": {"key", "name", "optional"},
    "core.v1.ObjectFieldSelector": {"apiVersion", "fieldPath"},
    "core.v1.ResourceFieldSelector": {"containerName", "divisor", "resource"},
    "core.v1.ContainerPort": {"name", "containerPort", "protocol"},
    "core.v1.ResourceRequirements": {"limits", "requests"},
    "core.v1.VolumeMount": {"name", "mountPath", "readOnly", "subPath"},
    "core.v1.Probe": PROBE, "core.v1.ExecAction": {"command"}, "core.v1.GRPCAction": {"port", "service"},
    "core.v1.HTTPGetAction": {"httpHeaders", "path", "port", "scheme"}, "core.v1.HTTPHeader": {"name", "value"},
    "core.v1.TCPSocketAction": {"port"},
    "core.v1.Volume": {"name", "configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
                       "projected", "secret"},
    "core.v1.ConfigMapVolumeSource": {"name", "items", "optional", "defaultMode"},
    "core.v1.SecretVolumeSource": {"secretName", "items", "optional", "defaultMode"},
    "core.v1.EmptyDirVolumeSource": {"medium", "sizeLimit"},
    "core.v1.DownwardAPIVolumeSource": {"items", "defaultMode"},
    "core.v1.DownwardAPIVolumeFile": {"path", "mode", "fieldRef", "resourceFieldRef"},
    "core.v1.KeyToPath": {"key", "path", "mode"},
    "core.v1.PersistentVolumeClaimVolumeSource": {"claimName", "readOnly"},
    "core.v1.EphemeralVolumeSource": {"volumeClaimTemplate"},
    "core.v1.PersistentVolumeClaimTemplate": {"metadata", "spec"},
    "apimachinery.pkg.apis.meta.v1.ObjectMeta": {"labels", "annotations"},
    "core.v1.PersistentVolumeClaimSpec": {"accessModes", "resources", "storageClassName"},
    "core.v1.VolumeResourceRequirements": {"limits", "requests"},
    "core.v1.ProjectedVolumeSource": {"sources", "defaultMode"},
    "core.v1.VolumeProjection": {"configMap", "downwardAPI", "secret"},
    "core.v1.ConfigMapProjection": {"name", "items", "optional"},
    "core.v1.SecretProjection": {"name", "items", "optional"},
    "core.v1.DownwardAPIProjection": {"items"},
    "core.v1.LocalObjectReference": {"name"}, "core.v1.HostAlias": {"ip", "hostnames"},
    "core.v1.PodDNSConfig": {"nameservers", "options", "searches"}, "core.v1.PodDNSConfigOption": {"name", "value"},
    "core.v1.TopologySpreadConstraint": {"labelSelector", "matchLabelKeys", "maxSkew", "minDomains",
                                         "nodeAffinityPolicy", "nodeTaintsPolicy", "topologyKey", "whenUnsatisfiable"},
    "apimachinery.pkg.apis.meta.v1.LabelSelector": {"matchExpressions", "matchLabels"},
    "apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement": SELECTOR, "core.v1.NodeSelectorRequirement": SELECTOR,
    "core.v1.Affinity": {"nodeAffinity", "podAffinity", "podAntiAffinity"},
    "core.v1.NodeAffinity": DURING, "core.v1.PodAffinity": DURING, "core.v1.PodAntiAffinity": DURING,
    "core.v1.NodeSelector": {"nodeSelectorTerms"}, "core.v1.NodeSelectorTerm": TERM,
    "core.v1.PreferredSchedulingTerm": {"preference", "weight"},
    "core.v1.WeightedPodAffinityTerm": {"podAffinityTerm", "weight"},
    "core.v1.PodAffinityTerm": {"labelSelector", "matchLabelKeys", "mismatchLabelKeys", "namespaceSelector",
                                "namespaces", "topologyKey"},
}
ROOT = "io.k8s.api.core.v1.PodSpec"


def test_what_is_not_listed_is_refused(control_plane: Path) -> None:
    schemas: JSON = json.loads(Kubectl(control_plane, "default")("get", "--raw", "/openapi/v3/api/v1"))[
        "components"]["schemas"]
    found: dict[str, set[str]] = {}
    known = 0
    for kind, name, is_open in _fields(schemas, ROOT, ()):
        known += 1
        if is_open:
            found.setdefault(kind.removeprefix("io.k8s.").removeprefix("api."), set()).add(name)
    assert known > 250, "the apiserver's schema is not what this test takes it for"
    assert found == OPEN


def _fields(schemas: JSON, kind: str, path: tuple[Step, ...]) -> Iterator[tuple[str, str, bool]]:
    """Each field below ``kind``, and whether a template may have it; below those that it may not have nobody looks."""
    for name, schema in schemas[kind].get("properties", {}).items():
        is_open = not _refused((*path, name))
        yield kind, name, is_open
        if is_open and (below := _below(schema)):
            yield from _fields(schemas, below[0], (*path, name, *below[1:]))


def _below(schema: JSON) -> tuple[Any, ...]:
    """The type that a field is of, and 0 where it is a list of that."""
    if "items" in schema:
        found = _below(schema["items"])
        return (*found, 0) if found else ()
    reference = schema.get("$ref") or next((part["$ref"] for part in schema.get("allOf", ()) if "$ref" in part), "")
    return (reference.rpartition("/")[2],) if reference else ()


def _refused(path: tuple[Step, ...]) -> bool:
    value: Any = {}
    for depth, step in reversed(list(enumerate(path))):
        if isinstance(step, int):
            # What has no name is refused for that alone.
            named = {"name": "mine", "image": "a"} if path[:depth] == ("containers",) else {"name": "mine"}
            value = [{**named, **value} if depth == 1 and path[0] in ("containers", "volumes") else value]
        else:
            value = {step: value}
    spec = parse_spec({"source": {"uri": "pvc://models/a"}, "serving": {"podTemplate": {"spec": value}}})
    assert isinstance(spec, Spec)
    field = "spec.serving.podTemplate.spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}"
                                                      for step in path)
    return any(problem.field == field and "cannot be set here" in problem.message for problem in validate(spec))

"""The cluster's DNS: CoreDNS as an ordinary Deployment, so that it is looked after like any other."""

from __future__ import annotations

from typing import Any

from cluster.settings import CLUSTER_DOMAIN, COREDNS_IMAGE, DNS_ADDRESS

NAMESPACE = "kube-system"
NAME = "coredns"
# An unprivileged port in the pod; the Service answers on 53.
_PORT = 1053
_LABELS = {"k8s-app": "kube-dns"}


def corefile(upstream: list[str]) -> str:
    """CoreDNS's configuration; names outside the cluster are unknown where this machine has no name server."""
    forward = f"    forward . {' '.join(upstream)}\n" if upstream else ""
    return (
        f".:{_PORT} {{\n"
        "    errors\n"
        "    health :8080\n"
        "    ready :8181\n"
        f"    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{\n"
        "        pods insecure\n"
        "        fallthrough in-addr.arpa ip6.arpa\n"
        "        ttl 5\n"
        "    }\n"
        f"{forward}"
        "    cache 5\n"
        "    loadbalance\n"
        "}\n"
    )


def objects(upstream: list[str]) -> list[dict[str, Any]]:
    """All that it is made of."""
    return [*_access(), _config(upstream), _deployment(), _service()]


def _meta(namespaced: bool = True) -> dict[str, Any]:
    name = NAME if namespaced else f"system:{NAME}"
    return {"name": name, "labels": _LABELS, **({"namespace": NAMESPACE} if namespaced else {})}


def _access() -> list[dict[str, Any]]:
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta()},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": _meta(False), "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": _meta(False),
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": f"system:{NAME}"},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        },
    ]


def _config(upstream: list[str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(), "data": {"Corefile": corefile(upstream)}}


def _deployment() -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": [
            {"name": "dns", "containerPort": _PORT, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": _PORT, "protocol": "TCP"},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "170Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 30},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        # Its own name server is the node's, not itself.
        "dnsPolicy": "Default",
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _service() -> dict[str, Any]:
    ports = [
        {"name": name, "port": 53, "targetPort": _PORT, "protocol": protocol}
        for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": NAMESPACE, "labels": _LABELS},
        "spec": {"clusterIP": DNS_ADDRESS, "selector": _LABELS, "ports": ports},
    }

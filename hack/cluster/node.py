"""The node's programs: containerd, kubelet, kube-proxy."""

from __future__ import annotations

import ipaddress
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.component import Component
from cluster.paths import ClusterPaths
from cluster.pki import Certificate
from cluster.probes import http_ok, socket_accepts
from cluster.settings import (
    CLUSTER_DOMAIN,
    CNI_PLUGIN_DIR,
    DNS_ADDRESS,
    NODE_ADDRESS,
    NODE_NAME,
    PAUSE_IMAGE,
    POD_CIDR,
)

KUBELET_HEALTH_PORT = 10248
KUBE_PROXY_HEALTH_PORT = 10256

# A user in system:nodes named after its node: what the Node authorizer and NodeRestriction go by.
KUBELET_CLIENT = Certificate("kubelet", f"system:node:{NODE_NAME}", "system:nodes")
# The API server checks this when it fetches logs or runs exec: it must name the node and its address.
KUBELET_SERVER = Certificate(
    "kubelet-server", f"system:node:{NODE_NAME}", "system:nodes", (f"DNS:{NODE_NAME}", f"IP:{NODE_ADDRESS}")
)
APISERVER_TO_KUBELET = Certificate("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
KUBE_PROXY = Certificate("kube-proxy", "system:kube-proxy")


def containerd_config(paths: ClusterPaths, root: Path) -> str:
    """containerd's TOML. Every path is ours, so that a containerd of the machine's own is not touched."""
    return f"""\
version = 2
root = "{root}"
state = "{paths.run}/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
  address = "{paths.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{paths.state}/containerd-opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Lowering a pod's OOM score below our own is refused inside a container or a restricted virtual machine.
  restrict_oom_score_adj = true
  # With the default they lie in /var/run/netns, among those of others.
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGIN_DIR}"
    conf_dir = "{paths.config}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def kubelet_config(paths: ClusterPaths) -> str:
    """KubeletConfiguration. The eviction thresholds are low: a developer's disc is nearly full more often than not."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(paths.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(paths.pki / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(paths.pki / "kubelet-server.key"),
            "cgroupDriver": "cgroupfs",
            "failSwapOn": False,
            "failCgroupV1": False,
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": CLUSTER_DOMAIN,
            "resolvConf": str(paths.config / "resolv.conf"),
            "containerRuntimeEndpoint": f"unix://{paths.containerd_socket}",
            "podLogsDir": str(paths.pod_logs),
            "volumePluginDir": str(paths.state / "volume-plugins"),
            "healthzPort": KUBELET_HEALTH_PORT,
            "makeIPTablesUtilChains": False,
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1Gi",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1Gi",
            },
            # Images are loaded from archives, and no registry has them to be pulled again.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        },
        indent=1,
    )


def kube_proxy_config(paths: ClusterPaths) -> str:
    """KubeProxyConfiguration: nftables, in tables of its own; the machine's connection tracking stays as it is."""
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": NODE_NAME,
            "clientConnection": {"kubeconfig": str(paths.config / "kube-proxy.kubeconfig")},
            "clusterCIDR": POD_CIDR,
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "nodePortAddresses": ["primary"],
            "healthzBindAddress": f"127.0.0.1:{KUBE_PROXY_HEALTH_PORT}",
            "metricsBindAddress": "127.0.0.1:10249",
        },
        indent=1,
    )


def access() -> list[dict[str, Any]]:
    """What the kubelet may read of a pod whatever the Node authorizer says. On one machine the kubelet hears of a pod
    before the authorizer does; what that refuses then, a claim above all, the kubelet asks for again after ten seconds.
    Secrets are left to the authorizer."""
    rbac, name = "rbac.authorization.k8s.io", "enginewright:node"
    volumes = ["persistentvolumeclaims", "persistentvolumes"]
    rules = [{"apiGroups": [""], "resources": ["pods", *volumes], "verbs": ["get"]},
             {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]
    subject = {"apiGroup": rbac, "kind": "Group", "name": "system:nodes"}
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
         "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name}, "subjects": [subject]},
    ]


def is_ready(node: dict[str, Any], since: datetime) -> bool:
    """Whether a Node object is Ready by a report that is not older than `since` (the API keeps whole seconds)."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            reported = datetime.fromisoformat(condition["lastHeartbeatTime"])
            return bool(condition["status"] == "True" and reported >= since.replace(microsecond=0))
    return False


def upstream_resolvers(resolv_conf: str) -> list[str]:
    """Name servers out of a resolv.conf that a pod can reach: not those on this machine's loopback."""
    servers = []
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            address = words[1].partition("%")[0]
            if not ipaddress.ip_address(address).is_loopback:
                servers.append(address)
    return servers


def host_resolvers() -> list[str]:
    """The machine's name servers; behind systemd-resolved's loopback address those that it asks itself."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        if path.exists() and (servers := upstream_resolvers(path.read_text())):
            return servers
    return []


def containerd(paths: ClusterPaths, program: Path) -> Component:
    """The container runtime."""
    argv = (str(program), f"--config={paths.config}/containerd.toml")
    return Component("containerd", argv, socket_accepts(paths.containerd_socket))


def kubelet(paths: ClusterPaths, program: Path) -> Component:
    """The node's agent."""
    argv = (
        str(program), f"--config={paths.config}/kubelet.json", f"--kubeconfig={paths.config}/kubelet.kubeconfig",
        f"--hostname-override={NODE_NAME}", f"--node-ip={NODE_ADDRESS}", f"--root-dir={paths.kubelet_root}",
    )
    return Component("kubelet", argv, http_ok(KUBELET_HEALTH_PORT, "/healthz"))


def kube_proxy(paths: ClusterPaths, program: Path) -> Component:
    """What makes Services' addresses lead to pods."""
    argv = (str(program), f"--config={paths.config}/kube-proxy.json")
    return Component("kube-proxy", argv, http_ok(KUBE_PROXY_HEALTH_PORT, "/livez"))

"""The local cluster's parts, put together: which programs, which certificates, which configuration files."""

from __future__ import annotations

from cluster import binaries, controlplane, network, node
from cluster.component import Component
from cluster.controlplane import ApiEndpoint
from cluster.packages import system_program
from cluster.paths import ClusterPaths, containerd_root
from cluster.pki import write_kubeconfig
from cluster.settings import API_PORT, API_SERVICE_ADDRESS, NODE_ADDRESS, SERVICE_CIDR

ENDPOINT = ApiEndpoint(NODE_ADDRESS, API_PORT, 23790, SERVICE_CIDR)
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259
# A claim whose volume was written to at the same moment is looked at again so soon, and not after 15 seconds.
BINDS_SOON = "--pvclaimbinder-sync-period=1s"
# Checked before anything is built or started, so that a missing one is not found minutes later.
PACKAGED_PROGRAMS = ("etcd", "containerd", "ctr", "runc", "ip", "nft", "conntrack", "openssl", "mount", "umount")

CERTIFICATES = (
    controlplane.ETCD,
    controlplane.ETCD_CLIENT,
    controlplane.ADMIN,
    controlplane.CONTROLLER_MANAGER,
    controlplane.SCHEDULER,
    controlplane.LOOPBACK,
    controlplane.server_certificate(
        ENDPOINT,
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        f"IP:{API_SERVICE_ADDRESS}",
    ),
    node.KUBELET_CLIENT,
    node.KUBELET_SERVER,
    node.APISERVER_TO_KUBELET,
    node.KUBE_PROXY,
)
_USERS = (controlplane.CONTROLLER_MANAGER, controlplane.SCHEDULER, node.KUBELET_CLIENT, node.KUBE_PROXY)


def container_runtime(paths: ClusterPaths) -> Component:
    """containerd: the one part that is also needed to take a cluster down."""
    return node.containerd(paths, system_program("containerd"))


def components(paths: ClusterPaths) -> dict[str, Component]:
    """All programs by name, in the order of their start."""
    built = binaries.build(binaries.KUBERNETES)
    listed = (
        controlplane.etcd(paths, system_program("etcd"), port=ENDPOINT.etcd_port),
        container_runtime(paths),
        controlplane.apiserver(paths, built.with_name("kube-apiserver"), ENDPOINT, with_node=True),
        controlplane.controller_manager(
            paths, built.with_name("kube-controller-manager"), port=CONTROLLER_MANAGER_PORT, more=(BINDS_SOON,)
        ),
        controlplane.scheduler(paths, built.with_name("kube-scheduler"), port=SCHEDULER_PORT),
        node.kubelet(paths, built.with_name("kubelet")),
        node.kube_proxy(paths, built.with_name("kube-proxy")),
    )
    return {component.name: component for component in listed}


def write_config(paths: ClusterPaths) -> None:
    """Every component's configuration file; rewritten on each start, so that it is never older than this code."""
    for user in _USERS:
        write_kubeconfig(paths.config / f"{user.name}.kubeconfig", paths.pki, user.name, ENDPOINT.url)
    resolvers = "".join(f"nameserver {server}\n" for server in node.host_resolvers())
    files = {
        "cni/10-enginewright.conflist": network.cni_config(paths),
        "containerd.toml": node.containerd_config(paths, containerd_root()),
        "kubelet.json": node.kubelet_config(paths),
        "kube-proxy.json": node.kube_proxy_config(paths),
        "resolv.conf": resolvers,
    }
    for name, text in files.items():
        path = paths.config / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    paths.kubelet_root.mkdir(exist_ok=True)
    paths.pod_logs.mkdir(exist_ok=True)

"""The control plane's programs: etcd, API server, controller manager, scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cluster.component import Component
from cluster.paths import ClusterPaths
from cluster.pki import Certificate
from cluster.probes import Client, Probe, http_ok


@dataclass(frozen=True)
class ApiEndpoint:
    """Where the API server listens, where its etcd does, and the range it gives Service addresses from."""

    address: str
    port: int
    etcd_port: int
    service_cidr: str

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"


ETCD = Certificate("etcd", "etcd", alternatives=("DNS:localhost", "IP:127.0.0.1"), authority="etcd-ca")
ETCD_CLIENT = Certificate("etcd-client", "kube-apiserver", authority="etcd-ca")
ADMIN = Certificate("admin", "enginewright-admin", "system:masters")
CONTROLLER_MANAGER = Certificate("kube-controller-manager", "system:kube-controller-manager")
SCHEDULER = Certificate("kube-scheduler", "system:kube-scheduler")
# What the controller manager and the scheduler serve their health with.
LOOPBACK = Certificate("loopback", "enginewright-loopback", alternatives=("DNS:localhost", "IP:127.0.0.1"))


def server_certificate(endpoint: ApiEndpoint, *more: str) -> Certificate:
    """The API server's own certificate; `more` are further names in openssl's form."""
    names = ("DNS:localhost", "IP:127.0.0.1", f"IP:{endpoint.address}", *more)
    return Certificate("apiserver", "kube-apiserver", alternatives=tuple(dict.fromkeys(names)))


def etcd(paths: ClusterPaths, program: Path, *, port: int, more: tuple[str, ...] = ()) -> Component:
    """etcd on loopback, for clients with a certificate of its own authority only."""
    pki = paths.pki
    url = f"https://127.0.0.1:{port}"
    # It has no peers, but insists on listening for them: on whatever port is free.
    peer = "https://127.0.0.1:0"
    argv = (
        str(program), "--name=local", f"--data-dir={paths.state}/etcd", "--logger=zap", "--log-outputs=stderr",
        f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=local={peer}",
        f"--cert-file={pki}/etcd.crt", f"--key-file={pki}/etcd.key",
        f"--trusted-ca-file={pki}/etcd-ca.crt", "--client-cert-auth=true",
        f"--peer-cert-file={pki}/etcd.crt", f"--peer-key-file={pki}/etcd.key",
        f"--peer-trusted-ca-file={pki}/etcd-ca.crt", "--peer-client-cert-auth=true",
        "--quota-backend-bytes=4294967296", "--auto-compaction-retention=1", *more,
    )
    return Component("etcd", argv, http_ok(port, "/health", client=Client(pki, ETCD_CLIENT.name, ETCD.authority)))


def apiserver(paths: ClusterPaths, program: Path, endpoint: ApiEndpoint, *, with_node: bool) -> Component:
    """The API server, with RBAC, the Node authorizer and NodeRestriction; PodSecurity is among its defaults."""
    pki = paths.pki
    argv: tuple[str, ...] = (
        str(program), f"--etcd-servers=https://127.0.0.1:{endpoint.etcd_port}",
        f"--etcd-cafile={pki}/etcd-ca.crt", f"--etcd-certfile={pki}/etcd-client.crt",
        f"--etcd-keyfile={pki}/etcd-client.key",
        f"--bind-address={endpoint.address}", f"--advertise-address={endpoint.address}",
        f"--secure-port={endpoint.port}", f"--service-cluster-ip-range={endpoint.service_cidr}",
        f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/service-accounts.pub",
        f"--service-account-signing-key-file={pki}/service-accounts.key",
        "--profiling=false",
    )
    if with_node:
        argv = (
            *argv, f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet.key",
            # The node's name is in no DNS: logs and exec must go to its address.
            "--kubelet-preferred-address-types=InternalIP",
        )
    else:
        # Nothing routes to Services here, and a loopback address is refused as an endpoint.
        argv = (*argv, "--endpoint-reconciler-type=none")
    ready = http_ok(endpoint.port, "/readyz", host=endpoint.address, client=Client(pki))
    return Component("kube-apiserver", argv, ready)


def controller_manager(paths: ClusterPaths, program: Path, *, port: int, more: tuple[str, ...] = ()) -> Component:
    """The controllers. `port` 0 serves neither health nor metrics; it then counts as ready at once."""
    kubeconfig, pki = paths.config / "kube-controller-manager.kubeconfig", paths.pki
    argv = (
        str(program), *_client_flags(kubeconfig, pki, port),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/service-accounts.key", f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key",
        # Each controller asks for a token of its own as it starts; at the usual 20 requests a second that takes four.
        "--kube-api-qps=200", "--kube-api-burst=400", "--profiling=false", *more,
    )
    return Component("kube-controller-manager", argv, _healthz(port, pki))


def scheduler(paths: ClusterPaths, program: Path, *, port: int) -> Component:
    """The scheduler."""
    kubeconfig = paths.config / "kube-scheduler.kubeconfig"
    argv = (str(program), *_client_flags(kubeconfig, paths.pki, port), "--profiling=false")
    return Component("kube-scheduler", argv, _healthz(port, paths.pki))


def _healthz(port: int, pki: Path) -> Probe:
    return http_ok(port, "/healthz", client=Client(pki)) if port else lambda: True


def _client_flags(kubeconfig: Path, pki: Path, port: int) -> tuple[str, ...]:
    return (
        f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false", "--bind-address=127.0.0.1", f"--secure-port={port}",
        f"--tls-cert-file={pki}/loopback.crt", f"--tls-private-key-file={pki}/loopback.key",
    )

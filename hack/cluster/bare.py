"""A control plane alone (etcd and API server, optionally the controllers), for tests that need no node.

Several may run at once, each in a directory of its own on a free loopback port.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster import binaries, controlplane, pki, process
from cluster.component import await_ready, halt, launch
from cluster.packages import system_program
from cluster.paths import ClusterPaths, control_plane
from cluster.probes import ProcessEndedError

ATTEMPTS = 3
# Of the HorizontalPodAutoscaler, which looks every 15 s otherwise. No few looks make a whole number of seconds, as its
# windows are: whether a look lies in one must not hang on milliseconds.
IMPATIENT = ("--horizontal-pod-autoscaler-sync-period=1300ms",)
# Without a node there are no volumes. The first would write an event to each claim at each look, the second looks ten
# times a second.
WITHOUT_VOLUMES = ("--controllers=*,-persistentvolume-binder-controller,-persistentvolume-attach-detach-controller",)
# Of etcd: to wait for the disk at each write takes a third of its processor time, and a third of a write's time. What
# was written without that outlives its process, though not the machine.
PASSING = ("--unsafe-no-fsync",)
STOP_ORDER = ("kube-controller-manager", "kube-apiserver", "etcd")


def up(directory: Path, *, controllers: bool = False, flags: Sequence[str] = (), lasting: bool = True) -> Path:
    """Start a control plane in `directory` and return its kubeconfig's path.

    Args:
        controllers: run the controller manager, too: Deployments get ReplicaSets, owners' children are collected.
        flags: more arguments of the controller manager.
        lasting: what is written outlives the machine. It need not where the data is thrown away and nothing is timed.

    Raises:
        ClusterError: a program is missing or did not become ready.
    """
    paths = control_plane(directory)
    paths.create()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _start(paths, controllers, flags, () if lasting else PASSING)
        except ProcessEndedError:
            # Another program may have taken the port between our choice and the server's start.
            _stop(paths)
            if attempt == ATTEMPTS:
                raise
            shutil.rmtree(paths.pki)
            (paths.config / "ports.json").unlink()
            paths.create()
    raise AssertionError("the loop returns or raises")


def down(directory: Path) -> None:
    """Stop the control plane of `directory` and remove its data; its logs stay."""
    paths = control_plane(directory)
    _stop(paths)
    for path in (paths.state / "etcd", paths.run, paths.pki, paths.config, paths.records):
        shutil.rmtree(path, ignore_errors=True)
    paths.kubeconfig.unlink(missing_ok=True)


@contextmanager
def running(directory: Path, *, controllers: bool = False, flags: Sequence[str] = (), lasting: bool = True
            ) -> Iterator[Path]:
    """A control plane for the length of a `with` block; gives its kubeconfig's path."""
    try:
        yield up(directory, controllers=controllers, flags=flags, lasting=lasting)
    finally:
        down(directory)


def _start(paths: ClusterPaths, controllers: bool, flags: Sequence[str], of_etcd: tuple[str, ...]) -> Path:
    endpoint = _endpoint(paths)
    etcd = controlplane.etcd(paths, system_program("etcd"), port=endpoint.etcd_port, more=of_etcd)
    server = controlplane.apiserver(paths, binaries.node_program("kube-apiserver"), endpoint, with_node=False)
    certificates = [
        controlplane.ETCD,
        controlplane.ETCD_CLIENT,
        controlplane.ADMIN,
        controlplane.server_certificate(endpoint),
    ]
    if controllers:
        certificates += [controlplane.CONTROLLER_MANAGER, controlplane.LOOPBACK]
    pki.create(paths.pki, certificates)
    launch(paths, etcd)
    await_ready(paths, etcd)
    launch(paths, server)
    await_ready(paths, server)
    if controllers:
        name = controlplane.CONTROLLER_MANAGER.name
        pki.write_kubeconfig(paths.config / f"{name}.kubeconfig", paths.pki, name, endpoint.url)
        manager = controlplane.controller_manager(paths, binaries.node_program(name), port=0,
                                                  more=(*IMPATIENT, *WITHOUT_VOLUMES, *flags))
        launch(paths, manager)
        await_ready(paths, manager)
    return pki.write_kubeconfig(paths.kubeconfig, paths.pki, controlplane.ADMIN.name, endpoint.url)


def _endpoint(paths: ClusterPaths) -> controlplane.ApiEndpoint:
    """Free ports, chosen by the first start and kept for those after it."""
    chosen = paths.config / "ports.json"
    if not chosen.exists():
        chosen.write_text(json.dumps([_free_port(), _free_port()]))
    port, etcd_port = json.loads(chosen.read_text())
    return controlplane.ApiEndpoint("127.0.0.1", port, etcd_port, "10.0.0.0/16")


def _stop(paths: ClusterPaths) -> None:
    for name in STOP_ORDER:
        # Throw-away data: nothing is gained by waiting for an orderly end.
        halt(paths, name, grace_s=0.0)
    process.stop_all(process.strays(paths.state), grace_s=0.0)


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

"""Where a study of the operator runs: a network of its own, and in it a real control plane with the chart's rights."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from cluster.bare import running
from cluster.paths import ClusterPaths
from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from scale_study.actor import NETWORK
from support.apiserver import install_crd
from support.control_plane import LEADS, operator_credentials

INSIDE = "ENGINEWRIGHT_STUDY_INSIDE"
# The controllers' own limits would be what is measured otherwise. No acted node is lost because the machine is busy.
FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-deployment-syncs=20",
         "--concurrent-replicaset-syncs=20", "--node-monitor-grace-period=10m")


def enter(module: str) -> None:
    """Replaces this process by one that runs ``module`` in a network of its own, where it is not that already."""
    if INSIDE in os.environ:
        return
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    route = f'ip link set lo up && ip route add local {NETWORK} dev lo && exec "$@"'
    command = ["unshare", "--net", *user, "sh", "-c", route, "sh", sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})  # noqa: S606


@dataclass(frozen=True)
class Place:
    """``operators`` is the kubeconfig of the operator, ``kubeconfig`` that of the study; ``records`` has the ids of the
    control plane's processes."""

    kubeconfig: Path
    operators: Path
    records: Path
    kube: KubeClient


@contextlib.asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    """A control plane with the CRD in it."""
    with running(folder / "control-plane", controllers=True, flags=FLAGS) as kubeconfig:
        await install_crd(kubeconfig)
        paths = ClusterPaths(kubeconfig.parent, kubeconfig.parent / "run", kubeconfig.parent / "logs")
        operators = await operator_credentials(kubeconfig, LEADS)
        async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
            yield Place(kubeconfig, operators, paths.records, kube)

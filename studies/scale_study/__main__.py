"""Run the scale study: ``make scale-study N=300,1000``. It writes build/scale/summary.json and summary.md beside it, of
which docs/benchmarks/scale.json and scale.md are made.

Real: etcd, the apiserver, the controller manager and ``enginewright run`` with the rights that the chart grants. Acted:
containers, by writes to the pods' status. It runs in a network namespace of its own, so that it disturbs nothing.
Where ``KSERVE_MANAGER`` is given, KServe's manager does the same work after it on another control plane:
:mod:`scale_study.kserve`.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from cluster.bare import running
from cluster.paths import ClusterPaths
from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from enginewright_builder.system import available_cpus, cpu_name, memory_bytes
from scale_study import kserve
from scale_study.actor import NETWORK
from scale_study.page import page
from scale_study.study import study
from support.apiserver import install_crd
from support.control_plane import LEADS, operator_credentials

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "build" / "scale" / "summary.json"
INSIDE = "ENGINEWRIGHT_SCALE_STUDY"
# The controllers' own limits would be what is measured otherwise.
FLAGS = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-deployment-syncs=20",
         "--concurrent-replicaset-syncs=20")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scale_study", description=__doc__)
    parser.add_argument("--n", default="300", help="objects; several sizes parted by commas (default %(default)s)")
    parser.add_argument("--namespaces", default="1", help="over so many namespaces, as --n (default %(default)s)")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds for each size (default %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    if INSIDE not in os.environ:
        _enter()
    # Stopped by a time limit, it stops what it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sizes = [(int(n), int(spaces)) for spaces in options.namespaces.split(",") for n in options.n.split(",")]
    found: dict[str, Any] = {
        "recorded": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "hardware": {"device": cpu_name(), "cores": available_cpus(), "memory_gib": round(memory_bytes() / 2**30)},
        "sizes": [],
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for n, spaces in sizes:
        with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
            size = asyncio.run(_run(Path(scratch), n, spaces, options.patience))
        if kserve.given():
            with tempfile.TemporaryDirectory(prefix="scale-") as scratch:
                size["kserve"] = asyncio.run(_kserve(Path(scratch), n, spaces, options.patience))
        found["sizes"].append({**size, "load": round(os.getloadavg()[0])})
        print(json.dumps(found["sizes"][-1]), flush=True)
        options.output.write_text(json.dumps(found, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(page(found))
    return 0


def _enter() -> None:
    """Replaces this process by one in a network of its own."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    route = f'ip link set lo up && ip route add local {NETWORK} dev lo && exec "$@"'
    command = ["unshare", "--net", *user, "sh", "-c", route, "sh", sys.executable, "-m", "scale_study", *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})  # noqa: S606


async def _run(folder: Path, n: int, spaces: int, patience: float) -> dict[str, Any]:
    with running(folder / "control-plane", controllers=True, flags=FLAGS) as kubeconfig:
        await install_crd(kubeconfig)
        paths = ClusterPaths(kubeconfig.parent, kubeconfig.parent / "run", kubeconfig.parent / "logs")
        operators = await operator_credentials(kubeconfig, LEADS)
        async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
            return await study(kubeconfig, operators, paths.records, folder, kube, n, spaces, patience)


async def _kserve(folder: Path, n: int, spaces: int, patience: float) -> dict[str, Any]:
    with running(folder / "control-plane", controllers=True, flags=FLAGS) as kubeconfig:
        paths = ClusterPaths(kubeconfig.parent, kubeconfig.parent / "run", kubeconfig.parent / "logs")
        async with KubeClient(await load_configuration(str(kubeconfig))) as kube:
            return await kserve.kserve(kubeconfig, paths.records, folder, kube, n, spaces, patience)


if __name__ == "__main__":
    sys.exit(main())

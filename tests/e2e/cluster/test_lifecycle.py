"""The local cluster comes up, survives being killed, and leaves the machine as it was.

It is in a directory of its own, and thereby runs before the tests that keep one cluster up for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import host, process
from cluster.local import Local
from cluster.paths import cache_dir

ROOT = Path(__file__).resolve().parents[3]
CLUSTER = ROOT / "hack" / "cluster" / "cluster"


def cluster(*arguments: str) -> str:
    done = subprocess.run((CLUSTER, *arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def machine() -> dict[str, object]:
    """All that a cluster could leave behind: what this machine has of it now."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    settings = {name: Path("/proc/sys") / name for name in host.SETTINGS}
    # Images may be built meanwhile, which mounts their layers.
    mounted = [point for line in Path("/proc/self/mountinfo").read_text().splitlines()
               if not (point := line.split()[4]).startswith(str(cache_dir() / "images"))]
    return {
        "interfaces": sorted(link["ifname"] for link in json.loads("".join(lines("ip", "-json", "link")))),
        "tables": sorted(lines("nft", "list", "tables")),
        "routes": sorted(lines("ip", "route")),
        "mounts": sorted(point for point in mounted if "enginewright" in point or "kubelet" in point),
        "namespaces": sorted(lines("ip", "netns")),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("**/kubepods")),
        "settings": {name: path.read_text() for name, path in settings.items() if path.exists()},
        "directories": [str(path) for path in (*host.DIRECTORIES, Local().paths.run) if path.exists()],
    }


@pytest.fixture
def machine_before() -> Iterator[dict[str, object]]:
    if os.environ.get("CLUSTER", "local") != "local":
        pytest.skip("only the local cluster is ours to kill")
    if subprocess.run((ROOT / "hack/dev/can-run-node.sh",), capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine cannot run a node")
    if Local().paths.state.exists():
        pytest.skip("a local cluster is there: `hack/cluster/cluster down` removes it")
    subprocess.run((ROOT / "hack/bin-deps.sh",), check=True)
    before = machine()
    yield before
    cluster("down")


def test_up_killed_up_down_leaves_nothing(machine_before: dict[str, object]) -> None:
    cluster("up")
    cluster("kubectl", "create", "configmap", "kept", "--from-literal=a=b")

    deadline = time.monotonic() + 300
    while family := list(process.strays(Local().paths.state)):
        assert time.monotonic() < deadline, family
        for each in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        time.sleep(0.1)  # SIGKILL takes effect when the kernel gets to it
    assert subprocess.run((CLUSTER, "status"), capture_output=True, check=False).returncode == 1

    cluster("up")
    cluster("status")
    assert cluster("kubectl", "get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "b"
    directory = Path(cluster("volume", "create", "default", "data", "16Mi").strip())
    assert directory.is_dir()

    cluster("down")
    assert list(process.strays(Local().paths.state)) == []
    assert machine() == machine_before
    assert not Local().paths.state.exists()

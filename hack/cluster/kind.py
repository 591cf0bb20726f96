"""A cluster that kind runs in containers: for machines that have Docker or Podman."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cluster.existing import create_claim, delete_claim
from cluster.paths import cache_dir
from cluster.provider import kubectl
from cluster.steps import ClusterError, say, step

CLUSTER_NAME = "enginewright"


class Kind:
    """CLUSTER=kind: a kind cluster named `enginewright`."""

    name = "kind"

    @property
    def kubeconfig(self) -> Path:
        path = _kubeconfig_path()
        if not path.is_file():
            raise ClusterError("there is no kind cluster: run hack/cluster/cluster up")
        return path

    def up(self) -> None:
        path = _kubeconfig_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        if self._exists():
            _kind("export", "kubeconfig", f"--name={CLUSTER_NAME}", f"--kubeconfig={path}")
            say("  ✓ the kind cluster is there")
            return
        with step("create the kind cluster"):
            _kind("create", "cluster", f"--name={CLUSTER_NAME}", f"--kubeconfig={path}", "--wait=120s")

    def down(self) -> None:
        if self._exists():
            with step("delete the kind cluster"):
                _kind("delete", "cluster", f"--name={CLUSTER_NAME}", f"--kubeconfig={_kubeconfig_path()}")
        _kubeconfig_path().unlink(missing_ok=True)

    def status(self) -> bool:
        if not self._exists():
            say("  there is no kind cluster")
            return False
        say(kubectl(self.kubeconfig, "get", "nodes", "-o", "wide"))
        return True

    def load_images(self, sources: list[str]) -> None:
        for source in sources:
            what = "image-archive" if Path(source).is_file() else "docker-image"
            with step(f"load {source}"):
                _kind("load", what, source, f"--name={CLUSTER_NAME}")

    def create_volume(self, namespace: str, claim: str, size: str) -> None:
        create_claim(self.kubeconfig, namespace, claim, size)

    def delete_volume(self, namespace: str, claim: str) -> None:
        delete_claim(self.kubeconfig, namespace, claim)

    def _exists(self) -> bool:
        return CLUSTER_NAME in _kind("get", "clusters").split()


def _kubeconfig_path() -> Path:
    return cache_dir() / "kind" / "kubeconfig"


def _kind(*arguments: str) -> str:
    program = shutil.which("kind")
    if program is None:
        raise ClusterError("CLUSTER=kind, but kind is not installed: install it, or use CLUSTER=local")
    done = subprocess.run((program, *arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"kind {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout

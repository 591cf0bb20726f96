"""A cluster that kind runs in containers: for machines that have Docker or Podman.

KIND_NODE_IMAGE names another image of the node than kind's own of Docker Hub. KIND_EXPERIMENTAL_PROVIDER, which kind
reads itself, names the engine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from cluster import binaries
from cluster.existing import create_claim, delete_claim
from cluster.kubectl import kubectl
from cluster.paths import cache_dir
from cluster.steps import ClusterError, say, step

CLUSTER_NAME = "enginewright"
READY_TIMEOUT_S = 120.0
REMEDY = "`hack/cluster/cluster down` removes it, `up` then makes another"


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
        there = self._exists()  # before anything is built: kind may be missing
        binaries.node_program("kubectl")
        if there:
            _export(path)
        else:
            _create(path)
        with step("the kind cluster is ready"):
            _await_ready(path)

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


def _create(kubeconfig: Path) -> None:
    image = os.environ.get("KIND_NODE_IMAGE")
    options = (f"--image={image}",) if image else ()
    with step("create the kind cluster"):
        try:
            _kind("create", "cluster", f"--name={CLUSTER_NAME}", f"--kubeconfig={kubeconfig}", *options)
        except ClusterError as error:
            if "failed to pull image" not in str(error):
                raise
            message = "the node's image cannot be pulled: set KIND_NODE_IMAGE to one that can, or that the engine has"
            raise ClusterError(f"{message}: {error}") from error


def _export(kubeconfig: Path) -> None:
    try:
        _kind("export", "kubeconfig", f"--name={CLUSTER_NAME}", f"--kubeconfig={kubeconfig}")
    except ClusterError as error:
        # After a restart of the machine, or where its creation was cut short.
        raise ClusterError(f"the kind cluster does not run: start its container, or {REMEDY}: {error}") from error


def _await_ready(kubeconfig: Path) -> None:
    """Wait for all nodes. kind itself waits only for a cluster that it creates, and ends well if that is not ready."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            kubectl(kubeconfig, "wait", "node", "--all", "--for=condition=Ready", "--timeout=10s")
            return
        except ClusterError as error:
            if time.monotonic() > deadline:
                message = f"the kind cluster is not ready after {READY_TIMEOUT_S:.0f} s: {REMEDY}: {error}"
                raise ClusterError(message) from error
        time.sleep(0.5)


def _kind(*arguments: str) -> str:
    program = shutil.which("kind")
    if program is None:
        raise ClusterError("CLUSTER=kind, but kind is not installed: install it, or use CLUSTER=local")
    done = subprocess.run((program, *arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"kind {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout

"""A cluster that another owner runs: used, never changed beyond what is asked for by name."""

from __future__ import annotations

import os
from pathlib import Path

from cluster import image_archive, volumes
from cluster.kubectl import kubectl
from cluster.steps import ClusterError, say


class Existing:
    """CLUSTER=existing: the cluster of $KUBECONFIG."""

    name = "existing"

    @property
    def kubeconfig(self) -> Path:
        configured = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        path = Path(configured)
        if not path.is_file():
            raise ClusterError(f"CLUSTER=existing, but the kubeconfig {path} is not there: set KUBECONFIG to one file")
        return path

    def up(self) -> None:
        kubectl(self.kubeconfig, "get", "--raw=/readyz")
        say(f"  ✓ the cluster of {self.kubeconfig} answers")

    def down(self) -> None:
        say("  the cluster is not ours: left as it is")

    def status(self) -> bool:
        try:
            say(kubectl(self.kubeconfig, "get", "nodes", "-o", "wide"))
        except ClusterError as error:
            say(str(error))
            return False
        return True

    def load_images(self, sources: list[str]) -> None:
        registry = os.environ.get("IMAGE_REGISTRY", "").rstrip("/")
        commands = [push_command(source, registry or "REGISTRY") for source in sources]
        say("  the cluster pulls its images from a registry; push them with\n    " + "\n    ".join(commands))
        if not registry:
            raise ClusterError(
                "set IMAGE_REGISTRY to a registry that the cluster pulls from (as ghcr.io/you), push the images "
                "as shown, and install the chart with their names there"
            )

    def create_volume(self, namespace: str, claim: str, size: str) -> None:
        create_claim(self.kubeconfig, namespace, claim, size)

    def delete_volume(self, namespace: str, claim: str) -> None:
        delete_claim(self.kubeconfig, namespace, claim)


def push_command(source: str, registry: str) -> str:
    """The command that pushes an archive's image, or one of buildah's store, to `registry`."""
    path = Path(source)
    if not path.is_file():
        return f"buildah push {source} docker://{registry}/{source.rpartition('/')[2]}"
    name = image_archive.images(path)[0].references[0].rpartition("/")[2]
    return f"skopeo copy docker-archive:{path} docker://{registry}/{name}"


def create_claim(kubeconfig: Path, namespace: str, claim: str, size: str) -> None:
    """A claim on the default storage class; it is bound when the first pod uses it."""
    volumes.check(namespace, claim, size)
    kubectl(kubeconfig, "apply", "-f", "-", text=volumes.claim_manifest(namespace, claim, size))


def delete_claim(kubeconfig: Path, namespace: str, claim: str) -> None:
    """Delete the claim; its storage class decides about the data."""
    volumes.check(namespace, claim)
    kubectl(kubeconfig, "delete", "pvc", claim, f"--namespace={namespace}", "--ignore-not-found", "--wait=false")

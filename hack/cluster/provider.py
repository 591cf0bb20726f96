"""What every kind of cluster can do, and which one is meant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from cluster.existing import Existing
from cluster.kind import Kind
from cluster.local import Local
from cluster.steps import ClusterError


class Provider(Protocol):
    """A cluster that the demo and the end-to-end tests run on."""

    name: str

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; raises ClusterError where there is none."""
        ...

    def up(self) -> None:
        """Make it usable; nothing happens when it is."""
        ...

    def down(self) -> None:
        """Remove what `up` made."""
        ...

    def status(self) -> bool:
        """Print how it is; whether it is usable."""
        ...

    def load_images(self, sources: list[str]) -> None:
        """Make the images of archives, or of buildah's store, usable by pods."""
        ...

    def create_volume(self, namespace: str, claim: str, size: str) -> Path | None:
        """Make a claim that pods can mount; the directory behind it, where that is one of this machine."""
        ...

    def delete_volume(self, namespace: str, claim: str) -> None:
        """Remove the claim and its data; nothing happens when it is not there."""
        ...


def choose() -> Provider:
    """The provider that the environment variable CLUSTER names; `local` without one.

    Raises:
        ClusterError: it names none.
    """
    providers: dict[str, type[Provider]] = {"local": Local, "kind": Kind, "existing": Existing}
    wanted = os.environ.get("CLUSTER") or "local"
    if wanted not in providers:
        raise ClusterError(f"CLUSTER={wanted}: use one of {', '.join(providers)}")
    return providers[wanted]()

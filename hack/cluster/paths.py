"""Where things lie: the cache that outlives clusters, one cluster's state, and what must not outlive a boot."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
GO_MODULES = SOURCE.parent / "go"


def cache_dir() -> Path:
    """What can be made again: binaries, image layers, logs of past runs. `ENGINEWRIGHT_CACHE` moves it."""
    configured = os.environ.get("ENGINEWRIGHT_CACHE")
    return Path(configured).absolute() if configured else Path.home() / ".cache" / "enginewright"


@dataclass(frozen=True)
class ClusterPaths:
    """Directories of one cluster (or of a bare control plane).

    Attributes:
        state: certificates, etcd's data, configuration, volumes: survives a restart of the machine, removed by `down`.
        run: sockets and mounts. Unix sockets' paths are limited to 107 bytes, so this must be short.
        logs: one file for each component.
    """

    state: Path
    run: Path
    logs: Path

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def config(self) -> Path:
        return self.state / "config"

    @property
    def records(self) -> Path:
        return self.state / "processes"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    @property
    def pod_logs(self) -> Path:
        return self.state / "pod-logs"

    @property
    def volumes(self) -> Path:
        return self.state / "volumes"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    def log(self, component: str) -> Path:
        return self.logs / f"{component}.log"

    def create(self) -> None:
        """Make the directories. The state holds private keys: only its owner may look in."""
        for directory in (self.state, self.run):
            directory.mkdir(parents=True, exist_ok=True, mode=0o711)
        for directory in (self.pki, self.config, self.records):
            directory.mkdir(exist_ok=True, mode=0o700)
        self.logs.mkdir(parents=True, exist_ok=True)


def local_cluster() -> ClusterPaths:
    """The one local cluster of this machine."""
    return ClusterPaths(Path("/var/lib/enginewright"), Path("/run/enginewright"), cache_dir() / "logs")


def containerd_root() -> Path:
    """Image layers stay in the cache, so that a cluster that is made again starts with its images."""
    return cache_dir() / "containerd"


def cached_directories() -> list[Path]:
    """What the cluster keeps in the cache, which others may use, too."""
    cache = cache_dir()
    return [*(cache / name for name in ("bin", "containerd", "kind", "locks", "logs")), *cache.glob("go-*")]


def control_plane(directory: Path) -> ClusterPaths:
    """A control plane of its own, wholly inside `directory`."""
    directory = directory.absolute()
    return ClusterPaths(directory, directory / "run", directory / "logs")

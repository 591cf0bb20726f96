"""Images in the local containerd."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from cluster import binaries, image_archive
from cluster.packages import system_program
from cluster.paths import ClusterPaths, cache_dir
from cluster.settings import CONTAINERD_NAMESPACE, COREDNS_IMAGE, PAUSE_IMAGE
from cluster.steps import ClusterError, say, step


def load(paths: ClusterPaths, source: str) -> None:
    """Bring an archive's images, or a reference out of buildah's store, into the node; nothing where they are there.

    Raises:
        ClusterError: there is no such archive or reference, or containerd refuses it.
    """
    archive = Path(source)
    if archive.is_file():
        _load_archive(paths, archive)
        return
    with tempfile.TemporaryDirectory(prefix="enginewright-image-") as directory:
        exported = Path(directory) / "image.tar"
        reference = image_archive.canonical(source)
        command = (system_program("buildah"), "push", "--quiet", source, f"docker-archive:{exported}:{reference}")
        with step(f"export {source} from buildah"):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ClusterError(f"{source} is neither a file nor an image that buildah has: {done.stderr.strip()}")
        _load_archive(paths, exported)


def load_own(paths: ClusterPaths) -> None:
    """The images of the cluster itself, built from the cached programs. They run as users without rights."""
    for program, reference, user in (
        (binaries.PAUSE, PAUSE_IMAGE, "65535:65535"),
        (binaries.COREDNS, COREDNS_IMAGE, "65532:65532"),
    ):
        binary = binaries.build(program)
        archive = binary.with_suffix(".image.tar")
        if not archive.exists():
            image_archive.write_program_image(archive, binary, reference, user)
        _load_archive(paths, archive)


def prune(paths: ClusterPaths) -> None:
    """Remove every image that is not the cluster's own; those of running pods stay on the disc until these end."""
    names = [name for name in _stored(paths) if name not in (PAUSE_IMAGE, COREDNS_IMAGE)]
    if names:
        _ctr(paths, "images", "remove", *names)
    say(f"  removed {len(names)} image names")


def disk_usage() -> int:
    """Bytes that the cache takes."""
    return sum(path.lstat().st_size for path in cache_dir().rglob("*") if not path.is_symlink() and path.is_file())


def _load_archive(paths: ClusterPaths, archive: Path) -> None:
    wanted = image_archive.images(archive)
    stored = _stored(paths)
    missing = [
        image
        for image in wanted
        if any(_config_digest(paths, stored.get(name)) != image.config_digest for name in image.references)
    ]
    names = ", ".join(name for image in wanted for name in image.references)
    if not missing:
        say(f"  ✓ {names} is on the node")
        return
    with step(f"load {names}"):
        _ctr(paths, "images", "import", "--digests=false", str(archive))


def _stored(paths: ClusterPaths) -> dict[str, str]:
    """Digest of the manifest for each name; without the names that containerd makes of digests."""
    stored = {}
    for line in _ctr(paths, "images", "list").splitlines()[1:]:
        name, _, digest, *_ = line.split()
        if "@" not in name and not name.startswith("sha256:"):
            stored[name] = digest
    return stored


def _config_digest(paths: ClusterPaths, manifest: str | None) -> str | None:
    """The configuration that a stored manifest names; None where it is an index or part of it is gone."""
    if manifest is None:
        return None
    try:
        digest = json.loads(_ctr(paths, "content", "get", manifest))["config"]["digest"]
        _ctr(paths, "content", "get", digest)
    except (ClusterError, KeyError, ValueError):
        return None
    return str(digest)


def _ctr(paths: ClusterPaths, *arguments: str) -> str:
    command = (
        str(system_program("ctr")), f"--address={paths.containerd_socket}", f"--namespace={CONTAINERD_NAMESPACE}",
        *arguments,
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"ctr {' '.join(arguments)} failed: {done.stderr.strip()}", paths.log("containerd"))
    return done.stdout

"""Image archives: written for a single static program, and read for what they hold."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.steps import ClusterError

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class ArchivedImage:
    """An image in an archive.

    Attributes:
        references: its names, in full form (`docker.io/library/x:1`, `localhost/y:2`).
        config_digest: `sha256:…` of its configuration, which names its layers: equal means the same image.
    """

    references: tuple[str, ...]
    config_digest: str


def canonical(reference: str) -> str:
    """The full form of an image's name: `busybox` is `docker.io/library/busybox:latest`."""
    host, slash, _ = reference.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        reference = f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"
    return reference if ":" in reference.rpartition("/")[2] or "@" in reference else f"{reference}:latest"


def write_program_image(archive: Path, program: Path, reference: str, user: str) -> None:
    """Write an OCI archive of an image that holds `program` alone, as its entry point; equal input, equal bytes."""
    name = program.name
    layer = _tar({name: program.read_bytes()}, mode=0o755)
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{name}"], "User": user, "Env": ["PATH=/"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, layer)],
        }
    )
    annotations = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    index = {"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST, manifest), "annotations": annotations}]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    files |= {f"blobs/sha256/{_digest(blob).partition(':')[2]}": blob for blob in (layer, config, manifest)}
    temporary = archive.with_suffix(".tmp")
    temporary.write_bytes(_tar(files, mode=0o644))
    temporary.rename(archive)


def images(archive: Path) -> list[ArchivedImage]:
    """The images of a Docker or OCI archive.

    Raises:
        ClusterError: the file is neither.
    """
    try:
        with tarfile.open(archive) as tar:
            found = list(_docker_images(tar) if "manifest.json" in tar.getnames() else _oci_images(tar))
    except (tarfile.TarError, KeyError, ValueError, OSError) as error:
        raise ClusterError(f"{archive} is not a Docker or OCI image archive: {error}") from error
    if not found:
        raise ClusterError(f"{archive} names no image: save it with its name, as `buildah push NAME docker-archive:…`")
    return found


def _docker_images(tar: tarfile.TarFile) -> Iterator[ArchivedImage]:
    for entry in json.loads(_member(tar, "manifest.json")):
        references = tuple(canonical(tag) for tag in entry.get("RepoTags") or ())
        if references:
            yield ArchivedImage(references, _digest(_member(tar, entry["Config"])))


def _oci_images(tar: tarfile.TarFile) -> Iterator[ArchivedImage]:
    for descriptor in json.loads(_member(tar, "index.json"))["manifests"]:
        annotations = descriptor.get("annotations", {})
        reference = annotations.get("io.containerd.image.name") or annotations.get("org.opencontainers.image.ref.name")
        if reference:
            manifest = json.loads(_member(tar, "blobs/" + descriptor["digest"].replace(":", "/")))
            yield ArchivedImage((canonical(reference),), manifest["config"]["digest"])


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    stream = tar.extractfile(name)
    if stream is None:
        raise ValueError(f"{name} in it is not a file")
    return stream.read()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()

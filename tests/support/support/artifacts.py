"""Models as they lie in OCI registries: what ORAS, modctl and podman push, made here byte by byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backports import zstd

MANIFEST, INDEX = "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json"
IMAGE_CONFIG, IMAGE_LAYER = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"
EMPTY = "application/vnd.oci.empty.v1+json"
TITLE, UNPACK = "org.opencontainers.image.title", "io.deis.oras.content.unpack"
FILEPATH = "org.cncf.model.filepath"


@dataclass(frozen=True)
class Artifact:
    """A manifest and the blobs that it names; of an index, the artifacts that it names."""

    manifest: bytes
    blobs: Mapping[str, bytes]
    media_type: str = MANIFEST
    children: Sequence[Artifact] = ()

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def descriptor(data: bytes, media_type: str, **annotations: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data),
            **({"annotations": annotations} if annotations else {})}


def artifact(layers: Sequence[tuple[bytes, str, Mapping[str, str]]], config: tuple[bytes, str] = (b"{}", EMPTY),
             **fields: Any) -> Artifact:
    """Of layers with their types and annotations."""
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(*config),
                "layers": [descriptor(data, kind, **notes) for data, kind, notes in layers], **fields}
    blobs = {digest_of(data): data for data in (config[0], *(data for data, _, _ in layers))}
    return Artifact(json.dumps(manifest).encode(), blobs)


def oras(files: Mapping[str, bytes]) -> Artifact:
    """``oras push REFERENCE FILE…``: plain files, of an archive's type nonetheless."""
    return artifact([(data, IMAGE_LAYER, {TITLE: name}) for name, data in files.items()],
                    artifactType="application/vnd.unknown.artifact.v1")


def oras_folder(name: str, files: Mapping[str, bytes]) -> Artifact:
    """``oras push REFERENCE FOLDER``."""
    packed = gzip.compress(tar({f"{name}/{file}": data for file, data in files.items()}))
    return artifact([(packed, f"{IMAGE_LAYER}+gzip", {TITLE: name, UNPACK: "true"})],
                    artifactType="application/vnd.unknown.artifact.v1")


def modelpack(files: Mapping[str, bytes], *, raw: bool) -> Artifact:
    """``modctl build``: a layer for each file, as it is or in an archive of its own."""
    layers = [(data if raw else tar({name: data}), f"application/vnd.cncf.model.weight.v1.{'raw' if raw else 'tar'}",
               {FILEPATH: name}) for name, data in files.items()]
    return artifact(layers, (b'{"modelfs":{}}', "application/vnd.cncf.model.config.v1+json"),
                    artifactType="application/vnd.cncf.model.manifest.v1+json")


def image(*layers: bytes, note: str = "", compression: str = "gzip") -> Artifact:
    """``podman build`` of archives, with ``--compression-format`` as it is pushed. ``note`` makes another image of the
    same layers."""
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []},
                         "author": note}).encode()
    packed: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
    return artifact([(packed[compression](data), f"{IMAGE_LAYER}+{compression}", {}) for data in layers],
                    (config, IMAGE_CONFIG))


def index(*images: tuple[Artifact, str, str]) -> Artifact:
    """Of images, each with the operating system and architecture that it is for."""
    manifests = [{**descriptor(one.manifest, one.media_type), "platform": {"os": system, "architecture": machine}}
                 for one, system, machine in images]
    content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    return Artifact(json.dumps(content).encode(), {}, INDEX, [one for one, _, _ in images])


def tar(files: Mapping[str, bytes], *members: tarfile.TarInfo) -> bytes:
    """Files, then members of other kinds."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in members:
            archive.addfile(member)
    return stream.getvalue()


def member(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found

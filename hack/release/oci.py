"""OCI image layouts as archives: one file that registries' clients and containerd read."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
Json = dict[str, Any]


@dataclass(frozen=True)
class Blob:
    """Content by its digest: of ``data``, or of the file ``path``."""

    media_type: str
    digest: str
    size: int
    data: bytes = b""
    path: Path | None = None

    @classmethod
    def of(cls, media_type: str, data: bytes) -> Blob:
        return cls(media_type, sha256(data), len(data), data)

    @property
    def descriptor(self) -> Json:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def dump(value: object) -> bytes:
    """JSON, the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def manifest(config: Blob, layers: Sequence[Blob], annotations: Mapping[str, str]) -> Blob:
    return Blob.of(MANIFEST, dump({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor,
        "layers": [layer.descriptor for layer in layers], "annotations": dict(annotations),
    }))


def write(archive: Path, described: Blob, blobs: Sequence[Blob], names: Sequence[Mapping[str, str]],
          more: Mapping[str, object]) -> None:
    """The layout with one manifest under several names.

    Args:
        described: the manifest.
        names: annotations of each entry in the index.
        more: further JSON documents beside the index, by name.
    """
    index = {"schemaVersion": 2, "manifests": [{**described.descriptor, "annotations": dict(name)} for name in names]}
    documents = {"oci-layout": {"imageLayoutVersion": "1.0.0"}, "index.json": index, **more}
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, document in documents.items():
            content = dump(document)
            tar.addfile(_entry(name, len(content)), io.BytesIO(content))
        for blob in {blob.digest: blob for blob in (described, *blobs)}.values():
            entry = _entry(member(blob.digest), blob.size)
            with io.BytesIO(blob.data) if blob.path is None else blob.path.open("rb") as stream:
                tar.addfile(entry, stream)


def member(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def read(tar: tarfile.TarFile, name: str) -> Any:
    """A JSON document of the archive. Raises KeyError when it has none of that name."""
    stream = tar.extractfile(name)
    if stream is None:
        raise KeyError(name)
    return json.loads(stream.read())


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry

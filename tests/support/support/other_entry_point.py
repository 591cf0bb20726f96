"""An image like another one but for its entry point, as an archive: what runs it by a command of its own sees no
difference, and what runs it as the image says does."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

_NAMES = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


def with_entry_point(archive: Path, entry_point: list[str], reference: str, target: Path) -> None:
    """Writes to ``target`` the one image of the OCI ``archive`` as ``reference`` with another entry point. Its layers
    stay as they are."""
    with tarfile.open(archive) as source:
        index = _read(source, "index.json")
        manifest = _read(source, _member(index["manifests"][0]))
        config = _read(source, _member(manifest["config"]))
        config["config"] = {**config["config"], "Entrypoint": entry_point, "Cmd": None}
        documents: dict[str, bytes] = {}
        manifest["config"] |= _blob(documents, config)
        named = index["manifests"][0] | _blob(documents, manifest)
        named["annotations"] = dict.fromkeys(_NAMES, reference)
        documents["index.json"] = json.dumps({**index, "manifests": [named]}).encode()
        documents["oci-layout"] = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
        with tarfile.open(target, "w") as made:
            for name, content in documents.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                made.addfile(entry, io.BytesIO(content))
            for name in map(_member, manifest["layers"]):
                made.addfile(source.getmember(name), source.extractfile(name))


def _read(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    stream = archive.extractfile(name)
    assert stream is not None
    return dict(json.load(stream))


def _member(descriptor: dict[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def _blob(documents: dict[str, bytes], document: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    documents[_member({"digest": digest})] = content
    return {"digest": digest, "size": len(content)}

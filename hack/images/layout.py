"""An OCI image layout that several images share, and archives made from it.

buildah writes a layer into the layout once, whichever image it belongs to. An archive is one file with one image's part
of it, which containerd, Docker, Podman and kind load.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"


def write_archive(layout: Path, name: str, reference: str, archive: Path) -> int:
    """Write the image that ``layout`` calls ``name`` to ``archive`` as ``reference``; returns the size in bytes.

    The archive appears complete or not at all.

    Raises:
        KeyError: the layout has no such image.
    """
    descriptor = _descriptors(layout)[name]
    manifest = json.loads(_blob(layout, descriptor["digest"]).read_bytes())
    named = {**descriptor, "annotations": {_CONTAINERD_NAME: reference, _NAME: reference}}
    layers = [layer["digest"] for layer in manifest["layers"]]
    config = manifest["config"]["digest"]
    documents = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "manifests": [named]},
        # What `docker load` reads, and every reader of Docker's older archives.
        "manifest.json": [
            {"Config": _member(config), "RepoTags": [reference], "Layers": [_member(layer) for layer in layers]}
        ],
    }
    temporary = archive.with_suffix(".tmp")
    with tarfile.open(temporary, "w") as tar:
        for member, document in documents.items():
            content = json.dumps(document, sort_keys=True).encode()
            tar.addfile(_entry(member, len(content)), io.BytesIO(content))
        for digest in dict.fromkeys((descriptor["digest"], config, *layers)):
            path = _blob(layout, digest)
            with path.open("rb") as stream:
                tar.addfile(_entry(_member(digest), path.stat().st_size), stream)
    temporary.rename(archive)
    return archive.stat().st_size


def keep_only(layout: Path, names: Collection[str]) -> None:
    """Forget the images that are not in ``names``, and remove the blobs that only they had."""
    kept = {name: descriptor for name, descriptor in _descriptors(layout).items() if name in names}
    index = json.loads((layout / "index.json").read_bytes())
    temporary = layout / "index.json.tmp"
    temporary.write_text(json.dumps({**index, "manifests": list(kept.values())}))
    temporary.rename(layout / "index.json")
    needed = {digest.partition(":")[2] for descriptor in kept.values() for digest in _digests(layout, descriptor)}
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.name not in needed:
            blob.unlink()


def _descriptors(layout: Path) -> dict[str, dict[str, Any]]:
    index = json.loads((layout / "index.json").read_bytes())
    return {descriptor["annotations"][_NAME]: descriptor for descriptor in index["manifests"]}


def _digests(layout: Path, descriptor: dict[str, Any]) -> Iterator[str]:
    manifest = json.loads(_blob(layout, descriptor["digest"]).read_bytes())
    yield descriptor["digest"]
    yield manifest["config"]["digest"]
    yield from (layer["digest"] for layer in manifest["layers"])


def _blob(layout: Path, digest: str) -> Path:
    return layout / _member(digest)


def _member(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"blobs/{algorithm}/{value}"


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry

"""An OCI image layout that several images share, and archives made from it.

buildah writes a layer into the layout once, whichever image it belongs to. An archive is one file with one image's part
of it, which containerd, Docker, Podman and kind load.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAME = "org.opencontainers.image.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"


@contextmanager
def sparing_known_layers(layout: Path, name: str) -> Iterator[None]:
    """Around a push of the image ``name`` into ``layout``: layers that are there already are not compressed again.

    buildah asks for a layer under the digest of its uncompressed form, which an image's configuration lists, and skips
    it when there is a blob of that name. So empty blobs of these names stand there meanwhile; afterwards the manifest
    is given the compressed layers that they stood for.
    """
    for blob in (layout / "blobs" / "sha256").glob("*"):
        if blob.stat().st_size == 0:  # of a push that was killed
            blob.unlink()
    known = _known_layers(layout)
    standing = [_blob(layout, digest) for digest in known if not _blob(layout, digest).exists()]
    try:
        for blob in standing:
            blob.touch()
        yield
    finally:
        for blob in standing:
            blob.unlink(missing_ok=True)
    index = json.loads((layout / "index.json").read_bytes())
    for descriptor in index["manifests"]:
        if descriptor["annotations"][_NAME] == name:
            manifest = json.loads(_blob(layout, descriptor["digest"]).read_bytes())
            manifest["layers"] = [known.get(layer["digest"], layer) for layer in manifest["layers"]]
            descriptor |= _add_blob(layout, json.dumps(manifest, sort_keys=True).encode())
    _replace(layout / "index.json", json.dumps(index).encode())


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
    _replace(layout / "index.json", json.dumps({**index, "manifests": list(kept.values())}).encode())
    needed = {digest.partition(":")[2] for descriptor in kept.values() for digest in _digests(layout, descriptor)}
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.name not in needed:
            blob.unlink()


def _descriptors(layout: Path) -> dict[str, dict[str, Any]]:
    index = json.loads((layout / "index.json").read_bytes())
    return {descriptor["annotations"][_NAME]: descriptor for descriptor in index["manifests"]}


def _known_layers(layout: Path) -> dict[str, dict[str, Any]]:
    """Descriptors of the layers in ``layout``, by the digests of their uncompressed forms."""
    known: dict[str, dict[str, Any]] = {}
    for descriptor in _descriptors(layout).values() if (layout / "index.json").exists() else ():
        manifest = json.loads(_blob(layout, descriptor["digest"]).read_bytes())
        config = json.loads(_blob(layout, manifest["config"]["digest"]).read_bytes())
        for digest, layer in zip(config["rootfs"]["diff_ids"], manifest["layers"], strict=True):
            blob = _blob(layout, layer["digest"])
            if blob.exists() and blob.stat().st_size == layer["size"]:
                known[digest] = layer
    return known


def _add_blob(layout: Path, content: bytes) -> dict[str, Any]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    _replace(_blob(layout, digest), content)
    return {"digest": digest, "size": len(content)}


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.rename(path)


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

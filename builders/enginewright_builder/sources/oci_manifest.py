"""What a registry has under a name: which manifest of an index, whether it is an image, and what its layers are.

https://github.com/opencontainers/image-spec/blob/main/manifest.md; for names of files those of ORAS
(``org.opencontainers.image.title``) and of the CNCF's ModelPack (``org.cncf.model.filepath``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import Blob, FetchContext

if TYPE_CHECKING:
    from enginewright_builder.sources.registry import Registry

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# One may name another; more than these lead nowhere.
_MOST_INDEXES = 4
_PLATFORM = {"os": "linux", "architecture": "amd64"}
_IMAGE_CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
# Of {}: some clients push artifacts as images, for registries that know nothing else.
_EMPTY_CONFIG = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
_TITLE, _UNPACK = "org.opencontainers.image.title", "io.deis.oras.content.unpack"
_MODELPACK = ("org.cncf.model.filepath", "org.cnai.model.filepath")  # the latter before 2025
_ARCHIVE = re.compile(r".*\.tar(?:[+.]\w+)?")


@dataclass(frozen=True)
class Layer:
    """``kind`` says whether it is a file, an archive, or an archive of changes to the layers before it. ``name`` is the
    file's, or that of what is packed, where it is known."""

    blob: Blob
    name: str
    kind: Literal["file", "archive", "changes"]


def find_manifest(registry: Registry, reference: str, uri: str, context: FetchContext) -> Mapping[str, Any]:
    """Of the image or artifact; where there is one for each of several platforms, that for linux/amd64 or else the
    first: a model is the same on all of them, and must be the same one on every node."""
    for _ in range(_MOST_INDEXES):
        manifest = registry.manifest(reference)
        children = manifest.get("manifests")
        found = [child for child in children if _is_model(child)] if isinstance(children, list) else []
        if not found:
            break
        chosen = next((child for child in found if _platform(child).items() >= _PLATFORM.items()), found[0])
        reference = str(chosen.get("digest"))
        if not _DIGEST.fullmatch(reference):
            raise registry.corrupt(f"its index names a manifest by {reference[:80]!r}, which is no SHA-256 digest")
    if not isinstance(manifest.get("layers"), list):
        kind = manifest.get("mediaType") or f"schema {manifest.get('schemaVersion')}"
        raise _unknown(uri, f"is no image and no artifact with layers ({kind})", context,
                       "push it with oras, modctl, podman or docker, as OCI image manifest")
    return manifest


def is_image(manifest: Mapping[str, Any]) -> bool:
    config = manifest.get("config")
    return (isinstance(config, dict) and config.get("mediaType") in _IMAGE_CONFIGS
            and config.get("digest") != _EMPTY_CONFIG and not manifest.get("artifactType"))


def layers_of(manifest: Mapping[str, Any], uri: str, context: FetchContext) -> list[Layer]:
    """Raises :class:`UserError` ``FormatUnknown`` for one that is no file and no archive."""
    image = is_image(manifest)
    return [_layer(entry if isinstance(entry, dict) else {}, image, uri, context) for entry in manifest["layers"]]


def _layer(entry: Mapping[str, Any], image: bool, uri: str, context: FetchContext) -> Layer:
    digest, size, media_type = entry.get("digest"), entry.get("size"), str(entry.get("mediaType", ""))
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or not isinstance(size, int) or size < 0:
        raise _unknown(uri, "has a layer without a size or a SHA-256 digest", context,
                       "push it with oras, modctl, podman or docker, which write both")
    archive = _ARCHIVE.fullmatch(media_type)
    notes = entry.get("annotations")
    name, packed = _named(notes if isinstance(notes, dict) else {}, packed=archive is not None)
    if image and archive:
        return Layer(Blob(digest, size), "", "changes")
    if image or not (name or packed):
        raise _unknown(uri, f"has a layer of type {media_type or 'nothing'} that names no file", context,
                       "push the model's files with oras or modctl, or as an image that has them in /models")
    return Layer(Blob(digest, size), name, "archive" if packed else "file")


def _named(notes: Mapping[str, Any], *, packed: bool) -> tuple[str, bool]:
    """The name of an artifact's file, or of the folder that is packed; and whether one is."""
    path, title = next((notes[key] for key in _MODELPACK if key in notes), ""), notes.get(_TITLE, "")
    if title and not path:
        # ORAS gives plain files the types of archives, too: what is to be unpacked it says beside that.
        packed = notes.get(_UNPACK) == "true"
    name = str(PurePosixPath(str(path or title)))
    return ("" if name == "." else name), packed


def _is_model(child: Any) -> bool:
    """And not what builders tell of an image beside it, for a platform that there is not."""
    return isinstance(child, dict) and _platform(child).get("os") != "unknown"


def _platform(child: Mapping[str, Any]) -> Mapping[str, Any]:
    found = child.get("platform")
    return found if isinstance(found, dict) else {}


def _unknown(uri: str, what: str, context: FetchContext, remedy: str) -> UserError:
    return UserError("FormatUnknown", f"{uri} {what}", field=context.field, value=uri, remedy=remedy)

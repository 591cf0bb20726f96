"""Sources in OCI registries: ``oci://REGISTRY/REPOSITORY:TAG`` or ``…@sha256:DIGEST``, and a folder or file of it
behind that.

What may lie there: files and packed folders pushed with ORAS, models by the CNCF's ModelPack, and images that have a
model below ``/models``, as KServe's modelcars have. The tag is turned into a digest first, and all is read by that.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_names import check_names
from enginewright_builder.sources.base import FetchContext, listed
from enginewright_builder.sources.layers import Layers, is_at
from enginewright_builder.sources.oci_manifest import Layer, find_manifest, is_image, layers_of
from enginewright_builder.sources.remote import check_model, tidy_environment

if TYPE_CHECKING:
    from enginewright_builder.sources.registry import Registry

_HOST = r"(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+|[a-z0-9-]+(?=:)|\[[0-9a-f:.]+\])(?::\d{1,5})?"
_NAME = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_URI = re.compile(rf"oci://(?P<registry>(?i:{_HOST}))/(?P<repository>{_NAME}(?:/{_NAME})*)"
                  r"(?=[:@])(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?(?P<path>/.*)?",
                  re.ASCII)
# The default registry has another name for programs, and a folder of its own for names without one.
_DOCKER_HUB, _DOCKER_HUB_HOST = "docker.io", "registry-1.docker.io"
# An image that was made for KServe has it here.
_IMAGE_FOLDER = "models"


@dataclass(frozen=True)
class _Place:
    registry: str
    repository: str
    reference: str
    path: str

    @property
    def folder(self) -> str:
        """What it is downloaded to: the last part of the repository's name with its tag or digest."""
        name = self.repository.rpartition("/")[2]
        return f"{name}@{self.reference}" if ":" in self.reference else f"{name}:{self.reference}"


class OciFetcher:
    """``pause`` waits between attempts; tests pass their own."""

    schemes = ("oci",)

    def __init__(self, pause: Callable[[float], None] = time.sleep) -> None:
        self._pause = pause

    def fetch(self, uri: str, context: FetchContext) -> Path:
        from enginewright_builder.sources.registry import Registry  # it imports httpx

        place = _place(uri, context)
        tidy_environment()
        with Registry(place.registry, place.repository, uri, context, pause=self._pause) as registry:
            manifest = find_manifest(registry, place.reference, uri, context)
            wanted = place.path or (_IMAGE_FOLDER if is_image(manifest) else "")
            layers = layers_of(manifest, uri, context)
            needed = [one for one in layers if not one.name or is_at(one.name, wanted) or is_at(wanted, one.name)]
            _check_names(needed, place.path, uri, context)
            pool = context.scratch / ".layers"
            pool.mkdir(parents=True, exist_ok=True)
            try:
                found = Layers(pool, wanted, uri, context)
                found.tops |= {layer.name.partition("/")[0] for layer in layers if layer.name}
                _download(registry, needed, found, pool / "blob", uri, context)
                return _laid_out(found, context.scratch / place.folder, place.path, wanted, uri, context)
            finally:
                shutil.rmtree(pool, ignore_errors=True)


def _place(uri: str, context: FetchContext) -> _Place:
    match = _URI.fullmatch(uri)
    path = unquote(match["path"] or "").strip("/") if match else ""
    port = re.search(r":(\d+)$", match["registry"]) if match else None
    if match is None or {"..", "."} & set(path.split("/")) or (port and not 0 < int(port[1]) < 65536):
        raise UserError("SourceUriInvalid", f"{uri!r} names no artifact of a registry", field=context.field, value=uri,
                        remedy="write oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST, and "
                               "behind it /FOLDER or /FILE if only that is meant")
    registry, repository = match["registry"].lower(), match["repository"]
    if registry == _DOCKER_HUB:
        registry, repository = _DOCKER_HUB_HOST, repository if "/" in repository else f"library/{repository}"
    return _Place(registry, repository, match["digest"] or match["tag"], path)


def _check_size(layers: Sequence[Layer], uri: str, context: FetchContext) -> int:
    """In bytes, as they are downloaded."""
    total = sum(layer.blob.size for layer in layers)
    if total > context.size_limit:
        raise UserError("SourceTooLarge", f"{uri} has {total:,} bytes, more than {context.size_limit:,}",
                        field=context.field, value=uri, remedy="name the folder or file that is the model")
    return total


def _check_names(layers: Sequence[Layer], path: str, uri: str, context: FetchContext) -> None:
    """What names tell, before anything is downloaded."""
    names = [layer.name for layer in layers if layer.kind == "file"]
    try:
        check_names(names)
    except ValueError as error:
        raise UserError("SourceUriInvalid", f"{uri}: {error}", field=context.field, value=uri,
                        remedy="push it again with relative names of files") from error
    if len(names) == len(layers) and names and names != [path]:
        check_model(names, names, path, uri, context)


def _download(registry: Registry, layers: Sequence[Layer], found: Layers, blob: Path, uri: str,
              context: FetchContext) -> None:
    total, received = _check_size(layers, uri, context), 0

    def read(size: int) -> None:
        nonlocal received
        received += size
        context.progress(received / max(total, 1), f"{received >> 20} of {total >> 20} MiB")

    for layer in layers:
        registry.blob(layer.blob, blob, read)
        if layer.kind == "file":
            found.add_file(layer.name, blob)
        else:
            found.add_archive(blob, changes=layer.kind == "changes")
            blob.unlink()


def _laid_out(found: Layers, root: Path, path: str, wanted: str, uri: str, context: FetchContext) -> Path:
    names = found.names
    if wanted and not names:
        nearby = listed(found.tops, wanted.partition("/")[0]) or "nothing"
        raise UserError("SourceNotFound", f"{uri} has no /{wanted}; at its top is {nearby}", field=context.field,
                        value=uri, remedy="name the folder or file that it has behind the tag or digest")
    if names != [path]:
        check_model(names, names, wanted, uri, context)
    found.lay_out(root)
    return root / wanted

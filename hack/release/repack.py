"""An image as it is released: without the times and names of the machine that built it.

What a file holds, whose it is and what it may stay; every time becomes 0, which byte code here does not look at. Two
builds of the same files then have one digest, and a layer that two releases share is pulled once.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from backports import zstd

from release import oci
from release.contents import Contents, Package

LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
CONFIG = "application/vnd.oci.image.config.v1+json"
LEVEL = 3
_KEPT_HEADERS = "SCHILY.xattr."  # capabilities of programs
# Has the day on which each account was made.
_SHADOW = ("etc/shadow", "etc/shadow-")
# apt makes them when it runs as root, for itself or for its own user, by what the machine lets it do.
_APT_FOLDERS = ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial")
# Of files as buildah saw them, times and all.
_FILE_DIGEST = re.compile(r"\b(file|dir|multi):[0-9a-f]{64}")


@dataclass(frozen=True)
class Image:
    """A released image.

    Attributes:
        repository: ``[registry/]enginewright-operator``.
        tags: the first is the release's version.
        digest: of its manifest, ``sha256:…``.
    """

    repository: str
    tags: tuple[str, ...]
    digest: str
    archive: Path
    packages: tuple[Package, ...]


@dataclass
class _Digesting:
    """Writes to ``below``, and knows digest and size of what went through."""

    below: Any
    size: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        self.below.write(data)
        return len(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def repack(source: Path, target: Path, repository: str, tags: Sequence[str], *, created: str,
           annotations: Mapping[str, str], scratch: Path) -> Image:
    """Write the only image of the archive ``source`` to ``target``.

    Args:
        created: the time that the image states, RFC 3339.
        annotations: of the manifest.
        scratch: an existing folder for layers.

    Raises:
        ValueError: the archive holds no image, or several.
    """
    contents = Contents()
    with tarfile.open(source) as tar:
        (descriptor,) = oci.read(tar, "index.json")["manifests"]
        manifest = oci.read(tar, oci.member(descriptor["digest"]))
        config = oci.read(tar, oci.member(manifest["config"]["digest"]))
        done = [_layer(tar, layer["digest"], scratch, contents) for layer in manifest["layers"]]
    layers = [blob for blob, _ in done]
    settings = oci.Blob.of(CONFIG, oci.dump(_config(config, [diff for _, diff in done], created)))
    described = oci.manifest(settings, layers, annotations)
    references = [f"{repository}:{tag}" for tag in tags]
    names = [{"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag}
             for reference, tag in zip(references, tags, strict=True)]
    # What `docker load` reads.
    docker = [{"Config": oci.member(settings.digest), "RepoTags": references,
               "Layers": [oci.member(layer.digest) for layer in layers]}]
    oci.write(target, described, [settings, *layers], names, {"manifest.json": docker})
    return Image(repository, tuple(tags), described.digest, target, tuple(contents.packages()))


def _config(config: oci.Json, diffs: Sequence[str], created: str) -> oci.Json:
    """Comments of the history name images of the machine that built it."""
    history = [{**{key: value for key, value in step.items() if key != "comment"}, "created": created,
                "created_by": _FILE_DIGEST.sub(r"\1", step.get("created_by", ""))} for step in config["history"]]
    labels = {key: value for key, value in config["config"].get("Labels", {}).items() if key != "io.buildah.version"}
    return {"architecture": config["architecture"], "os": config["os"], "created": created,
            "config": {**config["config"], "Labels": labels}, "history": history,
            "rootfs": {"type": "layers", "diff_ids": list(diffs)}}


def _layer(tar: tarfile.TarFile, digest: str, scratch: Path, contents: Contents) -> tuple[oci.Blob, str]:
    """The rewritten layer, and the digest of its uncompressed form."""
    path = scratch / digest.partition(":")[2]
    with ExitStack() as stack:
        packed = stack.enter_context(zstd.open(_stream(tar, oci.member(digest)), "rb"))
        source = stack.enter_context(tarfile.open(fileobj=packed, mode="r|"))
        written = _Digesting(stack.enter_context(path.open("wb")))
        squeezed = stack.enter_context(zstd.open(written, "wb", level=LEVEL))  # type: ignore[call-overload]
        plain = _Digesting(squeezed)
        with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as target:  # type: ignore[call-overload]
            for entry in source:
                _copy(source, entry, target, contents)
    return oci.Blob(LAYER, written.digest, written.size, path=path), plain.digest


def _copy(source: tarfile.TarFile, entry: tarfile.TarInfo, target: tarfile.TarFile, contents: Contents) -> None:
    entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.pax_headers = {key: value for key, value in sorted(entry.pax_headers.items())
                         if key.startswith(_KEPT_HEADERS)}
    path = entry.name.removeprefix("./")
    contents.take_away(path)
    if path in _APT_FOLDERS:
        entry.uid = entry.gid = 0
    stream = source.extractfile(entry) if entry.isreg() else None
    if stream is not None and contents.wants(path):
        content = stream.read()
        contents.add(path, content)
        stream = io.BytesIO(content)
    elif stream is not None and path in _SHADOW:
        content = without_days(stream.read())
        entry.size = len(content)
        stream = io.BytesIO(content)
    target.addfile(entry, stream)


def without_days(shadow: bytes) -> bytes:
    """The third field of each line is the day of the last change of a password; no account here has one."""
    return re.sub(rb"(?m)^([^:\n]*:[^:\n]*:)\d+:", rb"\g<1>1:", shadow)


def _stream(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = tar.extractfile(name)
    if stream is None:
        raise ValueError(f"{name} in the archive is not a file")
    return stream

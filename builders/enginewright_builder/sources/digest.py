"""Content digests: equal digest, equal content, wherever it lies.

A file's digest is the SHA-256 of its bytes, so ``sha256sum`` gives the same. A folder's is the SHA-256 of this text:
the line ``enginewright-directory-v1``, then one line ``<sha256 of the file>  <path relative to the folder>`` for each
file in order of the paths' UTF-8 bytes. Left out are the kubelet's time-stamped folders in projected volumes and its
links to them, whose content appears once more under plain names, and a ``lost+found`` that may not be listed: nothing
in a source may lead there (``own_names.py``). Modes and times do not count.

The digest of an ONNX file that takes tensors from files beside it is the SHA-256 of the line ``enginewright-onnx-v1``,
then the line ``<sha256 of the graph>``, then one line ``<sha256 of the file>  <its name in the graph>`` for each of
them in order of the names' UTF-8 bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import CHUNK_BYTES
from enginewright_builder.sources.external_data import external_files
from enginewright_builder.sources.own_names import LOST_FOUND, is_kubelets

_HEADER, _GRAPH_HEADER = b"enginewright-directory-v1\n", b"enginewright-onnx-v1\n"
_SOURCE = "spec.source.uri"


def content_digest(path: Path, field: str = _SOURCE) -> str:
    """``sha256:<hex>``. Raises :class:`UserError` ``SourceUriInvalid`` where a link leaves the folder, and
    ``SourceCorrupt`` where a file is missing that an ONNX graph names; ``OSError`` where something cannot be read."""
    if path.is_file():
        # Sample files are no graphs, and may be larger than one can be.
        return f"sha256:{_graph_sha256(path, field) if field == _SOURCE else file_sha256(path)}"
    text = hashlib.sha256(_HEADER)
    for relative, file in sorted_files(path, field):
        text.update(f"{file_sha256(file)}  {relative}\n".encode())
    return f"sha256:{text.hexdigest()}"


def _graph_sha256(path: Path, field: str) -> str:
    beside = external_files(path, field)
    if not beside:
        return file_sha256(path)
    text = hashlib.sha256(_GRAPH_HEADER)
    text.update(f"{file_sha256(path)}\n".encode())
    for file in beside:
        text.update(f"{file_sha256(file.path)}  {file.location}\n".encode())
    return text.hexdigest()


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sorted_files(root: Path, field: str = "spec.source.uri") -> list[tuple[str, Path]]:
    """Relative ``/``-separated paths and files below ``root``; links are followed inside ``root`` only."""
    return sorted(_files(root.resolve(), field), key=lambda item: item[0].encode())


def _files(root: Path, field: str) -> Iterator[tuple[str, Path]]:
    for folder, names, files in os.walk(root, onerror=_raise, followlinks=False):
        names[:] = [name for name in names if not is_kubelets(Path(folder) / name)]
        # A linked folder is listed among the folders but not walked: take its files, if it stays inside.
        for name in [name for name in names if (Path(folder) / name).is_symlink()]:
            linked = _inside(root, Path(folder) / name, field)
            if Path(folder).resolve().is_relative_to(linked):
                continue
            for relative, file in _files(linked, field):
                yield f"{(Path(folder) / name).relative_to(root).as_posix()}/{relative}", file
        for name in files:
            path = Path(folder) / name
            if not is_kubelets(path):
                yield path.relative_to(root).as_posix(), _inside(root, path, field)


def _raise(error: OSError) -> None:
    """What may not be listed is not empty: a digest without it would be that of another folder. But of the file
    system's own folder nothing is ever read."""
    if not isinstance(error, PermissionError) or os.path.basename(error.filename) != LOST_FOUND:
        raise error


def _inside(root: Path, path: Path, field: str) -> Path:
    target = path.resolve()
    if not target.is_relative_to(root):
        raise UserError("SourceUriInvalid", f"{path.relative_to(root)} is a link to {target}, outside the folder",
                        field=field, value=root, remedy="copy the files themselves, for example with cp -rL")
    if not target.exists():
        raise UserError("SourceNotFound", f"{path.relative_to(root)} is a link to nothing", field=field, value=root,
                        remedy="copy the files themselves, for example with cp -rL")
    return target

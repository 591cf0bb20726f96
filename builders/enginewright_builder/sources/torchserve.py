"""TorchServe's archives (``.mar``): the weights in them, without the code around these.

Such an archive is a zip of whatever its user put into it. ``MAR-INF/MANIFEST.json`` names the file of weights
(``serializedFile``), the handler, which is code or a name of TorchServe's own, and the file with the module's class
(``modelFile``) where the weights are a pickle. Code is not even unpacked; what else there is, is looked at as any
source.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed
from enginewright_builder.foreign_names import check_length
from enginewright_builder.sources.base import CHUNK_BYTES
from enginewright_builder.sources.own_names import escapes_folder

MANIFEST = "MAR-INF/MANIFEST.json"
_CODE = frozenset({".py", ".pyc", ".pyd", ".so", ".sh", ".whl"})
_MOST_MANIFEST = 1 << 20  # bytes
_MOST_FILES = 10_000
# The archiver compresses all: weights hardly get smaller, texts to a fourth. Small archives may promise more.
_RATIO, _SMALL = 16, 64 << 20
_FIELD = "spec.source.uri"


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """``folder`` has all files but code; ``weights`` is the one of them that the manifest names, None where it names
    none; ``module`` the file, not unpacked, with the class whose weights they are, empty where none is named."""

    folder: Path
    weights: Path | None
    module: str
    notes: tuple[str, ...]


def is_torchserve(path: Path) -> bool:
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def unpack(path: Path, folder: Path) -> Unpacked:
    """Into ``folder``, which is emptied before. Raises :class:`UserError` ``SourceCorrupt``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            model = _model(path, archive)
            code = [one.filename for one in members if _is_code(one.filename)]
            for one in members:
                if one.filename not in code:
                    _write(archive, one, folder)
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError, EOFError,
            FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise _corrupt(path, str(error)) from error
    named = _text(path, model, "serializedFile")
    weights = folder / named if named else None
    if weights is not None and (escapes_folder(named) or not weights.is_file()):
        raise _corrupt(path, f"its manifest names {named[:100]!r}, which is not in it")
    return Unpacked(folder=folder, weights=weights, module=_text(path, model, "modelFile"),
                    notes=tuple(_notes(path, _text(path, model, "handler"), code)))


def _members(path: Path, archive: zipfile.ZipFile) -> Sequence[zipfile.ZipInfo]:
    """Files apart from TorchServe's own. Raises ``SourceCorrupt``."""
    members = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("MAR-INF/")]
    names = [one.filename for one in members]
    if len(names) > _MOST_FILES or len(set(names)) != len(names):
        raise _corrupt(path, f"it has more than {_MOST_FILES} files, or one of them twice")
    for name in names:
        check_length(name)
    if escaping := [name for name in names if escapes_folder(name)]:
        raise _corrupt(path, f"{escaping[0][:100]!r} is no name of a file in it")
    if sum(one.file_size for one in members) > max(_SMALL, _RATIO * path.stat().st_size):
        raise _corrupt(path, "its files promise more bytes than it can have")
    return members


def _model(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    """What the manifest says of the model. Raises ``SourceCorrupt``, and ``ValueError`` for what is no JSON."""
    if archive.getinfo(MANIFEST).file_size > _MOST_MANIFEST:
        raise _corrupt(path, f"{MANIFEST} is longer than {_MOST_MANIFEST >> 20} MiB")
    manifest = parsed(archive.read(MANIFEST))
    model = manifest.get("model") if isinstance(manifest, dict) else None
    if not isinstance(model, dict):
        raise _corrupt(path, f"{MANIFEST} has no object model")
    return model


def _text(path: Path, model: dict[str, Any], key: str) -> str:
    """Empty where the manifest does not say."""
    found = model.get(key) or ""
    if not isinstance(found, str):
        raise _corrupt(path, f"{key} in {MANIFEST} is no text")
    return found


def _is_code(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in _CODE


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / member.filename
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("xb") as file:
        shutil.copyfileobj(source, file, CHUNK_BYTES)


def _notes(path: Path, handler: str, code: Sequence[str]) -> Iterator[str]:
    if code:
        names = ", ".join(code[:8]) + (", …" if len(code) > 8 else "")
        yield f"left out code in {path.name}, which is never run: {names}"
    if handler:
        yield (f"TorchServe's handler {handler[:100]} does not run: clients send what the model itself takes, and get "
               "what it answers")


def _corrupt(path: Path, what: str) -> UserError:
    return UserError("SourceCorrupt", f"{path.name} is no whole archive of TorchServe: {what}", field=_FIELD,
                     value=path, remedy="make it again with torch-model-archiver, or name the file of weights itself")

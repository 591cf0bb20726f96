"""What the store holds of an engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

from enginewright_builder.contract.documents import CONTRACT_VERSION, ContractError, dumps, load, to_plain
from enginewright_builder.contract.names import MANIFEST_FILE
from enginewright_builder.contract.outcome import Outcome, _outcome


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ManifestSignature:
    """``key`` names the key by the first 16 hex digits of its SHA-256, ``mac`` is 64 hex digits."""

    key: str
    mac: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """``files`` maps paths relative to the engine's folder, ``/`` separated, to their content. The manifest itself
    is not in it. ``signature`` is of the build Job that published it, over :meth:`to_json` without the signature."""

    fingerprint: str
    created: str
    files: Mapping[str, FileEntry]
    outcome: Outcome
    signature: ManifestSignature | None = None
    version: int = CONTRACT_VERSION

    def to_json(self) -> str:
        """Without ``signature`` where there is none: as it was before manifests were signed."""
        body = {**to_plain(self), "outcome": _outcome(self.outcome)}
        if self.signature is None:
            del body["signature"]
        return dumps(body, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises :class:`ContractError`, also for names of files that do not lie below the engine's folder, and for
        what cannot be written as JSON again."""
        manifest = load(cls, text)
        _check_files(manifest.files)
        try:
            manifest.to_json().encode()
        except ValueError as error:
            raise ContractError(f"Manifest: holds what no JSON can: {error}") from error
        return manifest


def _check_files(files: Mapping[str, FileEntry]) -> None:
    """A manifest is read before it is trusted, and its names become paths and keys of a bucket."""
    for name, entry in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ContractError(f"Manifest.files: {name[:100]!r} leads out of its folder")
        if str(path) != name or not name.isprintable() or any(len(part.encode()) > 255 for part in path.parts):
            raise ContractError(f"Manifest.files: {name[:100]!r} is not a file name that a build writes")
        if name == MANIFEST_FILE or any(str(folder) in files for folder in path.parents):
            raise ContractError(f"Manifest.files: {name[:100]!r} lies where another file is")
        if not re.fullmatch(r"[0-9a-f]{64}", entry.sha256) or entry.bytes < 0:
            raise ContractError(f"Manifest.files: {name[:100]!r} has no SHA-256 of 64 hex digits, or no size")

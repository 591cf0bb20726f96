"""Is this engine whole? The manifest, every digest, and no file besides; an engine made local from wherever it lies.
Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from enginewright_builder.contract import MANIFEST_BYTES, MANIFEST_FILE, ContractError, FileEntry, Manifest

READ_BYTES = 1 << 20
# Exit status of a program to which an engine is given that is not whole.
EXIT_DAMAGED = 2


class VerificationError(ValueError):
    """The engine is not whole; the message says which file and why."""


# Writes a file of the engine to the path, and returns its 64 hex digits; None where it is not there or not of its size.
Get = Callable[[str, FileEntry, Path], str | None]


def verify(folder: Path, fingerprint: str = "", *, manifest_digest: str = "", check_digests: bool = True,
           bytecode: bool = False) -> Manifest:
    """The manifest of an engine that is whole. Raises :class:`VerificationError`, and :class:`OSError`.

    Files that the manifest does not name are refused: Triton would read a ``config.pbtxt`` or version put there later,
    and Python bytecode beside ``model.py`` runs in its place. With ``bytecode`` caches are passed over: a server that a
    person starts on a folder of their own leaves them there.
    """
    manifest = parse_manifest(read_manifest(folder), fingerprint, manifest_digest)
    refuse_foreign(folder, manifest, bytecode=bytecode)
    for name, entry in sorted(manifest.files.items()):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise VerificationError(f"{name} is missing or not a plain file")
        size = path.stat().st_size
        if size != entry.bytes:
            raise VerificationError(f"{name} has {size} bytes, the manifest says {entry.bytes}")
        if check_digests:
            expect(name, entry, sha256_file(path))
    return manifest


def read_manifest(folder: Path) -> bytes:
    """The bytes of the manifest. Raises :class:`VerificationError`."""
    try:
        with plain_file(folder / MANIFEST_FILE) as reader:
            data = reader.read(MANIFEST_BYTES + 1)
    except OSError as error:
        raise VerificationError(f"{MANIFEST_FILE} cannot be read: {error}") from error
    return data


def parse_manifest(data: bytes, fingerprint: str = "", manifest_digest: str = "") -> Manifest:
    """The manifest that these bytes are; with a digest only if they have it, and before they are parsed. Raises
    :class:`VerificationError`."""
    if manifest_digest and (found := f"sha256:{hashlib.sha256(data).hexdigest()}") != manifest_digest:
        raise VerificationError(f"{MANIFEST_FILE} has digest {found}, the engine that was proven has {manifest_digest}")
    if len(data) > MANIFEST_BYTES:
        raise VerificationError(f"{MANIFEST_FILE} is not valid: it has more than {MANIFEST_BYTES:,} bytes")
    try:
        manifest = Manifest.from_json(data.decode())
    except (ContractError, UnicodeDecodeError) as error:
        raise VerificationError(f"{MANIFEST_FILE} is not valid: {error}") from error
    if fingerprint and manifest.fingerprint != fingerprint:
        raise VerificationError(f"{MANIFEST_FILE} is of engine {manifest.fingerprint[:64]}, wanted {fingerprint}")
    return manifest


def manifest_digest(manifest: Manifest) -> str:
    """``sha256:<hex>`` of the manifest file in the store."""
    return f"sha256:{hashlib.sha256(manifest.to_json().encode()).hexdigest()}"


def refuse_foreign(folder: Path, manifest: Manifest, *, bytecode: bool = False) -> None:
    """Raises :class:`VerificationError` for the first file or link below ``folder`` that the manifest does not name."""
    try:
        for path in _files(folder):
            name = path.relative_to(folder).as_posix()
            cache = bytecode and path.parent.name == "__pycache__"
            if name not in manifest.files and name != MANIFEST_FILE and not cache:
                raise VerificationError(f"{name} is not in the manifest")
    except OSError as error:
        raise VerificationError(f"the engine's folder cannot be read: {error}") from error


def make_local(data: bytes, fingerprint: str, manifest_digest: str, folder: Path, get: Get) -> Manifest:
    """``folder`` then holds the files that the manifest ``data`` names, each as it says, and no others. What an earlier
    try left there whole stays. Raises :class:`VerificationError`, and :class:`OSError` of ``folder``."""
    manifest = parse_manifest(data, fingerprint, manifest_digest)
    folder.mkdir(parents=True, exist_ok=True)
    for path in _files(folder):
        if path.relative_to(folder).as_posix() not in manifest.files:
            path.unlink()
    for name, entry in sorted(manifest.files.items()):
        target = folder / name
        if target.is_file() and target.stat().st_size == entry.bytes and sha256_file(target) == entry.sha256:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        expect(name, entry, get(name, entry, target))
    (folder / MANIFEST_FILE).write_bytes(data)
    return manifest


def copy_engine(source: Path, fingerprint: str, folder: Path, manifest_digest: str = "") -> Manifest:
    """Makes the engine that lies in the folder ``source`` local. Raises as :func:`make_local` does."""
    data = read_manifest(source)
    refuse_foreign(source, parse_manifest(data, fingerprint, manifest_digest))
    return make_local(data, fingerprint, manifest_digest, folder,
                      lambda name, entry, target: _copy(source / name, entry, target))


def expect(name: str, entry: FileEntry, digest: str | None) -> None:
    """Raises :class:`VerificationError` unless the file was there with its size and has its digest."""
    if digest is None:
        raise VerificationError(f"{name} is missing, or does not have the manifest's {entry.bytes} bytes")
    if digest != entry.sha256:
        raise VerificationError(f"{name} has digest sha256:{digest}, the manifest says sha256:{entry.sha256}")


def _copy(source: Path, entry: FileEntry, target: Path) -> str | None:
    """A :data:`Get` for a file of a volume; no more is read than the manifest says."""
    digest, left = hashlib.sha256(), entry.bytes
    with contextlib.ExitStack() as files:
        try:
            reader = files.enter_context(plain_file(source))
        except OSError:
            return None
        writer = files.enter_context(target.open("wb"))
        while left:
            try:
                chunk = reader.read(min(left, READ_BYTES))
            except OSError as error:
                raise VerificationError(f"{target.name} cannot be read: {error}") from error
            if not chunk:
                return None
            digest.update(chunk)
            writer.write(chunk)
            left -= len(chunk)
        return None if reader.read(1) else digest.hexdigest()


def plain_file(path: Path) -> BinaryIO:
    """Opened for reading; nothing but a plain file: a pipe would never end. Raises :class:`OSError`."""
    reader = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(reader.fileno()).st_mode):
        reader.close()
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return reader


def _files(folder: Path) -> Iterator[Path]:
    """All that is no folder, links to folders among them. Raises :class:`OSError` for a folder that cannot be read."""
    def fail(error: OSError) -> None:
        raise error

    for root, folders, files in os.walk(folder, onerror=fail):
        yield from (Path(root, name) for name in files)
        yield from (path for name in folders if (path := Path(root, name)).is_symlink())


def sha256_file(path: Path) -> str:
    """64 hex digits over the file's content."""
    with path.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()

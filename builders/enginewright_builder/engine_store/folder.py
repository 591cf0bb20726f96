"""The engine store: immutable folders, one a fingerprint, complete exactly when their manifest is there.

Publishing: all files are copied into a hidden folder of the store, flushed to disk, the manifest last; then one rename
makes the engine visible. A rename onto an existing folder fails, so of two publishers one wins and the other verifies
the winner.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from enginewright_builder.contract import MANIFEST_FILE, ContractError, FileEntry, Manifest, Outcome
from enginewright_builder.engine_store.manifest import (
    VerificationError,
    parse_manifest,
    read_manifest,
    sha256_file,
    verify,
)
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.errors import TransientError, UserError

TEMPORARY = ".tmp"
# Below the store: what TensorRT measured of its kernels, a file for each device class and runtime version, and the
# graphs that it builds from.
TIMING_CACHES = "timing-caches"
STALE_SECONDS = 24 * 3600.0
COPY_BYTES = 1 << 20
# Beside the engine itself: the manifest, folder entries, rounding to blocks.
SPARE_BYTES = 16 << 20


class UntrustedError(VerificationError):
    """What is there was not made by a build Job with one of our keys."""


def lookup(store_path: Path, fingerprint: str, *, check_digests: bool = True, keys: Keys | None = None,
           note: Callable[[str], None] | None = None) -> Manifest | None:
    """The engine's manifest, or None when the store has no complete engine of this fingerprint that counts.

    A folder without a manifest is absent. With ``keys`` so is one whose manifest bears no signature of theirs: it is
    set aside, with a note, and the engine built. Raises :class:`UserError` ``StoreMissing`` when the store itself is
    not there, :class:`TransientError` ``EngineCorrupt`` when a file does not have its digest: the damaged folder is
    then set aside (where the store can be written), so that the next try builds it again.
    """
    _check_fingerprint(fingerprint)
    _check_present(store_path)
    folder = store_path / fingerprint
    if not (folder / MANIFEST_FILE).is_file():
        return None
    found = b""
    try:
        # What was signed is what is checked: the manifest is read once, and known by its digest from then on.
        found = read_manifest(folder)
        digest = check_signature(found, fingerprint, keys)
        return verify(folder, fingerprint, manifest_digest=digest, check_digests=check_digests, bytecode=keys is None)
    except UntrustedError as error:
        with store_errors(store_path):
            _set_aside_if(folder, found)
        if note is not None:
            note(f"engine {fingerprint[:12]} in the store is set aside and built: {error}")
        return None
    except VerificationError as error:
        with contextlib.suppress(OSError):
            _set_aside_if(folder, found)
        raise TransientError("EngineCorrupt", f"engine {fingerprint[:12]} in the store was damaged: {error}",
                             field="spec.store.uri", value=str(folder),
                             remedy="it is set aside and built again; find out who else writes to the store") from error


def check_signature(data: bytes, fingerprint: str, keys: Keys | None) -> str:
    """The digest of the manifest ``data``, ``sha256:<hex>``. Raises :class:`UntrustedError` where there are keys and it
    does not bear a signature of theirs, whatever else is wrong with it."""
    if keys is not None:
        try:
            problem = keys.problem(parse_manifest(data, fingerprint), data)
        except VerificationError as error:
            problem = str(error)
        if problem:
            raise UntrustedError(problem)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def holds(store_path: Path, fingerprint: str, keys: Keys | None = None) -> bool:
    """Whether there is an engine of this fingerprint to look up; with ``keys`` one that bears a signature of theirs.
    Nothing else of it is checked."""
    _check_fingerprint(fingerprint)
    folder = store_path / fingerprint
    try:
        return (folder / MANIFEST_FILE).is_file() and bool(check_signature(read_manifest(folder), fingerprint, keys))
    except VerificationError:
        return False


def publish(staging: Path, store_path: Path, fingerprint: str, *, outcome: Outcome,
            keys: Keys | None = None) -> Manifest:
    """Publishes all files below ``staging`` as ``<store>/<fingerprint>/`` and returns the manifest that is now there.

    All or nothing for a reader at any time. When someone else published this fingerprint first, theirs is verified and
    returned, if it counts with ``keys``, which sign ours. ``outcome.manifest_digest`` is left empty inside the manifest
    (it cannot hold its own digest); take it from :func:`manifest_digest`. Raises :class:`UserError` ``StoreMissing``,
    ``StoreReadOnly`` or ``StoreFull``, and :class:`TransientError` ``EngineCorrupt`` when the other publisher's engine
    is damaged.
    """
    if winner := lookup(store_path, fingerprint, keys=keys):
        return winner
    sweep_stale(store_path)
    temporary = store_path / f".{fingerprint}.{uuid.uuid4().hex}{TEMPORARY}"
    with store_errors(store_path):
        try:
            temporary.mkdir()
            files = _copy_tree(staging, temporary)
            manifest = Manifest(fingerprint=fingerprint, created=_now(), files=files, outcome=outcome)
            manifest = keys.signed(manifest) if keys else manifest
            _write(temporary / MANIFEST_FILE, manifest.to_json().encode())
            _open_to_readers(temporary)
            _flush_folders(temporary)
            _rename(temporary, store_path / fingerprint)
            flush(store_path)
        finally:
            # Gone after a successful rename; after anything else, what was half-written must not stay.
            shutil.rmtree(temporary, ignore_errors=True)
    published = lookup(store_path, fingerprint, keys=keys)
    if published is None:
        raise TransientError("StoreUnstable", "the engine vanished from the store right after it was published, or "
                             "a writer without the signing key put another in its place",
                             field="spec.store.uri", value=str(store_path), remedy="it is built again")
    return published


def check_writable(store_path: Path, need_bytes: int = 0) -> None:
    """Before work is spent: raises :class:`UserError` ``StoreMissing``, ``StoreReadOnly`` or ``StoreFull``.

    A store in a folder of its volume (``pvc://CLAIM/FOLDER``) is made; a volume that is not there is not.
    """
    _make_folder(store_path)
    with store_errors(store_path), tempfile.TemporaryFile(dir=store_path, prefix=".probe-") as probe:
        probe.write(b"0" * 4096)
        probe.flush()
        os.fsync(probe.fileno())
    free = shutil.disk_usage(store_path).free
    if need_bytes and free < need_bytes + SPARE_BYTES:
        raise _full(store_path, f"it has {free:,} bytes free and the engine needs about {need_bytes:,}")


def check_removable(store_path: Path) -> None:
    """Raises :class:`UserError` ``StoreMissing`` or ``StoreReadOnly``. It takes no room: a full store is what there is
    most reason to remove from."""
    _make_folder(store_path)
    with store_errors(store_path):
        if not os.access(store_path, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(store_path))


def sweep_stale(store_path: Path, age_seconds: float = STALE_SECONDS) -> list[Path]:
    """Removes what publishers that died left behind, and returns it. Younger folders may belong to one at work."""
    removed = []
    for folder in store_path.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > age_seconds:
                shutil.rmtree(folder)
                removed.append(folder)
    return removed


def _copy_tree(source: Path, target: Path) -> dict[str, FileEntry]:
    files = {}
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if "__pycache__" in relative.parts:
            continue  # what the server left that tried the engine here; no part of it
        if path.is_symlink():
            raise ValueError(f"{relative} is a link: an engine in the store must be whole by itself")
        if path.is_dir():
            (target / relative).mkdir(exist_ok=True)
        elif relative.as_posix() != MANIFEST_FILE:
            files[relative.as_posix()] = _copy(path, target / relative)
    if not files:
        raise ValueError(f"nothing to publish in {source}")
    return files


def _copy(source: Path, target: Path) -> FileEntry:
    """Copies, flushes, and then hashes what a reader will read, not what was meant to be written."""
    with source.open("rb") as reader, target.open("xb") as writer:
        shutil.copyfileobj(reader, writer, COPY_BYTES)
        writer.flush()
        os.fsync(writer.fileno())
    digest = sha256_file(target)
    if digest != sha256_file(source):
        raise OSError(errno.EIO, "the store gives back other bytes than were written", str(target))
    return FileEntry(sha256=digest, bytes=target.stat().st_size)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as writer:
        writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())


def _open_to_readers(root: Path) -> None:
    """The server runs as another user; the builder's umask must not shut it out."""
    for path in [root, *root.rglob("*")]:
        # Some network file systems have no modes to set; there the volume's options say who reads.
        with contextlib.suppress(PermissionError, NotImplementedError):
            path.chmod(0o755 if path.is_dir() else 0o644)


def _rename(temporary: Path, final: Path) -> None:
    """The commit point. A folder without a manifest (of a foreign tool) is put aside; a complete one wins over ours."""
    try:
        temporary.rename(final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        if (final / MANIFEST_FILE).is_file():
            return
        _set_aside(final)
        temporary.rename(final)


def _set_aside_if(folder: Path, manifest: bytes) -> None:
    """Unless its manifest is another by now: to check an engine takes seconds, in which another build may have found it
    damaged, too, and published a whole one in its place."""
    now = b""
    with contextlib.suppress(VerificationError):
        now = read_manifest(folder)
    if now == manifest:
        _set_aside(folder)


def _set_aside(folder: Path) -> None:
    """Out of readers' sight at once; swept like any leftover when it is old, counted from now: one who looks for what
    damaged it has a day."""
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}{TEMPORARY}")
    folder.rename(aside)
    with contextlib.suppress(OSError):
        os.utime(aside)


def _flush_folders(root: Path) -> None:
    for folder in [*(path for path in root.rglob("*") if path.is_dir()), root]:
        flush(folder)


def flush(folder: Path) -> None:
    """To the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Some network file systems cannot flush a folder; their rename is durable by itself.
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def store_errors(store_path: Path) -> Iterator[None]:
    """Turns what the file system says into what the user can do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(store_path, error.strerror or "no space left") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise UserError("StoreReadOnly", f"the engine store cannot be written: {error.strerror}",
                            field="spec.store.uri", value=str(store_path),
                            remedy="mount the volume read-write, and let the builder's user or fsGroup write to it"
                            ) from error
        if error.errno == errno.ENOENT and not store_path.is_dir():
            _check_present(store_path)
        raise TransientError("StoreUnavailable", f"the engine store failed: {error}", field="spec.store.uri",
                             value=str(store_path), remedy="it is tried again") from error


def _full(store_path: Path, detail: str) -> UserError:
    return UserError("StoreFull", f"the engine store is full: {detail}", field="spec.store.uri", value=str(store_path),
                     remedy="enlarge the volume, or remove engines that no OptimisedModel names in status.fingerprint")


def _make_folder(store_path: Path) -> None:
    if store_path.parent.is_dir() and store_path.parent != Path(store_path.anchor):
        with store_errors(store_path):
            store_path.mkdir(exist_ok=True)
    _check_present(store_path)


def _check_present(store_path: Path) -> None:
    if not store_path.is_dir():
        raise UserError("StoreMissing", f"the engine store {store_path} is not there", field="spec.store.uri",
                        value=str(store_path), remedy="create the claim or folder, or correct spec.store.uri")


def _check_fingerprint(fingerprint: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", fingerprint):
        raise ContractError(f"fingerprint: got {fingerprint!r}, expected 64 hex digits")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

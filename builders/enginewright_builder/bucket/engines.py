"""Engines in a bucket: a manifest below the fingerprint, and the files by their content.

``<fingerprint>/manifest.json``, written last and by one builder alone: present means complete. ``<fingerprint>/used``
is written by who wants the engine. ``blobs/sha256/<hex>`` are the files of all engines: two builders of one fingerprint
cannot mix theirs. Who reads checks every digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from enginewright_builder.bucket.client import Bucket
from enginewright_builder.contract import MANIFEST_FILE, ContractError, FileEntry, Manifest
from enginewright_builder.sources.remote import check_names
from enginewright_builder.store import TIMING_CACHES
from enginewright_builder.verify import VerificationError, check_digest, check_manifest, sha256_file, verify

BLOBS = "blobs/sha256"
USED = "used"
# Written to find out whether the bucket can be: one object, over and over.
PROBE = ".probe"
# Of one engine that others build and damage at the same time.
_TRIES = 4


def manifest_key(fingerprint: str) -> str:
    return f"{fingerprint}/{MANIFEST_FILE}"


def used_key(fingerprint: str) -> str:
    return f"{fingerprint}/{USED}"


def blob_key(entry: FileEntry) -> str:
    return f"{BLOBS}/{entry.sha256}"


def holds(bucket: Bucket, fingerprint: str) -> bool:
    """Whether there is an engine of this fingerprint to look up; nothing of it is checked."""
    return bucket.look(manifest_key(fingerprint)) is not None


def mark_used(bucket: Bucket, fingerprint: str) -> None:
    bucket.write(used_key(fingerprint), b"")


def look_up(bucket: Bucket, fingerprint: str, scratch: Path | None = None) -> Manifest | None:
    """The manifest of an engine that is there with all its files, of the sizes that it names; None where there is none.
    With a folder ``scratch`` every file is read and its digest checked. Raises :class:`VerificationError` for one that
    is damaged."""
    found = bucket.read(manifest_key(fingerprint))
    if found is None:
        return None
    manifest = _parsed(found, fingerprint)
    for name, entry in sorted(manifest.files.items()):
        blob = bucket.look(blob_key(entry))
        if blob is None or blob.size != entry.bytes:
            raise VerificationError(f"{name} is missing, or has not the {entry.bytes} bytes that the manifest says")
        if scratch is not None:
            with tempfile.TemporaryDirectory(dir=scratch) as part:
                _expect(name, entry, bucket.download(blob_key(entry), entry.bytes, Path(part) / "checked"))
    return manifest


def publish(bucket: Bucket, folder: Path, fingerprint: str, scratch: Path | None = None) -> Manifest:
    """Uploads the published folder of a local store, and returns the manifest that the bucket has then: that of whoever
    was first. One that is damaged, as :func:`look_up` finds it with ``scratch``, is written over. Raises
    :class:`VerificationError`."""
    ours = (folder / MANIFEST_FILE).read_bytes()
    manifest = verify(folder, fingerprint)
    # Each time, though another engine may have it already: what is young is not collected.
    for name, entry in manifest.files.items():
        bucket.upload(blob_key(entry), folder / name)
    for _ in range(_TRIES):
        if bucket.create(manifest_key(fingerprint), ours):
            break
        there = bucket.look(manifest_key(fingerprint))
        with contextlib.suppress(VerificationError):
            if winner := look_up(bucket, fingerprint, scratch):
                return winner
        if there is not None and bucket.replace(manifest_key(fingerprint), ours, there.version):
            break
    # A collector may have looked at a file's age before it was uploaded again.
    for name, entry in manifest.files.items():
        found = bucket.look(blob_key(entry))
        if found is None or found.size != entry.bytes:
            bucket.upload(blob_key(entry), folder / name)
    found_manifest = look_up(bucket, fingerprint)
    if found_manifest is None:
        raise VerificationError("it vanished right after it was published")
    return found_manifest


def fetch_engine(bucket: Bucket, fingerprint: str, folder: Path, manifest_digest: str = "") -> Manifest:
    """Makes the engine local: ``folder`` then holds its files and no others. What an earlier try left there whole
    stays. Raises :class:`VerificationError`, and what the bucket does."""
    data = bucket.read(manifest_key(fingerprint))
    if data is None:
        raise VerificationError(f"{bucket.uri}/{manifest_key(fingerprint)} is not there")
    check_digest(data, manifest_digest)
    manifest = _parsed(data, fingerprint)
    _remove_foreign(folder, manifest)
    for name, entry in sorted(manifest.files.items()):
        target = folder / name
        if target.is_file() and target.stat().st_size == entry.bytes and sha256_file(target) == entry.sha256:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        _expect(name, entry, bucket.download(blob_key(entry), entry.bytes, target))
    (folder / MANIFEST_FILE).write_bytes(data)
    return manifest


def read_file(uri: str, fingerprint: str, name: str) -> bytes:
    """One file of an engine, checked. Raises :class:`VerificationError`, and what the bucket does."""
    bucket = Bucket(uri)
    found = bucket.read(manifest_key(fingerprint))
    manifest = _parsed(found, fingerprint) if found is not None else None
    entry = manifest.files.get(name) if manifest else None
    blob = bucket.read(blob_key(entry)) if entry else None
    if entry is None or blob is None:
        raise VerificationError(f"{name} of engine {fingerprint[:12]} is not in {bucket.uri}")
    _expect(name, entry, hashlib.sha256(blob).hexdigest())
    return blob


def pull_timing_caches(bucket: Bucket, folder: Path, say: Callable[[str], None]) -> None:
    """Nothing fails for it: they save time, no more."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in bucket.entries(TIMING_CACHES):
            name = entry.key.removeprefix(f"{TIMING_CACHES}/")
            check_names([name])
            if "/" not in name:
                bucket.download(entry.key, entry.size, folder / name)
    except Exception as error:
        say(f"timing caches were not read from the bucket: {error}")


def push_timing_caches(bucket: Bucket, folder: Path, say: Callable[[str], None]) -> None:
    """Of several builds the last one's stay."""
    try:
        for path in _plain_files(folder):
            bucket.upload(f"{TIMING_CACHES}/{path.name}", path)
    except Exception as error:
        say(f"timing caches were not kept in the bucket: {error}")


def _plain_files(folder: Path) -> Iterable[Path]:
    """Not the folders of typed graphs, which are hundreds of megabytes each."""
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")] if (
        folder.is_dir()) else ()


def _expect(name: str, entry: FileEntry, digest: str | None) -> None:
    if digest is None:
        raise VerificationError(f"{name} is missing, or has not the {entry.bytes} bytes that the manifest says")
    if digest != entry.sha256:
        raise VerificationError(f"{name} has digest sha256:{digest}, the manifest says sha256:{entry.sha256}")


def _parsed(data: bytes, fingerprint: str) -> Manifest:
    try:
        manifest = Manifest.from_json(data.decode())
        check_names(manifest.files)
    except (ContractError, ValueError) as error:
        raise VerificationError(f"{MANIFEST_FILE} is not valid: {error}") from error
    check_manifest(manifest, fingerprint)
    return manifest


def _remove_foreign(folder: Path, manifest: Manifest) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.rglob("*"):
        if not path.is_dir() and path.relative_to(folder).as_posix() not in manifest.files:
            path.unlink()

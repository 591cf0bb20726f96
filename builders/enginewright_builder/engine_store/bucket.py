"""Engines in a bucket: a manifest below the fingerprint, and the files by their content.

``<fingerprint>/manifest.json``, written last and by one builder alone: present means complete. The same manifest lies
before that at ``<fingerprint>/manifests/<sha256>.json``, where replicas that are pinned to it find it whatever others
publish later: namespaces with other keys do not take each other's engines, and share the bucket for all that.
``<fingerprint>/used`` is written by who wants the engine. ``blobs/sha256/<hex>`` are the files of all engines: two
builders of one fingerprint cannot mix theirs. Every reader checks every digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from enginewright_builder.contract import MANIFEST_BYTES, MANIFEST_FILE, FileEntry, Manifest
from enginewright_builder.engine_store.folder import TIMING_CACHES, check_signature
from enginewright_builder.engine_store.manifest import VerificationError, expect, make_local, parse_manifest, verify
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.foreign_names import check_names
from enginewright_builder.objectstore.bucket import Bucket

BLOBS = "blobs/sha256"
USED = "used"
# Written to find out whether the bucket can be: one object, over and over.
PROBE = ".probe"
# Of one engine that others build and damage at the same time.
_TRIES = 4
# Of all timing caches: they have a few MB each, and go to the scratch volume.
_TIMINGS_BYTES = 1 << 30


def manifest_key(fingerprint: str) -> str:
    return f"{fingerprint}/{MANIFEST_FILE}"


def kept_key(fingerprint: str, digest: str) -> str:
    """Where the manifest of the digest ``sha256:<hex>`` stays."""
    return f"{fingerprint}/manifests/{digest.removeprefix('sha256:')}.json"


def used_key(fingerprint: str) -> str:
    return f"{fingerprint}/{USED}"


def blob_key(entry: FileEntry) -> str:
    return f"{BLOBS}/{entry.sha256}"


def probe(bucket: Bucket) -> datetime:
    """Now, by the bucket's own clock. Raises :class:`TransientError` ``StoreUnreachable`` where it does not hold what
    is written to it."""
    bucket.write(PROBE, b"enginewright\n")
    found = bucket.look(PROBE)
    if found is None:
        raise TransientError("StoreUnreachable", f"{bucket.uri} does not hold what was written to it",
                             field="spec.store.uri", value=bucket.uri, remedy="it is tried again")
    return found.modified


def check_conditions(bucket: Bucket) -> None:
    """Whether the bucket can be written and read, and keeps to the conditions of writes. Raises :class:`UserError`
    ``ConditionalWritesIgnored``."""
    probe(bucket)
    # Of no state that any object has: what is written on this condition is written on any.
    never = {"e_tag": f'"{"0" * 32}"', "version": "1"}
    ignored = {"If-None-Match": bucket.create(PROBE, b"enginewright\n"),
               "If-Match": bucket.replace(PROBE, b"enginewright\n", never)}
    if names := [name for name, written in ignored.items() if written]:
        raise UserError(
            "ConditionalWritesIgnored", f"{bucket.uri} ignores {' and '.join(names)}: it wrote over an object that was "
            "there, so that of two builds that publish at once neither would know", field="spec.store.uri",
            value=bucket.uri, remedy="use an object store with conditional writes (S3, Google Cloud Storage, a newer "
            "release of your own), or a claim, pvc://CLAIM")


def read_manifest(bucket: Bucket, fingerprint: str, manifest_digest: str = "") -> bytes:
    """The manifest of that digest, or the one that was published last; its digest is for the caller to check. Raises
    :class:`VerificationError` where none is there."""
    kept = bucket.read(kept_key(fingerprint, manifest_digest), MANIFEST_BYTES) if manifest_digest else None
    # Engines of before there was a place for each manifest have this one alone.
    found = kept if kept is not None else bucket.read(manifest_key(fingerprint), MANIFEST_BYTES)
    if found is None:
        raise VerificationError(f"{bucket.uri}/{manifest_key(fingerprint)} is not there")
    return found


def holds(bucket: Bucket, fingerprint: str, keys: Keys | None = None) -> bool:
    """Whether there is an engine of this fingerprint to look up; with ``keys`` one that bears a signature of theirs.
    Nothing else of it is checked."""
    found = bucket.read(manifest_key(fingerprint), MANIFEST_BYTES)
    try:
        return found is not None and bool(check_signature(found, fingerprint, keys))
    except VerificationError:
        return False


def mark_used(bucket: Bucket, fingerprint: str) -> None:
    bucket.write(used_key(fingerprint), b"")


def look_up(bucket: Bucket, fingerprint: str, scratch: Path | None = None, keys: Keys | None = None) -> Manifest | None:
    """The manifest of an engine that is there with all its files, of the sizes that it names; None where there is none.
    With a folder ``scratch`` every file is read and its digest checked. Raises :class:`VerificationError` for one that
    is damaged, and :class:`UntrustedError` for one that does not bear a signature of ``keys``."""
    found = bucket.read(manifest_key(fingerprint), MANIFEST_BYTES)
    if found is None:
        return None
    check_signature(found, fingerprint, keys)
    manifest = parse_manifest(found, fingerprint)
    for name, entry in sorted(manifest.files.items()):
        blob = bucket.look(blob_key(entry))
        if blob is None or blob.size != entry.bytes:
            expect(name, entry, None)
        if scratch is not None:
            with tempfile.TemporaryDirectory(dir=scratch) as part:
                expect(name, entry, bucket.download(blob_key(entry), entry.bytes, Path(part) / "checked"))
    return manifest


def publish(bucket: Bucket, folder: Path, fingerprint: str, scratch: Path | None = None,
            keys: Keys | None = None) -> Manifest:
    """Uploads the published folder of a local store, and returns the manifest that the bucket has then: that of the
    builder that was first. One that is damaged or does not count, as :func:`look_up` finds it, is written over. Raises
    :class:`VerificationError`."""
    ours = (folder / MANIFEST_FILE).read_bytes()
    manifest = verify(folder, fingerprint)
    # Each time, though another engine may have it already: what is young is not collected.
    for name, entry in manifest.files.items():
        bucket.upload(blob_key(entry), folder / name)
    bucket.write(kept_key(fingerprint, hashlib.sha256(ours).hexdigest()), ours)
    for _ in range(_TRIES):
        if bucket.create(manifest_key(fingerprint), ours):
            break
        there = bucket.look(manifest_key(fingerprint))
        with contextlib.suppress(VerificationError):
            if winner := look_up(bucket, fingerprint, scratch, keys):
                return winner
        if there is not None and bucket.replace(manifest_key(fingerprint), ours, there.version):
            break
    # A collector may have looked at a file's age before it was uploaded again.
    for name, entry in manifest.files.items():
        found = bucket.look(blob_key(entry))
        if found is None or found.size != entry.bytes:
            bucket.upload(blob_key(entry), folder / name)
    found_manifest = look_up(bucket, fingerprint, keys=keys)
    if found_manifest is None:
        raise VerificationError("it vanished right after it was published")
    return found_manifest


def fetch_engine(bucket: Bucket, fingerprint: str, folder: Path, manifest_digest: str = "") -> Manifest:
    """Makes the engine local: ``folder`` then holds its files and no others. Raises :class:`VerificationError`,
    :class:`OSError` of ``folder``, and what the bucket does."""
    return make_local(read_manifest(bucket, fingerprint, manifest_digest), fingerprint, manifest_digest, folder,
                      lambda name, entry, target: bucket.download(blob_key(entry), entry.bytes, target))


def read_blob(bucket: Bucket, manifest: Manifest, name: str) -> bytes | None:
    """One file of an engine, unchecked; None where it is not there."""
    entry = manifest.files.get(name)
    return bucket.read(blob_key(entry), entry.bytes) if entry else None


def pull_timing_caches(bucket: Bucket, folder: Path, note: Callable[[str], None]) -> None:
    """Nothing fails for it: they save time, no more."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        room = _TIMINGS_BYTES
        for entry in bucket.entries(TIMING_CACHES):
            name = entry.key.removeprefix(f"{TIMING_CACHES}/")
            check_names([name])
            if "/" not in name and (room := room - entry.size) >= 0:
                bucket.download(entry.key, entry.size, folder / name)
    except Exception as error:
        note(f"timing caches were not read from the bucket: {error}")


def push_timing_caches(bucket: Bucket, folder: Path, note: Callable[[str], None]) -> None:
    """Of several builds the last one's stay."""
    try:
        for path in _plain_files(folder):
            bucket.upload(f"{TIMING_CACHES}/{path.name}", path)
    except Exception as error:
        note(f"timing caches were not kept in the bucket: {error}")


def _plain_files(folder: Path) -> Iterable[Path]:
    """Not the folders of typed graphs, which are hundreds of megabytes each."""
    return [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")] if (
        folder.is_dir()) else ()

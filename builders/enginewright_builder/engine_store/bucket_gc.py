"""Removes unused engines from a bucket, and files that no engine names.

As in a folder (:mod:`enginewright_builder.engine_store.folder_gc`) a build says that it wants an engine before it looks
for it, and the collector takes the manifest away before it looks at that mark again, and puts it back when the mark is
fresh. A file goes when no manifest names it and it is old; a builder uploads all files of its engine again, so that its
own are young. Every manifest that lies below a fingerprint counts as long as the engine is there, for replicas may be
pinned to it, and goes with it. Times are the bucket's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime, timedelta

from enginewright_builder.contract import MANIFEST_BYTES
from enginewright_builder.engine_store.bucket import BLOBS, blob_key, kept_key, manifest_key, probe, used_key
from enginewright_builder.engine_store.folder import STALE_SECONDS
from enginewright_builder.engine_store.folder_gc import FINGERPRINT, Collected
from enginewright_builder.engine_store.manifest import VerificationError, parse_manifest
from enginewright_builder.errors import TransientError
from enginewright_builder.objectstore.bucket import Bucket, Entry


def collect(bucket: Bucket, *, grace_seconds: float, keep: Collection[str] = (),
            remove: Collection[str] | None = None) -> Collected:
    """Removes engines that were neither published nor wanted for ``grace_seconds``, but none of ``keep``; with
    ``remove`` none but these. Files that no engine names go when they are as old, of a day at least."""
    now, grace = probe(bucket), timedelta(seconds=grace_seconds)
    there = {entry.key: entry for entry in bucket.entries()}
    engines = {folder for key in there if FINGERPRINT.fullmatch(folder := key.partition("/")[0])
               and key == manifest_key(folder)}
    asked = sorted(engines & (engines if remove is None else set(remove)))
    removed = [name for name in asked if name not in keep and _remove(bucket, name, there, now - grace)]
    stale = now - max(grace, timedelta(seconds=STALE_SECONDS))
    swept = _sweep_marks(bucket, engines - set(removed), there, stale) + _sweep_blobs(bucket, there, stale)
    return Collected(removed=tuple(removed), spared=tuple(name for name in asked if name not in removed),
                     leftovers=swept)


def _remove(bucket: Bucket, fingerprint: str, there: dict[str, Entry], limit: datetime) -> bool:
    """``limit``: what was published or wanted since then stays."""
    key, used = manifest_key(fingerprint), used_key(fingerprint)
    if any(name in there and there[name].modified >= limit for name in (key, used)):
        return False
    found, newest = bucket.read(key, MANIFEST_BYTES), bucket.look(key)
    if found is None or newest is None or newest.modified >= limit:
        return False
    bucket.remove(key)
    mark = bucket.look(used)
    if mark is not None and mark.modified >= limit:
        bucket.create(key, found)  # one that was rebuilt meanwhile stays
        return False
    bucket.remove(used)
    for name in there:
        if _kept(name) == fingerprint and _still_older(bucket, name, limit):
            bucket.remove(name)
    return True


def _sweep_marks(bucket: Bucket, engines: Collection[str], there: dict[str, Entry], limit: datetime) -> int:
    """Marks, and manifests that were kept, of engines that are not there."""
    swept = 0
    for key in there:
        fingerprint = key.partition("/")[0]
        mark = FINGERPRINT.fullmatch(fingerprint) and key == used_key(fingerprint)
        if (mark or _kept(key)) and fingerprint not in engines and _still_older(bucket, key, limit):
            bucket.remove(key)
            swept += 1
    return swept


def _sweep_blobs(bucket: Bucket, there: dict[str, Entry], limit: datetime) -> int:
    old = [key for key, entry in there.items() if key.startswith(f"{BLOBS}/") and entry.modified < limit]
    if not old:
        return 0
    named = _named(bucket)
    swept = 0
    for key in old:
        if key not in named and _still_older(bucket, key, limit):
            bucket.remove(key)
            swept += 1
    return swept


def _still_older(bucket: Bucket, key: str, limit: datetime) -> bool:
    entry = bucket.look(key)
    return entry is not None and entry.modified < limit


def _named(bucket: Bucket) -> set[str]:
    """The files of all engines, listed after their ages. Where one manifest cannot be read no file goes: which are its
    unknown. One that is kept under another digest than its own no replica takes, so that it names nothing."""
    named = set[str]()
    for entry in bucket.entries():
        fingerprint, kept = entry.key.partition("/")[0], _kept(entry.key)
        if not kept and not (FINGERPRINT.fullmatch(fingerprint) and entry.key == manifest_key(fingerprint)):
            continue
        found = bucket.read(entry.key, MANIFEST_BYTES)
        if found is None or (kept and kept_key(kept, hashlib.sha256(found).hexdigest()) != entry.key):
            continue
        try:
            named |= {blob_key(file) for file in parse_manifest(found).files.values()}
        except VerificationError as error:
            raise TransientError("EngineCorrupt", f"{bucket.uri}/{entry.key}: {error}",
                                 field="spec.store.uri", value=bucket.uri,
                                 remedy="remove it: its engine is built again") from error
    return named


def _kept(key: str) -> str:
    """The fingerprint below which ``key`` keeps a manifest; empty for any other key."""
    fingerprint, _, name = key.partition("/")
    digest = name.removeprefix("manifests/").removesuffix(".json")
    return fingerprint if FINGERPRINT.fullmatch(fingerprint) and key == kept_key(fingerprint, digest) else ""

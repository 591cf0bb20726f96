"""Removes engines that nobody uses from a bucket, and files that no engine names.

As in a folder (:mod:`enginewright_builder.store_gc`) a build says that it wants an engine before it looks for it, and
the collector takes the manifest away before it looks at that mark again, and puts it back when the mark is fresh. A
file goes when no manifest names it and it is old; a builder uploads all files of its engine anew, so that its own are
young. Times are the bucket's own.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from enginewright_builder.bucket.client import Bucket, Entry
from enginewright_builder.bucket.engines import BLOBS, PROBE, blob_key, manifest_key, used_key
from enginewright_builder.contract import MANIFEST_FILE, ContractError, Manifest
from enginewright_builder.errors import TransientError
from enginewright_builder.store import STALE_SECONDS
from enginewright_builder.store_gc import FINGERPRINT, Collected


def collect(bucket: Bucket, *, grace_seconds: float, keep: Collection[str] = (),
            remove: Collection[str] | None = None) -> Collected:
    """Removes engines that were neither published nor wanted for ``grace_seconds``, but none of ``keep``; with
    ``remove`` none but these. Files that no engine names go when they are as old, of a day at least."""
    now, grace = _now(bucket), timedelta(seconds=grace_seconds)
    there = {entry.key: entry for entry in bucket.entries()}
    engines = {folder for key in there if FINGERPRINT.fullmatch(folder := key.partition("/")[0])
               and key == manifest_key(folder)}
    asked = sorted(engines & (engines if remove is None else set(remove)))
    removed = [name for name in asked if name not in keep and _remove(bucket, name, there, now - grace)]
    stale = now - max(grace, timedelta(seconds=STALE_SECONDS))
    swept = _sweep_marks(bucket, engines - set(removed), there, stale) + _sweep_blobs(bucket, there, stale)
    return Collected(removed=tuple(removed), spared=tuple(name for name in asked if name not in removed),
                     leftovers=swept)


def _now(bucket: Bucket) -> datetime:
    bucket.write(PROBE, b"enginewright\n")
    probe = bucket.look(PROBE)
    if probe is None:
        raise TransientError("StoreUnreachable", f"{bucket.uri} does not hold what was written to it",
                             field="spec.store.uri", value=bucket.uri, remedy="it is tried again")
    return probe.modified


def _remove(bucket: Bucket, fingerprint: str, there: dict[str, Entry], limit: datetime) -> bool:
    """``limit``: what was published or wanted since then stays."""
    key, used = manifest_key(fingerprint), used_key(fingerprint)
    if any(name in there and there[name].modified >= limit for name in (key, used)):
        return False
    found, newest = bucket.read(key), bucket.look(key)
    if found is None or newest is None or newest.modified >= limit:
        return False
    bucket.remove(key)
    mark = bucket.look(used)
    if mark is not None and mark.modified >= limit:
        bucket.create(key, found)  # one that was built anew meanwhile stays
        return False
    bucket.remove(used)
    return True


def _sweep_marks(bucket: Bucket, engines: Collection[str], there: dict[str, Entry], limit: datetime) -> int:
    """Marks of engines that are not there."""
    swept = 0
    for entry in there.values():
        fingerprint = entry.key.partition("/")[0]
        mark = FINGERPRINT.fullmatch(fingerprint) and entry.key == used_key(fingerprint)
        if mark and fingerprint not in engines and _still_older(bucket, entry.key, limit):
            bucket.remove(entry.key)
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
    nobody knows."""
    named = set[str]()
    for entry in bucket.entries():
        if not entry.key.endswith(f"/{MANIFEST_FILE}") or not FINGERPRINT.fullmatch(entry.key.partition("/")[0]):
            continue
        if (found := bucket.read(entry.key)) is None:
            continue
        try:
            named |= {blob_key(file) for file in Manifest.from_json(found.decode()).files.values()}
        except (ContractError, UnicodeDecodeError) as error:
            raise TransientError("EngineCorrupt", f"{bucket.uri}/{entry.key} is not valid: {error}",
                                 field="spec.store.uri", value=bucket.uri,
                                 remedy="remove it: its engine is built again") from error
    return named

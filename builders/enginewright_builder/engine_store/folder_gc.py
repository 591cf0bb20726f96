"""Removes unused engines from the store. The caller knows which are used; this knows files.

Safe beside builds that run: a build says that it wants an engine (:func:`mark_used`) before it looks for it, and the
collector looks for that mark once more after it has put the engine out of sight. So either the collector sees the mark
and puts the engine back, or the build does not see the engine and builds it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import MANIFEST_FILE
from enginewright_builder.engine_store import graphs
from enginewright_builder.engine_store.folder import (
    STALE_SECONDS,
    TEMPORARY,
    TIMING_CACHES,
    check_removable,
    store_errors,
    sweep_stale,
)

FINGERPRINT = re.compile(r"[0-9a-f]{64}")
USED = ".used"


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Fingerprints. ``spared`` were asked for and are there, but too young or in use."""

    removed: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    leftovers: int = 0


def mark_used(store_path: Path, fingerprint: str) -> None:
    """Notes that a build wants this engine now. A store that cannot be written is reported where it matters."""
    with contextlib.suppress(OSError):
        marker = _marker(store_path, fingerprint)
        marker.touch()
        os.utime(marker)


def collect(store_path: Path, *, grace_seconds: float, keep: Collection[str] = (),
            remove: Collection[str] | None = None) -> Collected:
    """Removes engines that were neither published nor wanted for ``grace_seconds``, but none of ``keep``; with
    ``remove`` none but these. Whatever is asked for, leftovers of builds that died go when they are a day old, and
    typed graphs that were not used for ``grace_seconds``, of a day at least. Raises :class:`UserError`
    ``StoreMissing`` or ``StoreReadOnly``, and :class:`TransientError`."""
    check_removable(store_path)
    with store_errors(store_path):
        return _collect(store_path, grace_seconds, keep, remove)


def _collect(store_path: Path, grace_seconds: float, keep: Collection[str],
             remove: Collection[str] | None) -> Collected:
    there = {path.name for path in store_path.iterdir() if path.is_dir() and FINGERPRINT.fullmatch(path.name)}
    asked = sorted(there & (there if remove is None else set(remove)))
    removed = [name for name in asked if name not in keep and _remove(store_path, name, grace_seconds)]
    swept = len(sweep_stale(store_path)) + _sweep_markers(store_path)
    swept += graphs.sweep(store_path / TIMING_CACHES, max(grace_seconds, STALE_SECONDS))
    return Collected(removed=tuple(removed), spared=tuple(name for name in asked if name not in removed),
                     leftovers=swept)


def _remove(store_path: Path, fingerprint: str, grace_seconds: float) -> bool:
    folder, began = store_path / fingerprint, time.time()
    if began - _last_used(store_path, fingerprint) <= grace_seconds:
        return False
    # Out of sight under a name that is swept when this process dies here; young, so that no other process sweeps it
    # before.
    aside = store_path / f".{fingerprint}.{uuid.uuid4().hex}{TEMPORARY}"
    os.utime(folder)
    folder.rename(aside)
    if began - _wanted(store_path, fingerprint) <= grace_seconds:
        with contextlib.suppress(OSError):  # rebuilt meanwhile: that one stays
            aside.rename(folder)
            return False
    shutil.rmtree(aside)
    with contextlib.suppress(FileNotFoundError):
        _marker(store_path, fingerprint).unlink()
    return True


def _last_used(store_path: Path, fingerprint: str) -> float:
    """When it was published or wanted, whichever is later: seconds since the epoch."""
    folder = store_path / fingerprint
    manifest = folder / MANIFEST_FILE
    published = (manifest if manifest.exists() else folder).stat().st_mtime
    return max(published, _wanted(store_path, fingerprint))


def _wanted(store_path: Path, fingerprint: str) -> float:
    try:
        return _marker(store_path, fingerprint).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _sweep_markers(store_path: Path) -> int:
    """Marks of engines that are not there. A young one may be of a build that is about to look."""
    swept = 0
    for marker in store_path.glob(f".*{USED}"):
        fingerprint = marker.name.removeprefix(".").removesuffix(USED)
        with contextlib.suppress(FileNotFoundError):
            if not (store_path / fingerprint).exists() and time.time() - marker.stat().st_mtime > STALE_SECONDS:
                marker.unlink()
                swept += 1
    return swept


def _marker(store_path: Path, fingerprint: str) -> Path:
    return store_path / f".{fingerprint}{USED}"

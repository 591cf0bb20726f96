"""Captures of live requests in a store: ``<store>/captures/<namespace>/<model>/<time>-<revision>-<random>/``
(docs/adr/0042-captured-requests.md). Standard library only.

A capture is a file of samples and ``capture.json``, which says how many, since when, until when it is kept, and has a
MAC over all of that with the key of the namespace's Secret for captures. The folder gets its name last, when both files
are on the disk: a reader meets a whole capture or none. Folders are for their user alone (0700), files too (0600).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import CAPTURES_FOLDER, ContractError, canonical, load, to_plain
from enginewright_builder.engine_store.folder import flush
from enginewright_builder.engine_store.manifest import plain_file, sha256_file
from enginewright_builder.engine_store.signing import Keys

ABOUT = "capture.json"
ABOUT_BYTES = 64 << 10
# Of one model at a time, whatever retention and interval say: the oldest go first.
MOST_CAPTURES = 128
# What a writer that died left behind goes after this long, as does what cannot be read.
STALE_SECONDS = 3600.0
COPY_BYTES = 1 << 20
_TEMPORARY = ".tmp"
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z0-9]{1,20}-[0-9a-f]{8}")
_PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# Names that a capture's file of samples may have.
FILES = ("samples.npz", "samples.jsonl")


@dataclass(frozen=True, kw_only=True)
class About:
    """``of`` is ``NAMESPACE/MODEL``. Times are seconds since the epoch; ``until`` is when the capture was written,
    ``expires`` from when on it counts no more. ``digest`` and ``size_bytes`` are those of ``file``."""

    of: str
    revision: str
    since: float
    until: float
    expires: float
    samples: int
    file: str
    digest: str
    size_bytes: int
    mac: str = ""


@dataclass(frozen=True, kw_only=True)
class Capture:
    """One that is whole, signed and not expired."""

    folder: Path
    about: About

    @property
    def name(self) -> str:
        return self.folder.name


def captures_of(store_path: Path, of: str) -> Path:
    """The folder of the captures of ``of``, ``NAMESPACE/MODEL``. Raises :class:`ContractError` for what is none."""
    parts = of.split("/")
    if len(parts) != 2 or not all(_PART.fullmatch(part) for part in parts):
        raise ContractError(f"captures: got {of!r}, expected NAMESPACE/MODEL, such as team-a/minilm")
    return store_path.joinpath(CAPTURES_FOLDER, *parts)


def publish(folder: Path, write: Callable[[Path], str], about: About, keys: Keys) -> Capture:
    """Makes a capture in ``folder``. ``write`` leaves the samples in the folder that it is given, and returns the name
    of its one file; ``about`` comes without file, digest, size and MAC. Nothing is left of one that fails. Raises
    :class:`OSError`, and what ``write`` raises."""
    temporary = folder / f".{uuid.uuid4().hex}{_TEMPORARY}"
    temporary.mkdir(mode=0o700)
    try:
        file = temporary / write(temporary)
        file.chmod(0o600)
        flush(file)
        about = dataclasses.replace(about, file=file.name, digest=f"sha256:{sha256_file(file)}",
                                    size_bytes=file.stat().st_size)
        about = dataclasses.replace(about, mac=_mac(about, keys))
        _write(temporary / ABOUT, canonical(to_plain(about)).encode())
        flush(temporary)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(about.until))
        final = folder / f"{stamp}-{about.revision}-{uuid.uuid4().hex[:8]}"
        temporary.rename(final)
        flush(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Capture(folder=final, about=about)


def whole(folder: Path, of: str, keys: Keys, now: float) -> list[Capture]:
    """The captures of ``of`` that count at ``now``, the newest first; none where there is no folder."""
    found = (_read(path, of, keys, now) for path in _captures(folder))
    return sorted(filter(None, found), key=lambda one: (one.about.until, one.name), reverse=True)


def taken(capture: Capture, target: Path) -> Path:
    """The samples' file, copied into the folder ``target`` and checked on the way: what is read after that cannot
    change. Raises :class:`OSError`, also where the bytes are not those that were signed."""
    target.mkdir(parents=True, exist_ok=True)
    copy, about = target / capture.about.file, capture.about
    with plain_file(capture.folder / about.file) as reader, copy.open("wb") as writer:
        left = about.size_bytes + 1
        while left and (part := reader.read(min(COPY_BYTES, left))):
            writer.write(part)
            left -= len(part)
    if copy.stat().st_size != about.size_bytes or f"sha256:{sha256_file(copy)}" != about.digest:
        raise OSError(f"{capture.name} is not what its monitor wrote")
    return copy


def prune(folder: Path, now: float) -> int:
    """Removes captures of ``folder`` that have expired, the oldest above :data:`MOST_CAPTURES`, and what writers that
    died left; how many. What cannot be read goes when it is old, as no build will ever read it."""
    removed, alive = 0, []
    for path in _captures(folder):
        about = _about(path)
        if about is None:
            removed += _old(path, now) and _remove(path)
        elif now >= about.expires:
            removed += _remove(path)
        else:
            alive.append((about.until, path))
    for _, path in sorted(alive)[:max(0, len(alive) - MOST_CAPTURES)]:
        removed += _remove(path)
    for path in _entries(folder):
        if path.name.endswith(_TEMPORARY) and _old(path, now):
            removed += _remove(path)
    return removed


def remove_all(folder: Path) -> int:
    """Removes every capture of ``folder`` and what else lies there; how many entries. The folder may stay, empty, where
    another user made it."""
    removed = sum(_remove(path) for path in _entries(folder))
    with contextlib.suppress(OSError):
        folder.rmdir()
    return removed


def _read(path: Path, of: str, keys: Keys, now: float) -> Capture | None:
    about = _about(path)
    if about is None or about.of != of or now >= about.expires or about.file not in FILES:
        return None
    unsigned = canonical(to_plain(dataclasses.replace(about, mac=""))).encode()
    return Capture(folder=path, about=about) if keys.verifies(_purpose(about), unsigned, about.mac) else None


def _about(path: Path) -> About | None:
    """What ``capture.json`` says, signed or not; None where it makes no sense."""
    try:
        with plain_file(path / ABOUT) as reader:
            return load(About, reader.read(ABOUT_BYTES).decode())
    except (OSError, ContractError, UnicodeDecodeError, RecursionError):
        return None


def _mac(about: About, keys: Keys) -> str:
    return keys.mac(_purpose(about), canonical(to_plain(about)).encode())


def _purpose(about: About) -> str:
    return f"capture {about.of}"


def _captures(folder: Path) -> Iterator[Path]:
    return (path for path in _entries(folder) if _NAME.fullmatch(path.name) and not path.is_symlink())


def _entries(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _remove(path: Path) -> bool:
    """Out of readers' sight first; whether it is gone. A link goes, and not what it leads to."""
    aside = path.with_name(f".{uuid.uuid4().hex}{_TEMPORARY}")
    try:
        path.rename(aside)
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink()
    except FileNotFoundError:  # by another replica
        return False
    return True


def _old(path: Path, now: float) -> bool:
    try:
        return now - path.lstat().st_mtime > STALE_SECONDS
    except FileNotFoundError:
        return False


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writer:
        writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())

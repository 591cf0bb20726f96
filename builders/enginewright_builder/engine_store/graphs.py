"""Typed graphs in the store: ONNX with a precision written into it, kept from one build to the next.

To quantise and convert a graph takes most of a build whose kernels are timed already. A folder for each graph, named by
a digest of all that it was made from; ``graph.json`` in it has the digests of its files, which are checked while they
are copied out, and where there are signing keys a MAC over those and the folder's name. What is damaged, or bears no
MAC of ours, is put out of sight and made again, never trusted: an engine is built from it. A folder appears whole by a
rename, counts as used when it is read, and goes when the whole grows too large, the least recently used first, or when
no build has used it for long. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.contract import canonical
from enginewright_builder.engine_store.signing import Keys

GRAPHS = "graphs"
MANIFEST = "graph.json"
TEMPORARY = ".tmp"
# All graphs together. ViT-B/16 in FP16 has 170 MB, a model of a billion parameters 2 GB.
MOST_BYTES = 16 << 30
# What has to stay free on the volume: engines go before what only saves time.
SPARE_BYTES = 2 << 30
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Found:
    """``here`` says that the graph was copied; ``problem`` why not, if there was one to copy."""

    here: bool = False
    problem: str = ""


def load(folder: Path, key: str, target: Path, keys: Keys | None = None) -> Found:
    """Copies the files of the graph ``key`` into the folder ``target``, which is as it was where that fails."""
    entry = folder / GRAPHS / key
    if not entry.is_dir():
        return Found()
    part = target / f".{key}{TEMPORARY}"
    try:
        made = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        files = made["files"]
        if keys and not keys.verifies(_purpose(key), canonical(files).encode(), str(made.get("mac"))):
            raise ValueError("it bears no signature of a build Job of this namespace")
        part.mkdir(parents=True)
        for name, digest in files.items():
            if _copy(entry / Path(name).name, part / Path(name).name) != digest:
                raise ValueError(f"{name} does not have its digest")
        for name in files:
            os.replace(part / Path(name).name, target / Path(name).name)
        os.utime(entry)
        return Found(here=True)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        with contextlib.suppress(OSError):
            _discard(entry)
        return Found(problem=f"{key} is damaged: {error}")
    except OSError as error:
        return Found(problem=f"{key} cannot be copied: {error.strerror}")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def holds(folder: Path, key: str) -> bool:
    """Whether there is one by that name, sound or not."""
    return (folder / GRAPHS / key).is_dir()


def save(folder: Path, key: str, files: Iterable[Path], most_bytes: int = MOST_BYTES, keys: Keys | None = None) -> str:
    """Keeps the graph that ``files`` are together. Returns why not, empty if it is kept: nothing fails for it."""
    named = list(files)
    size = sum(path.stat().st_size for path in named)
    if size > most_bytes:
        return f"{size >> 20} MiB are more than all typed graphs may take"
    root = folder / GRAPHS
    part = root / f".{key}.{uuid.uuid4().hex}{TEMPORARY}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _shrink(root, most_bytes - size)
        if shutil.disk_usage(root).free < size + SPARE_BYTES:
            return "the store has no room to spare"
        part.mkdir()
        digests = {path.name: _copy(path, part / path.name) for path in named}
        mac = {"mac": keys.mac(_purpose(key), canonical(digests).encode())} if keys else {}
        (part / MANIFEST).write_text(json.dumps({"files": digests, **mac}), encoding="utf-8")
        _publish(part, root / key)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return ""


def _purpose(key: str) -> str:
    return f"graph {key}"


def sweep(folder: Path, unused_seconds: float) -> int:
    """Removes graphs, and what is left of writers that died, that were not touched for so long. Returns how many."""
    swept = 0
    for entry in _entries(folder / GRAPHS, hidden=True):
        with contextlib.suppress(OSError):
            if time.time() - entry.stat().st_mtime > unused_seconds:
                _discard(entry)
                swept += 1
    return swept


def _publish(part: Path, final: Path) -> None:
    """Of two writers of one graph the first wins; the other's is as good."""
    try:
        part.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def _shrink(root: Path, most_bytes: int) -> None:
    """The least recently used go until the rest has at most ``most_bytes``."""
    entries = sorted(_entries(root), key=lambda entry: entry.stat().st_mtime, reverse=True)
    total = 0
    for entry in entries:
        total += sum(path.stat().st_size for path in entry.iterdir())
        if total > most_bytes:
            _discard(entry)


def _entries(root: Path, *, hidden: bool = False) -> list[Path]:
    if not root.is_dir():
        return []
    return [path for path in root.iterdir() if path.is_dir() and (hidden or not path.name.startswith("."))]


def _discard(entry: Path) -> None:
    """Out of sight at once, so that no reader starts on what is going."""
    aside = entry.with_name(f".{entry.name.lstrip('.')}.{uuid.uuid4().hex}{TEMPORARY}")
    entry.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _copy(source: Path, target: Path) -> str:
    """The digest of what was copied, 64 hex digits."""
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return digest.hexdigest()

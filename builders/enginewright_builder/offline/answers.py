"""The folder of answers: which run it is of, files of answers, and a manifest of each shard that is done.

A file gets its name by a link when it lies on the disk as a whole, and no file of a name is ever replaced: a
reader of ``answers-*`` gets whole answers, and of two programs that work on one shard the first counts.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from enginewright_builder.contract import ContractError, dumps, load, shard_range
from enginewright_builder.engine_store.manifest import sha256_file
from enginewright_builder.errors import UserError
from enginewright_builder.offline.rows import NPZ, as_plain
from enginewright_builder.tensors import Array

RUN_FILE = "run.json"
_FIELD = "spec.batch.output.uri"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
# One row's answers by output.
Answer = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the answers of a folder depend on. ``input`` is ``sha256:<hex>`` of the file; ``bytes`` and ``modified``
    (nanoseconds) tell that it is the same one without reading it. ``format`` is of the answers."""

    engine: str
    input: str
    rows: int
    shards: int
    chunk_rows: int
    format: str
    bytes: int
    modified: int
    version: int = 1


@dataclass(frozen=True, kw_only=True)
class ChunkFile:
    """Rows ``start`` to ``stop``, without it."""

    file: str
    start: int
    stop: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ShardManifest:
    """Of a shard whose rows, ``start`` to ``stop`` without it, are all answered."""

    shard: int
    start: int
    stop: int
    engine: str
    input: str
    files: tuple[ChunkFile, ...]
    version: int = 1


class Answers:
    """Those of one run."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run

    def chunks(self, shard: int) -> list[range]:
        """Rows of the shard's files, in order."""
        rows = shard_range(self.run.rows, self.run.shards, shard)
        return [range(start, min(start + self.run.chunk_rows, rows.stop))
                for start in range(rows.start, rows.stop, self.run.chunk_rows)]

    def path(self, chunk: range) -> Path:
        """Names sort in the order of the rows, over all shards."""
        return self.folder / f"answers-{chunk.start:012d}-{chunk.stop:012d}.{self.run.format}"

    def missing(self, shard: int) -> list[range]:
        """Chunks that have no answers yet."""
        return [chunk for chunk in self.chunks(shard) if not self.path(chunk).exists()]

    def write(self, chunk: range, answers: Sequence[Answer]) -> None:
        """Raises :class:`UserError` ``BatchOutputInvalid``, and :class:`OSError`."""
        publish(self.path(chunk), _npz(answers) if self.run.format == NPZ else _jsonl(answers))

    def manifest_path(self, shard: int) -> Path:
        return self.folder / f"shard-{shard:06d}.json"

    def finish(self, shard: int) -> ShardManifest:
        """Writes the manifest of a shard that misses no answers, and clears what killed programs left of it."""
        rows = shard_range(self.run.rows, self.run.shards, shard)
        files = tuple(ChunkFile(file=self.path(chunk).name, start=chunk.start, stop=chunk.stop,
                                sha256=sha256_file(self.path(chunk))) for chunk in self.chunks(shard))
        manifest = ShardManifest(shard=shard, start=rows.start, stop=rows.stop, engine=self.run.engine,
                                 input=self.run.input, files=files)
        publish(self.manifest_path(shard), dumps(manifest, indent=2).encode())
        for chunk in self.chunks(shard):
            for left in self.folder.glob(f".{self.path(chunk).name}.*"):
                left.unlink(missing_ok=True)
        return manifest


def begun(folder: Path) -> Run | None:
    """The run that the folder is of; None where it is of none yet. Raises :class:`UserError`
    ``BatchOutputInvalid``."""
    try:
        return load(Run, (folder / RUN_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ContractError, UnicodeDecodeError) as error:
        raise _invalid(f"{RUN_FILE} makes no sense: {error}", folder) from error


def begin(folder: Path, run: Run) -> Answers:
    """The answers of ``run`` in ``folder``, which is made where it is missing. Raises :class:`UserError`
    ``BatchOutputInvalid`` where the folder has answers of another engine, of other data or of other shards."""
    folder.mkdir(parents=True, exist_ok=True)
    if begun(folder) is None:
        if any(folder.glob("answers-*")):
            raise _invalid(f"has answers, and no {RUN_FILE} that says of what", folder)
        publish(folder / RUN_FILE, dumps(run, indent=2).encode())
    there = begun(folder)
    assert there is not None  # it was written, by us or another shard
    for name, words in (("engine", "engine"), ("input", "input"), ("shards", "number of shards"), ("format", "format")):
        before, now = getattr(there, name), getattr(run, name)
        if before != now:
            raise _invalid(f"has answers of another {words}: {before}, and this run has {now}", folder)
    return Answers(folder, there)


def publish(path: Path, data: bytes) -> bool:
    """Whether ``path`` is ours; another one that is there stays. Either the whole of ``data`` has the name, and is on
    the disk, or nothing has. Raises :class:`UserError` ``BatchOutputInvalid`` where the file system knows no links, and
    :class:`OSError`."""
    # Its name matches no pattern by which answers are read.
    unnamed = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with unnamed.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(unnamed, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise _invalid(f"is on a file system without hard links ({error.strerror}), by which answers get their names",
                       path.parent, "use a volume with a POSIX file system, such as a disk or NFS") from error
    finally:
        unnamed.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    """Names are on the disk as well."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # of file systems that know nothing of it
            os.fsync(handle)
    finally:
        os.close(handle)


def _npz(answers: Sequence[Answer]) -> bytes:
    if wrong := [name for name in answers[0] if len({answer[name].shape for answer in answers}) > 1]:
        raise UserError("BatchOutputInvalid", f"answers of {wrong[0]!r} differ in their shape, and an .npz has one",
                        field="spec.batch.input.uri", value=wrong[0], remedy="give the input as .jsonl")
    file = io.BytesIO()
    columns = {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}
    np.savez(file, allow_pickle=False, **{name: _words(array) for name, array in columns.items()})
    return file.getvalue()


def _words(array: Array) -> Array:
    """Texts as NumPy's own, which are read without pickles."""
    return np.array(as_plain(array), np.str_).reshape(array.shape) if array.dtype.kind == "O" else array


def _jsonl(answers: Sequence[Answer]) -> bytes:
    return "".join(json.dumps({name: as_plain(array) for name, array in answer.items()}, ensure_ascii=False,
                              allow_nan=False, separators=(",", ":")) + "\n" for answer in answers).encode()


def _invalid(message: str, folder: Path, remedy: str = "name another folder, or remove this one") -> UserError:
    return UserError("BatchOutputInvalid", f"{folder.name} {message}", field=_FIELD, value=folder, remedy=remedy)

"""Rows of a file of inputs, by ranges: of a data set that need not fit into memory."""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from enginewright_builder.data.files import (
    DataField,
    Header,
    Row,
    SampleFile,
    parse_lines,
    read_header,
)
from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Array

INPUT = DataField(path="spec.batch.input.uri", reason="BatchInputInvalid")
_FORMATS = 'give .npz with one array an input, or .jsonl with {"<input>": …} on each line'
NPZ, JSONL = "npz", "jsonl"
_UNREADABLE = (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, KeyError,
               RuntimeError, SyntaxError)


class Rows(ABC):
    """A context manager around the open file. ``count`` is how many rows it has. It is read forwards."""

    count: int
    row_bytes: int

    @abstractmethod
    def read(self, start: int, stop: int) -> SampleFile:
        """Rows ``start`` to ``stop``, without it. Raises :class:`UserError` ``BatchInputInvalid``."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...


def data_format(path: Path) -> str:
    """``npz`` or ``jsonl``. Raises :class:`UserError` ``BatchInputInvalid``."""
    if not path.is_file():
        raise INPUT.invalid(f"{path.name} is not there, or no plain file", path, _FORMATS)
    if path.suffix == ".npz":
        return NPZ
    if path.suffix in (".jsonl", ".ndjson"):
        return JSONL
    raise INPUT.invalid(f"{path.name} is neither .npz nor .jsonl", path, _FORMATS)


def open_rows(path: Path, count: int | None = None) -> Rows:
    """``count`` is how many rows there are, where that is known: lines are counted otherwise. Raises
    :class:`UserError` ``BatchInputInvalid``."""
    return NpzRows(path) if data_format(path) == NPZ else JsonlRows(path, count)


class NpzRows(Rows):
    """One array an input, rows along axis 0. Each array is read as a stream of its own."""

    def __init__(self, path: Path) -> None:
        self._path, self._open = path, ExitStack()
        self._streams: dict[str, _Stream] = {}
        try:
            archive = self._open.enter_context(zipfile.ZipFile(path))
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                stream = self._open.enter_context(archive.open(member))
                self._streams[name] = _Stream(stream, read_header(stream))
        except _UNREADABLE as error:
            self._open.close()
            raise self._invalid(f"cannot be read: {error}") from error
        try:
            self.count = self._checked()
        except UserError:
            self._open.close()
            raise
        self.row_bytes = sum(stream.row_bytes for stream in self._streams.values())

    def _checked(self) -> int:
        headers = {name: stream.header for name, stream in self._streams.items()}
        if not headers:
            raise self._invalid("holds no arrays")
        for name, header in headers.items():
            if header.dtype.kind not in "biufU":
                raise self._invalid(f"{name} holds {header.dtype}, expected numbers or texts")
            if header.fortran and len(header.shape) > 1:
                raise self._invalid(f"{name} is in Fortran's order", "write it with numpy.ascontiguousarray")
        counts = {header.shape[0] if header.shape else -1 for header in headers.values()}
        if len(counts) != 1 or -1 in counts:
            stated = ", ".join(f"{name}: {list(header.shape)}" for name, header in sorted(headers.items()))
            raise self._invalid(f"arrays differ in their number of rows ({stated})",
                                "put the rows along axis 0 of every array")
        return counts.pop()

    def read(self, start: int, stop: int) -> SampleFile:
        try:
            arrays = {name: stream.read(start, stop) for name, stream in self._streams.items()}
        except _UNREADABLE as error:
            raise self._invalid(f"rows {start} to {stop - 1} cannot be read: {error}") from error
        return SampleFile(rows=tuple({name: array[index] for name, array in arrays.items()}
                                     for index in range(stop - start)))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._open.close()

    def _invalid(self, message: str, remedy: str = "write it with numpy.savez, from numeric arrays") -> UserError:
        return INPUT.invalid(f"{self._path.name}: {message}", self._path, remedy)


class _Stream:
    """One array of the archive."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file, self.header, self._begin = file, header, file.tell()
        self.row_bytes = header.dtype.itemsize * int(np.prod(header.shape[1:], dtype=np.int64))

    def read(self, start: int, stop: int) -> Array:
        place, size = self._begin + start * self.row_bytes, (stop - start) * self.row_bytes
        if self._file.tell() != place:
            self._file.seek(place)
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError(f"{len(data)} bytes where {size} were promised")
        return np.frombuffer(data, self.header.dtype).reshape(stop - start, *self.header.shape[1:])


class JsonlRows(Rows):
    """One object a line; lines without anything are no rows."""

    def __init__(self, path: Path, count: int | None = None) -> None:
        self._path = path
        self._file = path.open("rb")
        self._next = 0
        self._lines = self._numbered()
        self.count = sum(1 for line in path.open("rb") if line.strip()) if count is None else count
        self.row_bytes = -(-path.stat().st_size // max(1, self.count))

    def read(self, start: int, stop: int) -> SampleFile:
        if start < self._next:
            self._file.seek(0)
            self._next, self._lines = 0, self._numbered()
        while self._next < start:
            next(self._lines)
            self._next += 1
        lines = [next(self._lines, (0, b"")) for _ in range(start, stop)]
        self._next = stop
        if lines and not lines[-1][0]:
            raise INPUT.invalid(f"{self._path.name}: ends before row {stop - 1}", self._path,
                                "let it be as long as it was when the run began")
        return parse_lines(self._path, self._texts(lines), INPUT)

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        return ((number, line) for number, line in enumerate(self._file, start=1) if line.strip())

    def _texts(self, lines: list[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
        for number, line in lines:
            try:
                yield number, line.decode()
            except UnicodeDecodeError as error:
                raise INPUT.invalid(f"{self._path.name}:{number}: is not UTF-8 text: {error}", self._path,
                                    _FORMATS) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._file.close()


def shapes(row: Row) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What rows of one request have in common."""
    return tuple((name, array.shape) for name, array in sorted(row.items()))


def stacked(rows: list[Row]) -> Mapping[str, Array]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def as_plain(array: Array) -> Any:
    """For JSON: lists and numbers; None for what JSON has no word for (NaN, infinities)."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        plain = array.astype(np.object_)
        plain[~np.isfinite(array)] = None
        return plain.tolist()
    if array.dtype.kind == "O":
        return np.vectorize(_text, otypes=[object])(array).tolist() if array.size else array.tolist()
    return array.tolist()


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")

"""Evaluation and calibration files, read without PyTorch and without pickles.

* ``.npz``: one array an input, named as the input, samples along axis 0.
* ``.jsonl``: one object a line, either ``{"text": "…"}`` for models that take texts, or ``{"<input>": […], …}``.

Either may have columns beside inputs: another array, or another field of each object. Those that the spec names
(labels, groups) are kept; others, such as an identity, are left out once it is known which inputs the model takes.
"""

from __future__ import annotations

import io
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from enginewright_builder.contract import Interface, as_written
from enginewright_builder.data import conversion
from enginewright_builder.data.sample_keys import row_key, text_key
from enginewright_builder.errors import UserError
from enginewright_builder.foreign_json import parsed
from enginewright_builder.shapes import (
    BATCH,
    ROWS,
    STEPS,
    STRING,
    is_text_interface,
    numpy_dtype,
    sample_shape,
    shape_text,
    size_range,
    takes_batches,
)
from enginewright_builder.tensors import Array

# One sample's arrays by input, without the batch dimension.
Row = Mapping[str, Array]
_FORMATS = 'give .npz with one array an input, or .jsonl with {"text": …} or {"<input>": […]} on each line'
_SAVEZ = "write it with numpy.savez, from numeric arrays"
# Of what is no input.
_BESIDE = "; labels and groups are named by spec.accuracy.task.labels and spec.accuracy.groupBy"
# NumPy's kinds.
_NUMBERS = "biuf"
_NUMBERS_AND_WORDS = _NUMBERS + "U"
# Of one file, unpacked, and of the samples in it: a gate that runs for days needs fewer.
MOST_BYTES, MOST_SAMPLES = 64 << 30, 5_000_000
# Of a header, in bytes: NumPy's own limit.
_HEADER = 10_000
# A larger share of samples in both sets than this, and they are one set; fewer are left out of the calibration.
SHARED_LIMIT = 0.1


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """Either ``texts``, or ``rows`` of one array an input without the batch dimension. ``columns`` has by name what is
    no input and named by the spec: one value a sample, as it was read; ``left_out`` are names of what is neither.
    ``rounded`` tells of each input with whole numbers that its type does not have one of them."""

    texts: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Array], ...] = field(default=(), repr=False)
    columns: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)
    left_out: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts) or len(self.rows)

    def limited(self, samples: int) -> SampleFile:
        """The first ``samples`` of it; 0 means all."""
        return self.picked(range(min(samples, len(self)))) if samples else self

    def without(self, keys: set[str]) -> SampleFile:
        return self.picked([index for index, key in enumerate(self.keys()) if key not in keys])

    def picked(self, places: Sequence[int]) -> SampleFile:
        return SampleFile(texts=tuple(self.texts[place] for place in places if self.texts),
                          rows=tuple(self.rows[place] for place in places if self.rows),
                          columns={name: tuple(values[place] for place in places)
                                   for name, values in self.columns.items()}, left_out=self.left_out,
                          rounded=self.rounded)

    def keys(self) -> list[str]:
        """One digest a sample: equal keys mean equal samples, whatever file, format or type they were written in."""
        return [text_key(text) for text in self.texts] or [row_key(row) for row in self.rows]

    def distinct(self) -> SampleFile:
        """Each sample once, in its first place: a sample that is counted twice proves nothing more."""
        first = {key: index for index, key in reversed(list(enumerate(self.keys())))}
        return self.picked(sorted(first.values()))


@dataclass(frozen=True, kw_only=True)
class DataField:
    """Which field of the spec the file came from, and the reason its errors carry."""

    path: str = "spec.accuracy.evaluation.uri"
    reason: str = "EvaluationDataInvalid"

    def invalid(self, message: str, value: object, remedy: str) -> UserError:
        return UserError(self.reason, message, field=self.path, value=value, remedy=remedy)


EVALUATION = DataField()
CALIBRATION = DataField(path="spec.engine.calibration.uri", reason="CalibrationDataInvalid")


def read_samples(path: Path, where: DataField = EVALUATION, columns: Collection[str] = (), *,
                 words: bool = False) -> SampleFile:
    """``columns`` names what is no input, wherever the file has it; ``words``: an input may be of texts. Raises
    :class:`UserError` ``EvaluationDataInvalid`` (or ``CalibrationDataInvalid``)."""
    if path.is_dir():
        raise where.invalid(f"{path.name} is a folder", path, _FORMATS)
    if path.suffix == ".npz":
        samples = _read_npz(path, where, columns, words=words)
    elif path.suffix in (".jsonl", ".ndjson"):
        samples = _read_jsonl(path, where, columns, words=words)
    else:
        raise where.invalid(f"{path.name} is neither .npz nor .jsonl", path, _FORMATS)
    if not len(samples):
        raise where.invalid(f"{path.name} holds no samples", path, "give at least 16 samples like production's")
    return samples


def _read_npz(path: Path, where: DataField, columns: Collection[str], *, words: bool) -> SampleFile:
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError,
            KeyError, RuntimeError, SyntaxError, tokenize.TokenError) as error:
        # TypeError of a bare array, NotImplementedError of an unknown compression, RuntimeError of an encryption, and
        # the last two of a header that is no Python.
        raise where.invalid(f"{path.name} cannot be read: {error}", path, _SAVEZ) from error
    inputs = {name: array.dtype for name, array in arrays.items() if name not in columns}
    if not inputs:
        raise where.invalid(f"{path.name} holds no arrays of inputs", path, _FORMATS)
    if not any(dtype.kind in (_NUMBERS_AND_WORDS if words else _NUMBERS) for dtype in inputs.values()):
        name, dtype = next(iter(inputs.items()))
        raise where.invalid(f"{path.name}: {name} holds {dtype}, expected numbers", path,
                            f'{_SAVEZ}, or give texts in .jsonl, as {{"text": …}} on each line{_BESIDE}')
    counts = {name: array.shape[0] if array.ndim else -1 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or -1 in counts.values():
        stated = ", ".join(f"{name}: {arrays[name].shape}" for name in sorted(arrays))
        raise where.invalid(f"{path.name}: arrays differ in their number of samples ({stated})", path,
                            "put the samples along axis 0 of every array")
    count = next(iter(counts.values()))
    beside = {name: tuple(arrays.pop(name)) for name in columns if name in arrays}
    return SampleFile(rows=tuple({name: array[index] for name, array in arrays.items()} for index in range(count)),
                      columns=beside)


def _check_sizes(path: Path) -> None:
    """What headers promise is there: an array is made before it is read. Raises ``ValueError``, and what readers of
    archives and headers do."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES >> 30} GiB, unpacked")
        for member in members:
            with archive.open(member) as file:
                header = file.read(_HEADER + 12)
            shape, size = _promised(header)
            if size != member.file_size:
                raise ValueError(f"{member.filename[:100]} promises {size} bytes, and has {member.file_size}")
            if shape and (shape[0] > MOST_SAMPLES or (shape[0] and not math.prod(shape))):
                raise ValueError(f"{member.filename[:100]} has {shape[0]} samples, of shape {list(shape[1:])}")


@dataclass(frozen=True)
class Header:
    """Of an array in NumPy's format."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def read_header(file: IO[bytes]) -> Header:
    """What stands in front of the array, which ``file`` then is at. Raises ``ValueError``, and what Python's own parser
    does."""
    library = cast(Any, np.lib.format)  # it has no types
    version = library.read_magic(file)
    read = library.read_array_header_1_0 if version == (1, 0) else library.read_array_header_2_0
    header = Header(*read(file, max_header_size=_HEADER))
    if any(size < 0 for size in header.shape):
        raise ValueError(f"a size below zero: {list(header.shape)}")
    return header


def _promised(header: bytes) -> tuple[tuple[int, ...], int]:
    """The shape, and the length of the member in bytes, with the header."""
    file = io.BytesIO(header)
    found = read_header(file)
    return found.shape, file.tell() + math.prod(found.shape) * found.dtype.itemsize


def _read_jsonl(path: Path, where: DataField, columns: Collection[str], *, words: bool) -> SampleFile:
    if path.stat().st_size > MOST_BYTES:
        raise where.invalid(f"{path.name} has more than {MOST_BYTES >> 30} GiB", path, "give fewer samples")
    try:
        # Not splitlines: JSON's strings may hold other characters that end lines of text.
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise where.invalid(f"{path.name} is not UTF-8 text: {error}", path, _FORMATS) from error
    return parse_lines(path, enumerate(lines, start=1), where, columns, words=words)


def parse_lines(path: Path, lines: Iterable[tuple[int, str]], where: DataField, columns: Collection[str] = (), *,
                words: bool = False) -> SampleFile:
    """Lines of the .jsonl at ``path``, with their numbers. Raises as :func:`read_samples`."""
    texts: list[str] = []
    rows: list[Mapping[str, Array]] = []
    beside = _Beside(columns)
    for number, line in lines:
        if not line.strip():
            continue
        entry = beside.taken(_parse_line(line, f"{path.name}:{number}", path, where), number)
        if isinstance(text := entry.get("text"), str):
            texts.append(_checked_text(text, f"{path.name}:{number}", path, where))
        else:
            rows.append(_parse_row(entry, f"{path.name}:{number}", path, where, words=words))
        if texts and rows:
            raise where.invalid(f"{path.name}:{number}: texts and tensors are mixed", path, _FORMATS)
    if beside.gap:
        raise where.invalid(f"{path.name}:{beside.gap[1]}: there is no {beside.gap[0]!r}, which other lines have", path,
                            "write it on every line, or on none")
    return SampleFile(texts=tuple(texts), rows=tuple(rows), columns=beside.columns)


class _Beside:
    """Columns as lines are read. ``gap`` is a column that some lines have and this line has not."""

    def __init__(self, names: Collection[str]) -> None:
        self._values: dict[str, list[Any]] = {name: [] for name in names}
        self._without: dict[str, int] = {}

    def taken(self, entry: dict[str, object], number: int) -> dict[str, object]:
        """``entry`` without its columns."""
        for name, values in self._values.items():
            if name in entry:
                values.append(entry.pop(name))
            else:
                self._without.setdefault(name, number)
        return entry

    @property
    def columns(self) -> dict[str, tuple[Any, ...]]:
        return {name: tuple(values) for name, values in self._values.items() if values}

    @property
    def gap(self) -> tuple[str, int] | None:
        return next(((name, self._without[name]) for name, values in self._values.items()
                     if values and name in self._without), None)


def _parse_line(line: str, at: str, path: Path, where: DataField) -> dict[str, object]:
    try:
        entry = parsed(line)
    except ValueError as error:
        raise where.invalid(f"{at}: not JSON: {error}", path, _FORMATS) from error
    if not isinstance(entry, dict) or not entry:
        raise where.invalid(f"{at}: expected an object, got {line[:60]!r}", path, _FORMATS)
    return entry


def _checked_text(text: str, at: str, value: object, where: DataField) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON may write \ud83d without what follows it
        raise where.invalid(f"{at}: text holds half a character: {error.reason}", value,
                            "write whole characters, as UTF-8 or as both halves of an escape") from error
    return text


def _parse_row(entry: dict[str, object], at: str, path: Path, where: DataField, *, words: bool) -> Row:
    """What is no number may be a column that is left out, but not all of the row."""
    row: dict[str, Array] = {}
    for name, value in entry.items():
        try:
            row[name] = _with_gaps(np.asarray(value)) if isinstance(value, list) else np.asarray(value)
        except (ValueError, OverflowError) as error:
            raise where.invalid(f"{at}: {name}: {error}", path, "write a full, rectangular list of numbers") from error
    kinds = _NUMBERS_AND_WORDS if words else _NUMBERS
    if entry and not any(array.dtype.kind in kinds or entry[name] is None for name, array in row.items()):
        name, value = next(iter(entry.items()))
        raise where.invalid(f"{at}: {name}: expected numbers, got {as_written(value)[:60]}", path, _FORMATS)
    return row


def check_overlap(shared: int, evaluation: int, calibration: int, uri: str = "") -> None:
    """``shared`` calibration samples are evaluation samples, too. Few can be left out; more, and it is one set.

    An engine tried on what it was calibrated with proves nothing about other inputs. Raises :class:`UserError`
    ``CalibrationEqualsEvaluation``.
    """
    if shared and shared > SHARED_LIMIT * min(evaluation, calibration):
        raise UserError("CalibrationEqualsEvaluation", f"{shared} of {calibration} calibration samples are evaluation "
                        "samples, too (equal content, whatever the file): such a proof would prove nothing",
                        field="spec.engine.calibration.uri", value=uri,
                        remedy="give other samples for calibration, for example a day's earlier traffic")


def check_against(samples: SampleFile, interface: Interface, where: DataField = EVALUATION, *,
                  first: int = 0, missing: bool = False) -> SampleFile:
    """Samples in the interface's own types, without what is no input of it. ``first`` is the place of the first of them
    in its file; with ``missing`` NaN stands for values that are missing. Raises as :func:`read_samples`, naming what
    was got and what is expected."""
    if samples.texts and [spec.dtype for spec in interface.inputs] == [STRING]:
        samples = _as_rows(samples, interface)
    if samples.texts:
        if not is_text_interface(interface):
            raise where.invalid("the file holds texts, but the model takes "
                                f"{', '.join(spec.name for spec in interface.inputs)}", "text",
                                "give arrays named as the inputs, in .npz or .jsonl")
        return samples
    expected = {spec.name: spec for spec in interface.inputs}
    batched, rows, rounded = takes_batches(interface), [], dict[str, str]()
    if samples.columns and not batched:
        raise where.invalid("labels and groups belong to single samples, and the model takes no batches of them",
                            ", ".join(sorted(samples.columns)),
                            "export the model with a free first dimension, or leave spec.accuracy.task and "
                            "spec.accuracy.groupBy out")
    given = [_inputs_of(row, expected, index, where) for index, row in enumerate(samples.rows, start=first)]
    for index, row in enumerate(_calls(given, interface, where), start=first):
        rows.append({name: _fit(row[name], spec.dtype, sample_shape(spec, batched=batched), f"sample {index}: {name}",
                                where, whole=not batched, missing=missing)
                     for name, spec in expected.items()})
        _note_rounded(row, rows[-1], index, rounded)
        if len({len(rows[-1][spec.name]) for spec in interface.inputs if spec.shape[1:2] == (STEPS,)}) > 1:
            steps = ", ".join(f"{name} {len(array)}" for name, array in rows[-1].items())
            raise where.invalid(f"sample {index} is a sequence of different length in its inputs: {steps} steps", steps,
                                "give every input of a sequence as many steps")
    return replace(samples, rows=tuple(rows), rounded=tuple(rounded.values()),
                   left_out=tuple(sorted({name for row in samples.rows for name in row} - set(expected))))


def note_left_out(names: Sequence[str], which: str) -> Iterator[str]:
    """What the user should know of columns that are neither inputs nor named in the spec."""
    if names:
        yield (f"left {', '.join(names)} of the {which} data out, which the model does not take; labels and groups "
               "count where spec.accuracy.task.labels and spec.accuracy.groupBy name them")


def _note_rounded(before: Row, after: Row, index: int, noted: dict[str, str]) -> None:
    for name, array in after.items():
        if name not in noted and (changed := conversion.rounded(before[name].reshape(array.shape), array)):
            noted[name] = f"sample {index}: {name}: {array.dtype} has no {changed[0]}: it is {changed[1]:.0f} there"


def note_rounded(notes: Sequence[str], which: str) -> Iterator[str]:
    """Of whole numbers that become others in the model's type. They are no fault of the data: what clients send is of
    that type, too, and amounts bear it; identities and times do not."""
    for one in notes:
        yield (f"{which} data: {one}, and in what clients send; where that matters, as it does to identities and "
               "times, export the model with a wider type for it, or subtract a constant before")


def _inputs_of(row: Row, expected: Collection[str], index: int, where: DataField) -> Row:
    if missing := sorted(set(expected) - set(row)):
        raise where.invalid(f"sample {index} has {', '.join(sorted(row))}; the model takes "
                            f"{', '.join(sorted(expected))}", ", ".join(sorted(row)),
                            f"add {', '.join(missing)}: name the arrays exactly as the model's inputs{_BESIDE}")
    return {name: row[name] for name in expected}


def _as_rows(samples: SampleFile, interface: Interface) -> SampleFile:
    """Of a model whose one input is of texts."""
    spec = interface.inputs[0]
    shape = (1,) * len(sample_shape(spec, batched=takes_batches(interface)))
    rows = tuple({spec.name: np.array(text, np.object_).reshape(shape)} for text in samples.texts)
    return replace(samples, texts=(), rows=rows)


def _calls(rows: Sequence[Row], interface: Interface, where: DataField) -> Sequence[Row]:
    """``rows``, or several of them as one call of a model that is frozen to a batch."""
    sizes = {spec.shape[0] if spec.shape else 0 for spec in interface.inputs}
    size = sizes.pop() if len(sizes) == 1 else 0
    ranks = {spec.name: len(spec.shape) for spec in interface.inputs}
    if takes_batches(interface) or not isinstance(size, int) or size < 2 or any(
            array.ndim != ranks.get(name, 0) - 1 for row in rows[:1] for name, array in row.items()):
        return rows
    if len(rows) < size:
        raise where.invalid(f"the file holds {len(rows)} samples, and one call of the model takes {size}", len(rows),
                            f"give at least {size} samples, or export the model with a free first dimension")
    try:
        return [{name: np.stack([row[name] for row in rows[start:start + size]]) for name in rows[start]}
                for start in range(0, len(rows) - size + 1, size)]
    except (KeyError, ValueError) as error:
        raise where.invalid(f"{size} samples cannot be put into one call of the model: {error}", size,
                            "give samples of one shape, with the same names") from error


def _with_gaps(array: Array) -> Array:
    """JSON's null, which has no number, as NaN; as it is where something else is no number either."""
    if array.dtype != np.object_ or not all(one is None or isinstance(one, int | float) for one in array.ravel()):
        return array
    return array.astype(np.float64)


def _fit(array: Array, dtype: str, shape: tuple[int | str, ...], at: str, where: DataField, *, whole: bool,
         missing: bool) -> Array:
    """``whole``: ``shape`` is that of a whole call."""
    array, wanted = _shaped(array, shape, whole=whole), numpy_dtype(dtype)
    if missing and wanted.kind == "f":
        array = _with_gaps(array)
    if array.dtype.kind == "f" and not missing and np.isnan(array).any():
        raise where.invalid(f"{at} holds NaN", "NaN", "leave such samples out, or mend what wrote them")
    if conversion.infinite(array):
        raise where.invalid(f"{at} holds an infinite number", "inf",
                            "leave such samples out, or write a large number that the model's type has")
    fits = array.ndim == len(shape) and all(low <= size <= high for size, (low, high)
                                            in zip(array.shape, map(size_range, shape), strict=True))
    if not fits:
        raise where.invalid(f"{at} has shape {list(array.shape)}, expected {shape_text(shape)}", list(array.shape),
                            "give each sample in the shape of the model's input, without the batch dimension")
    return _typed(array, wanted, at, where)


def _shaped(array: Array, shape: tuple[int | str, ...], *, whole: bool) -> Array:
    """In front of a whole call a single row may be left out, and so it may in each step of a sequence."""
    if whole and array.ndim == len(shape) - 1 and shape[0] in (1, ROWS, BATCH):
        return array[None]
    if shape[:1] == (STEPS,) and shape[1:2] == (1,) and array.ndim == len(shape) - 1:
        return array[:, None]
    if array.shape == (1,) and not shape:  # as clients send one number
        return np.asarray(array[0])
    return np.asarray(array)[None] if not array.ndim and shape == (1,) else array


def _typed(array: Array, wanted: np.dtype[Any], at: str, where: DataField) -> Array:
    if wanted == np.object_ and all(isinstance(text, str) for text in array.ravel()):
        for text in array.ravel():
            _checked_text(str(text), at, str(text), where)
        return array.astype(np.object_)
    if array.dtype.kind not in _NUMBERS or wanted == np.object_:
        expected = "texts" if wanted == np.object_ else "numbers"
        raise where.invalid(f"{at}: expected {expected}, got {as_written(array.tolist())[:60]}", "", _FORMATS)
    if array.dtype != wanted and not _harmless(array, wanted):
        raise where.invalid(f"{at} is {array.dtype}, expected {wanted}", array.dtype,
                            f"write the array as {wanted}")
    after = conversion.converted(array, wanted)
    if (number := conversion.overflowing(array, after)) is not None:
        raise where.invalid(f"{at} holds {number}, which is infinite as {wanted}", number,
                            "scale the numbers as the model was trained with, or export it with a wider type")
    return after


def _harmless(array: Array, wanted: np.dtype[Any]) -> bool:
    """JSON knows one kind of integer and one of float; files may be wider than the model. No value may change kind."""
    if array.dtype.kind in "iu" and wanted.kind in "iu":
        info = np.iinfo(wanted)
        return array.size == 0 or bool(array.min() >= info.min and array.max() <= info.max)
    return array.dtype.kind in "iuf" and wanted.kind == "f"

"""When requests came: a CSV with a TIMESTAMP column, or range data of a Prometheus."""

from __future__ import annotations

import csv
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from enginewright_simulation.errors import InputError
from enginewright_simulation.prometheus import arrivals_of_range
from enginewright_simulation.stamps import problem

COLUMN = "TIMESTAMP"
# Of language models: tokens of the prompt, and of its answer.
READ, WRITTEN = "ContextTokens", "GeneratedTokens"
FORMS = "write ISO 8601 such as 2023-11-16 18:15:46.68 or 2023-11-16T18:15:46Z, or seconds such as 1700158546.68"
# A pause is reported when it is this long and so many times the median distance of two requests.
PAUSE, PAUSE_RATIO = 300.0, 100.0
# A number of tokens has fewer.
DIGITS = 9


@dataclass(frozen=True, kw_only=True)
class Trace:
    """``arrivals`` are seconds from the first request, which came at ``start``, by what the trace says seconds since
    1970. ``sizes`` are the tokens of each prompt and of its answer, empty where the trace has no such columns.
    ``notes`` say what a reader should know."""

    name: str
    arrivals: Sequence[float]
    start: float = 0.0
    sizes: Sequence[tuple[int, int]] = ()
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return self.arrivals[-1] - self.arrivals[0]


def read_trace(path: Path, seed: int = 0, *, tokens: bool = False) -> Trace:
    """Raises :class:`InputError`. ``seed`` places the requests of range data, which only tells rates. With ``tokens``
    token counts are read, too."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}; give a CSV with a column {COLUMN}, or Prometheus range "
                         "data as JSON") from error
    if not text.strip():
        raise InputError(f"{path}: is empty; give a CSV with a column {COLUMN} and one line for each request")
    if text.lstrip().startswith(("{", "[")):
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{error.lineno}: is not JSON: {error.msg}; give the whole answer of Prometheus to "
                             "query_range") from error
        times = arrivals_of_range(data, str(path), seed)
        return Trace(name=path.name, arrivals=[time - times[0] for time in times], start=times[0])
    return _from_csv(path, text, tokens)


def _from_csv(path: Path, text: str, tokens: bool) -> Trace:
    times = list(_times(path, text))
    if not times:
        raise InputError(f"{path}: has no request below its header; give one line for each request")
    start = times[0]
    arrivals = [time - start for time in times]
    return Trace(name=path.name, arrivals=arrivals, start=start, notes=_pauses(arrivals),
                 sizes=_sizes(path, text) if tokens else ())


def _sizes(path: Path, text: str) -> list[tuple[int, int]]:
    """Of a file with both columns."""
    rows = csv.reader(text.splitlines())
    header = [cell.strip() for cell in next(rows)]
    if not {READ, WRITTEN} <= set(header):
        return []
    columns = [(name, header.index(name)) for name in (READ, WRITTEN)]
    return [(_count(row, *columns[0], f"{path}:{line}"), _count(row, *columns[1], f"{path}:{line}"))
            for line, row in enumerate(rows, 2) if row]


def _count(row: Sequence[str], name: str, column: int, where: str) -> int:
    cell = row[column].strip() if column < len(row) else ""
    if not (cell.isascii() and cell.isdigit() and len(cell) < DIGITS):
        raise InputError(f"{where}: {name}: got {cell[:20]!r}; write a number of tokens, a whole one of 0 or more")
    return int(cell)


def _times(path: Path, text: str) -> Iterator[float]:
    rows = csv.reader(text.splitlines())
    header = [cell.strip() for cell in next(rows)]
    if COLUMN not in header:
        raise InputError(f"{path}:1: has no column {COLUMN}, but {', '.join(header)[:80]}; name the column of arrival "
                         f"times {COLUMN}")
    column, before, zoned = header.index(COLUMN), -math.inf, None
    for line, row in enumerate(rows, 2):
        if not row:
            continue
        cell = row[column].strip() if column < len(row) else ""
        time, has_zone = _seconds(cell, f"{path}:{line}")
        if zoned not in (None, has_zone):
            raise InputError(f"{path}:{line}: {COLUMN} {cell} {'has' if has_zone else 'lacks'} a time zone, unlike "
                             "those before it; write all with one, or all without")
        if time < before:
            raise InputError(f"{path}:{line}: {COLUMN} {cell} is {before - time:g} s before the line above it; sort "
                             f"the file by {COLUMN}")
        before, zoned = time, has_zone
        yield time


def _seconds(cell: str, where: str) -> tuple[float, bool]:
    """(seconds since 1970, whether a time zone was given)."""
    if not cell:
        raise InputError(f"{where}: {COLUMN} is empty; {FORMS}, or remove the line")
    try:
        number = float(cell)
    except ValueError:
        pass
    else:
        if not math.isfinite(number):
            raise InputError(f"{where}: {COLUMN} {cell} is not a time; {FORMS}")
        if wrong := problem(number):
            raise InputError(f"{where}: {COLUMN} {cell} {wrong}")
        return number, False
    try:
        time = datetime.fromisoformat(cell)
    except ValueError as error:
        raise InputError(f"{where}: {COLUMN} {cell[:60]} is in another format; {FORMS}") from error
    # No zone, no daylight saving: a clock that runs evenly.
    stamp = time.timestamp() if time.tzinfo else (time - datetime(1970, 1, 1)).total_seconds()
    if problem(stamp):
        raise InputError(f"{where}: {COLUMN} {cell} is too far from today; {FORMS}")
    return stamp, time.tzinfo is not None


def _pauses(arrivals: Sequence[float]) -> tuple[str, ...]:
    if len(arrivals) < 3:
        return ()
    gaps = [(after - before, before) for before, after in itertools.pairwise(arrivals)]
    usual = statistics.median(gap for gap, _ in gaps)
    found = [(gap, before) for gap, before in gaps if gap > max(PAUSE, PAUSE_RATIO * usual)]
    if not found:
        return ()
    longest, since = max(found)
    return (f"Pauses without requests: {len(found)}, the longest of {longest:.0f} s from second {since:.0f} on; they "
            "are simulated as silence. If requests are missing there, cut the trace.",)

"""Sampled requests as captures in the store: inputs alone, which become evaluation and calibration data.

The monitor hands on what it samples anyway. What is captured lies in its memory until the interval is over, and is
written then, whole, to the store; a monitor that ends before has captured nothing. Nothing here may ever cost the
monitor a score: what goes wrong is counted, and the log says its class alone.
"""

from __future__ import annotations

import json
import logging
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from enginewright_builder.engine_store.captures import FILES, About, Capture, prune, publish, whole
from enginewright_builder.engine_store.signing import Keys
from enginewright_builder.quality.reservoir import Reservoir, Row
from enginewright_builder.tensors import Tensors

# Between two looks for what has expired.
PRUNE_SECONDS: Final = 60.0
# A capture of another replica that is younger than this share of the interval is the capture of this interval.
OTHERS_SHARE: Final = 0.5
ARRAYS, LINES = FILES
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CaptureRules:
    """``of`` is ``NAMESPACE/MODEL``, ``revision`` the replica's. A capture has the requests of ``interval`` seconds, at
    most ``samples`` of ``most_bytes``, and is kept for ``retention`` seconds."""

    of: str
    revision: str
    samples: int
    most_bytes: int
    interval: float
    retention: float


class Capturing:
    """Into ``folder``, signed with ``keys``. ``clock`` is the time of day, in seconds since the epoch. Of a model that
    is not ``batched`` a request is one sample. ``newest`` is the newest capture of the model, also of another replica;
    ``failed`` says in a word or two what went wrong last, empty after what went well."""

    def __init__(self, folder: Path, rules: CaptureRules, keys: Keys, clock: Callable[[], float], *,
                 batched: bool = True, dice: random.Random | None = None) -> None:
        self._folder, self._rules, self._keys, self._clock = folder, rules, keys, clock
        self._batched, self._dice = batched, dice or random.Random()  # noqa: S311  (a sample, no secret)
        self._began = clock()
        self._pruned = float("-inf")
        self._kept = self._empty()
        self.failed = ""
        self.newest: About | None = None

    def add(self, inputs: Tensors) -> None:
        """One request."""
        try:
            for row in _rows(inputs, batched=self._batched):
                if _finite(row):
                    self._kept.add(row)
        except Exception as error:
            self._fail(error)

    def turn(self) -> None:
        """Writes what the interval brought once it is over, and removes what has expired."""
        now = self._clock()
        try:
            if now - self._pruned >= PRUNE_SECONDS:
                self._pruned = now
                prune(self._folder, now)
                self.newest = next((one.about for one in self._whole(now)), None)
            if now - self._began >= self._rules.interval:
                self._end(now)
                self.failed = ""
        except Exception as error:
            self._fail(error)

    def _end(self, now: float) -> None:
        """One replica's requests are a sample of all: where another has written those of this interval, ours go."""
        kept, began, self._kept, self._began = self._kept, self._began, self._empty(), now
        if not len(kept):
            return
        newest = next(iter(self._whole(now)), None)
        if newest and now - newest.about.until < OTHERS_SHARE * self._rules.interval:
            return
        rules = self._rules
        capture = publish(self._folder, lambda folder: write_samples(folder, kept.rows), About(
            of=rules.of, revision=rules.revision, since=began, until=now, expires=now + rules.retention,
            samples=len(kept), file="", digest="", size_bytes=0), self._keys)
        self.newest = capture.about
        log.info("captured %d samples of %d: %s, %s", len(kept), kept.seen + kept.too_large, capture.name,
                 capture.about.digest)

    def _whole(self, now: float) -> list[Capture]:
        return whole(self._folder, self._rules.of, self._keys, now)

    def _empty(self) -> Reservoir:
        return Reservoir(self._rules.samples, self._rules.most_bytes, self._dice)

    def _fail(self, error: Exception) -> None:
        """Messages of errors may quote values, so that only their class is logged, and an ``OSError``'s own words."""
        words = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        problem = f"{type(error).__name__}{words}"
        if problem != self.failed:
            log.warning("requests cannot be captured: %s", problem)
        self.failed = problem


def write_samples(folder: Path, rows: Sequence[Row]) -> str:
    """One of the files that evaluation data may be, and its name: ``.npz`` where all samples have the same shapes, else
    ``.jsonl``, as of texts. Row by row: stacked, they would take their memory once more."""
    shapes = {tuple((name, array.shape, array.dtype.str) for name, array in sorted(row.items())) for row in rows}
    if len(shapes) > 1 or any(array.dtype.kind == "O" for array in rows[0].values()):
        with (folder / LINES).open("x", encoding="utf-8") as lines:
            for row in rows:
                lines.write(json.dumps({name: array.tolist() for name, array in row.items()}) + "\n")
        return LINES
    library = cast(Any, np.lib.format)  # it has no types
    with zipfile.ZipFile(folder / ARRAYS, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, first in rows[0].items():
            header = {"descr": library.dtype_to_descr(first.dtype), "fortran_order": False,
                      "shape": (len(rows), *first.shape)}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                library.write_array_header_1_0(file, header)
                for row in rows:
                    file.write(np.ascontiguousarray(row[name]).tobytes())
    return ARRAYS


def _rows(inputs: Tensors, *, batched: bool) -> Iterator[Row]:
    if not batched:
        yield inputs
        return
    for index in range(len(next(iter(inputs.values()), ()))):
        yield {name: array[index] for name, array in inputs.items()}


def _finite(row: Row) -> bool:
    """A sample with NaN would be refused as evaluation data, and the whole capture with it."""
    return all(bool(np.isfinite(array).all()) for array in row.values() if array.dtype.kind == "f")

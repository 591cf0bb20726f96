"""The summary and its page, written again whenever something is found: what a stopped study had found is there."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.machine import host
from scale_study.page import page

Tell = Callable[[Mapping[str, Any]], None]


class Record:
    def __init__(self, output: Path) -> None:
        self._output = output
        self._sizes: list[dict[str, Any]] = []
        self._found = {
            "recorded": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "hardware": host(),
            "sizes": self._sizes,
        }
        output.parent.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def size(self, n: int, spaces: int) -> Iterator[Tell]:
        """Gives what takes the figures of a size. Where one of them cannot be had, the size says why."""
        size: dict[str, Any] = {"n": n, "namespaces": spaces}
        self._sizes.append(size)
        with self._filling(size, size) as tell:
            yield tell

    @contextlib.contextmanager
    def beside(self) -> Iterator[Tell]:
        """The same for what another operator did at the last size."""
        other = self._sizes[-1].setdefault("kserve", {})
        with self._filling(self._sizes[-1], other) as tell:
            yield tell

    @contextlib.contextmanager
    def _filling(self, size: dict[str, Any], place: dict[str, Any]) -> Iterator[Tell]:
        def tell(part: Mapping[str, Any]) -> None:
            place.update(part)
            size["load"] = round(os.getloadavg()[0])
            self._write()

        try:
            yield tell
        except Exception as error:
            traceback.print_exc()
            tell({"unfinished": str(_innermost(error))})
        print(json.dumps(size), flush=True)

    def _write(self) -> None:
        write(self._output, self._found)


def write(output: Path, found: Mapping[str, Any]) -> None:
    """The page goes beside it."""
    output.write_text(json.dumps(found, indent=1) + "\n")
    output.with_suffix(".md").write_text(page(found))


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def joined(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The summaries of studies of one machine that ran on cores of their own."""
    sizes = sorted((size for one in found for size in one["sizes"]), key=lambda size: (size["namespaces"], size["n"]))
    return {**found[0], "sizes": sizes}

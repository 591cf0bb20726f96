"""Samples out of a page of metrics that a pod gave: only those that are asked for, at a cost that is known before.

The page is parsed in the loop that serves all objects. So its bytes, its lines, and the labels of a line are bounded;
each pattern is tried once at one place, and no part of it can match what the part before it gave up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from enginewright.clients.signals import NoSignalError

# Triton 2.51 with one model, latency summaries and histograms gives 6,757 bytes in 93 lines of at most 142 bytes. Each
# further model, version or GPU adds some 60 lines.
LARGEST_PAGE: Final = 256 << 10
MOST_LINES: Final = 4096
LONGEST_LINE: Final = 512
# Only lines that are asked for cost more than a look: some 18 for each model and version.
MOST_SAMPLES: Final = 256
MOST_LABELS: Final = 8
# No count and no sum of microseconds comes near it, and a sum of such values is still a number.
LARGEST_VALUE: Final = 1e18

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*(?:\\[\\"n][^"\\]*)*)"[ \t]*(,?)')
_END: Final = re.compile(r"[ \t]*\}")
_REST: Final = re.compile(r"[ \t]+([0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?|[nN][aA][nN])"
                          r"(?:[ \t]+-?[0-9]{1,20})?[ \t\r]*\Z")


class Sample(NamedTuple):
    """``value`` is finite and not negative."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(page: bytes, wanted: Collection[str]) -> Iterator[Sample]:
    """Of the metrics ``wanted``, without values that are not a number. Raises :class:`NoSignalError` for a page that is
    larger than an honest one, and for a line that is no sample."""
    if len(page) > LARGEST_PAGE or page.count(b"\n") > MOST_LINES:
        raise NoSignalError(f"the page of metrics has more than {LARGEST_PAGE} bytes or {MOST_LINES} lines")
    begins, count = tuple(wanted), 0
    for line in page.decode("utf-8", "replace").split("\n"):
        if not line.startswith(begins) or (name := _NAME.match(line)) is None or name[0] not in wanted:
            continue
        count += 1
        if count > MOST_SAMPLES or len(line) > LONGEST_LINE:
            raise NoSignalError(f"the page of metrics has more than {MOST_SAMPLES} lines of those that are read, or "
                                f"one of more than {LONGEST_LINE} characters")
        labels, at = _labels(line, name.end())
        rest = _REST.match(line, at)
        if rest is None or (value := float(rest[1])) > LARGEST_VALUE:
            raise NoSignalError(f"the page of metrics has a line of {name[0]} that is not a sample with a finite value "
                                f"of 0 or more and at most {MOST_LABELS} labels")
        if not math.isnan(value):
            yield Sample(name[0], labels, value)


def _labels(line: str, at: int) -> tuple[dict[str, str], int]:
    """Those that begin at ``at``, and where they end: at the line's end where they are too many or no labels."""
    labels: dict[str, str] = {}
    if not line.startswith("{", at):
        return labels, at
    at += 1
    for _ in range(MOST_LABELS):
        if (label := _LABEL.match(line, at)) is None:
            break
        labels[label[1]] = _unescaped(label[2]) if "\\" in label[2] else label[2]
        at = label.end()
        if not label[3]:
            break
    end = _END.match(line, at)
    return labels, end.end() if end else len(line)


def _unescaped(value: str) -> str:
    """Two backslashes first, so that the second does not begin an escape of its own."""
    return "\\".join(part.replace('\\"', '"').replace("\\n", "\n") for part in value.split("\\\\"))

"""Samples out of a page of metrics that a pod gave: only those that are asked for, at a cost that is known before.

The page is parsed in the loop that serves all objects. So its bytes, its lines, and the labels of a line are bounded;
each pattern is tried once at one place, and no part of it can match what the part before it gave up. Pages have the
series of the pages before with other values, so that what stands before a value is not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
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
# Series that are remembered, of all replicas: some 18 of one that serves one model. One takes a kilobyte or two.
REMEMBERED: Final = 1 << 15

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
        if not line.startswith(begins):
            continue
        end = line.rfind("}") + 1
        name, labels = _series(line[:end]) if 0 < end <= LONGEST_LINE else _name(line)
        if name not in wanted:
            continue
        count += 1
        if count > MOST_SAMPLES or len(line) > LONGEST_LINE:
            raise NoSignalError(f"the page of metrics has more than {MOST_SAMPLES} lines of those that are read, or "
                                f"one of more than {LONGEST_LINE} characters")
        rest = _REST.match(line, end or len(name))
        if labels is None or rest is None or (value := float(rest[1])) > LARGEST_VALUE:
            raise NoSignalError(f"the page of metrics has a line of {name} that is not a sample with a finite value of "
                                f"0 or more and at most {MOST_LABELS} labels")
        if value == value:  # NaN is not
            yield Sample(name, labels, value)


def _name(line: str) -> tuple[str, Mapping[str, str]]:
    """Of a line without labels, or of one that is too long. The line begins with a name that the caller wants."""
    name = _NAME.match(line)
    return name[0] if name else "", {}


@lru_cache(REMEMBERED)
def _series(text: str) -> tuple[str, Mapping[str, str] | None]:
    """Name and labels; without labels where they are too many or no labels."""
    name = _NAME.match(text)
    if name is None or not text.startswith("{", name.end()):
        return name[0] if name else "", None
    labels, at = {}, name.end() + 1
    for _ in range(MOST_LABELS):
        if (label := _LABEL.match(text, at)) is None:
            break
        labels[label[1]] = _unescaped(label[2]) if "\\" in label[2] else label[2]
        at = label.end()
        if not label[3]:
            break
    return name[0], labels if _END.fullmatch(text, at) else None


def _unescaped(value: str) -> str:
    """Two backslashes first, so that the second does not begin an escape of its own."""
    return "\\".join(part.replace('\\"', '"').replace("\\n", "\n") for part in value.split("\\\\"))

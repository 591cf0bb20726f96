"""Pages of a list that are as they were when they were last compared with memory, so that they are not parsed again.

A quiet cluster gives the same bytes each time. What a comparison costs is then to read them: of ten thousand models,
parsing seventy thousand objects takes longer than all else that an idle operator does.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from enginewright.observe.fields import Raw, name_of, section, uid_of


@dataclass(frozen=True, slots=True)
class _Page:
    """``content`` is a digest of its bytes, ``lines`` one of the lines of its ``count`` objects."""

    content: bytes
    lines: bytes
    count: int


@dataclass
class Pages:
    """Of one list. A comparison begins with the lines of what is remembered, and ends with those of the objects on
    pages that were not parsed: each of them is remembered as its page has it."""

    _pages: list[_Page] = field(default_factory=list)
    _remembered: Sequence[str] = ()
    _reached: int = 0
    _spared: list[str] = field(default_factory=list)

    def begin(self, remembered: Iterable[str]) -> None:
        self._remembered = sorted(remembered)

    def end(self) -> list[str]:
        spared, self._spared, self._remembered = self._spared, [], ()
        return spared

    def as_before(self, number: int, content: bytes) -> bool:
        """Whether the page need not be parsed: its bytes are those of the last time, and what is remembered are the
        objects and versions that were on it then."""
        if number == 0:
            self._spared, self._reached = [], 0
        if number >= len(self._pages) or (page := self._pages[number]).content != content:
            return False
        lines = self._remembered[self._reached:self._reached + page.count]
        if len(lines) != page.count or _digest(lines) != page.lines:
            return False
        self._spared += lines
        self._reached += page.count
        return True

    def parsed(self, number: int, content: bytes, items: Sequence[Raw]) -> None:
        lines = [line(str(section(raw, "metadata").get("namespace") or ""), name_of(raw), uid_of(raw),
                      str(section(raw, "metadata").get("resourceVersion") or "")) for raw in items]
        page = _Page(content, _digest(lines), len(lines))
        self._pages[number:number + 1] = [page]
        if lines:
            self._reached = bisect_right(self._remembered, f"{place_of(lines[-1])} \x7f")


def line(namespace: str, name: str, uid: str, version: str) -> str:
    """What is compared of an object. Lines are in the order in which the apiserver lists: that of its keys in etcd."""
    return f"{namespace}/{name} {uid} {version}"


def place_of(one: str) -> str:
    """The namespace and the name, as the line has them."""
    return one.partition(" ")[0]


def _digest(lines: Iterable[str]) -> bytes:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()

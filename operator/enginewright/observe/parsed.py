"""What ConfigMaps that others may write say: each version of each of them is parsed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from enginewright.observe.fields import Raw, section, uid_of

# Of the texts of what is remembered: what was parsed of them takes up to ten times as much.
BYTES: Final = 4 << 20
# That one of them counts for beside its text.
ENTRY: Final = 1 << 10
T = TypeVar("T")


class Parsed(Generic[T]):
    """``read`` gives None for what it does not understand. That is remembered, too, and ``refused`` gets it the first
    time. An object with one uid and resourceVersion never changes; what was used last is remembered, up to ``most``
    bytes of text."""

    def __init__(self, read: Callable[[Raw], T | None], refused: Callable[[Raw], None], most: int = BYTES) -> None:
        self._read = read
        self._refused = refused
        self._most = most
        self._held = 0
        self._known: OrderedDict[tuple[str, str], tuple[T | None, int]] = OrderedDict()

    def recall(self, uid: str, version: str) -> tuple[T | None] | None:
        """What that version was parsed to; None where it is not remembered."""
        if (uid, version) not in self._known:
            return None
        self._known.move_to_end((uid, version))
        return (self._known[uid, version][0],)

    def of(self, raw: Raw) -> T | None:
        key = uid_of(raw), str(section(raw, "metadata").get("resourceVersion") or "")
        if (known := self.recall(*key)) is not None:
            return known[0]
        read, size = self._read(raw), ENTRY
        if read is None:
            self._refused(raw)
        else:
            size += sum(map(len, section(raw, "data").values()))
        self._known[key] = read, size
        self._held += size
        while self._held > self._most:
            self._held -= self._known.popitem(last=False)[1][1]
        return read

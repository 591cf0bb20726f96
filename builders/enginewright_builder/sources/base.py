"""The one interface behind which every kind of source stands.

A new scheme (object store, model hub) is a new module with a :class:`Fetcher` that is named in ``sources/fetching.py``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from enginewright_builder.errors import UserError

# Bytes read or written at once, here and when hashing.
CHUNK_BYTES = 4 << 20
# Larger than any single-device model; stops a stream that never ends before it fills the node's disk.
DEFAULT_SIZE_LIMIT = 200 << 30
_MOST_NAMES = 8


def _silent(fraction: float, detail: str) -> None:
    """Discards progress."""


def _trusting(path: Path) -> None:
    """Checks nothing."""


@dataclass(frozen=True, kw_only=True)
class FetchContext:
    """``mounts`` maps volume claims to folders. ``scratch`` may be written to. ``field`` names the spec field that
    holds the URI, for messages. ``digest`` is what the user stated, empty if nothing. ``check`` raises where what was
    fetched is not to be opened."""

    mounts: Mapping[str, str]
    scratch: Path
    field: str = "spec.source.uri"
    digest: str = ""
    size_limit: int = DEFAULT_SIZE_LIMIT
    progress: Callable[[float, str], None] = _silent
    check: Callable[[Path], None] = _trusting


def unreadable(uri: str, error: PermissionError, context: FetchContext) -> UserError:
    """``SourceNotFound`` for what is there and may not be read, a file of a folder as well."""
    file = f": {error.filename}" if error.filename else ""
    return UserError("SourceNotFound", f"{uri!r} may not be read: {error.strerror}{file}", field=context.field,
                     value=uri, remedy=f"let user {os.getuid()}, as which the builder runs, read it, for example with "
                                       "chmod -R a+rX")


@dataclass(frozen=True)
class Blob:
    """Of a registry. ``size`` is in bytes, and what the manifest says that it is."""

    digest: str
    size: int


def listed(names: Iterable[str], wanted: str) -> str:
    """A few of ``names`` for a message, those first that ``wanted`` may be a slip of; empty where there are none."""
    found = sorted(names)
    alike = difflib.get_close_matches(wanted, found)
    first = [*alike, *(name for name in found if name not in alike)][:_MOST_NAMES]
    return ", ".join(first) + (", …" if len(found) > len(first) else "")


class Fetcher(Protocol):
    """Makes what a URI names readable as a local file or folder."""

    @property
    def schemes(self) -> tuple[str, ...]: ...

    def fetch(self, uri: str, context: FetchContext) -> Path:
        """Raises :class:`UserError` ``SourceNotFound``, ``SourceUriInvalid`` or ``SourceTooLarge``, and
        :class:`TransientError` when trying again may help."""
        ...

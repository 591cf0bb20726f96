"""Files out of the layers of an artifact or image, as one folder.

Archives are untrusted. What they hold is kept under numbers first, and gets its names at the end, when all of them
are known and checked: whatever an archive says, nothing is written outside the folder, and no link is ever made that
something could be written through. ``tarfile``'s own extraction makes links, which is how its filters were escaped.
"""

from __future__ import annotations

import gzip
import os
import posixpath
import tarfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from backports import zstd

from enginewright_builder.errors import UserError
from enginewright_builder.foreign_names import check_length, check_names
from enginewright_builder.sources.base import CHUNK_BYTES, FetchContext
from enginewright_builder.sources.remote import MOST_FILES

# Of one archive: with the operating system that an image may bring beside the model.
MOST_MEMBERS = 2_000_000
MOST_LINKS = 40
# Characters of all names and links that are remembered until the end.
MOST_NAMES = 64 << 20
# In bytes: a name and a link of the longest, and attributes.
LONGEST_HEADER = 64 << 10
# That hold for all entries after them, and are kept as long.
MOST_ATTRIBUTES = 100
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# What a frame may ask for of memory, as logarithm: 128 MiB, the most that zstd itself takes without `--long`.
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
# How an image's layer says that something of those below it is gone: one entry, or all that is in a folder.
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True)
class _Link:
    """``target`` is a path from the folder's top."""

    target: str


@dataclass
class _Changes:
    """What one layer says. ``gone`` and ``emptied`` are of the layers below it alone, wherever in it they stand."""

    entries: dict[str, Path | _Link] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)

    def hide(self) -> Callable[[str], bool]:
        """Whether an entry of a lower layer is there no more."""
        names = sorted(self.entries)

        def holds(folder: str) -> bool:
            after = bisect_left(names, f"{folder}/")
            return after < len(names) and names[after].startswith(f"{folder}/")

        def hidden(name: str) -> bool:
            above = parents(name)
            return (name in self.entries or name in self.folders or holds(name)
                    or not self.gone.isdisjoint((name, *above)) or not self.emptied.isdisjoint(("", *above))
                    or any(one in self.entries for one in above))

        return hidden


class Layers:
    """What of some layers lies at ``wanted`` or below it, everything if that is empty. ``tops`` are the names at the
    top of all of them, for a hint."""

    def __init__(self, pool: Path, wanted: str, uri: str, context: FetchContext) -> None:
        self.tops: set[str] = set()
        self._pool, self._wanted, self._uri, self._context = pool, wanted, uri, context
        self._entries: dict[str, Path | _Link] = {}
        self._kept = self._bytes = self._names = 0

    @property
    def names(self) -> list[str]:
        return sorted(self._entries)

    def add_file(self, name: str, blob: Path) -> None:
        """A layer that is a file."""
        self._progress(name)
        if is_at(name, self._wanted):
            self._entries[name] = self._take(blob)

    def add_archive(self, blob: Path, *, changes: bool) -> None:
        """A layer that is an archive; with ``changes`` to those below it, as an image's are."""
        layer = _Changes()
        with self._users_errors(), _opened(blob, self._context.size_limit, self._limited) as archive:
            for member in _members(archive):
                self._add(member, archive, layer, changes)
        hidden = layer.hide()
        for name in [name for name in self._entries if hidden(name)]:
            self._drop(self._entries.pop(name))
        self._entries.update(layer.entries)

    def lay_out(self, root: Path) -> None:
        """Gives everything its name below ``root``. Links are what they lead to."""
        with self._users_errors():
            check_names(self._entries)
            found = {name: self._followed(name) for name in self._entries}
        for name, file in found.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).unlink(missing_ok=True)
            os.link(file, root / name)

    def _add(self, member: tarfile.TarInfo, archive: tarfile.TarFile, layer: _Changes, changes: bool) -> None:
        name = _checked(member.name, absolute=changes)
        folder, _, last = name.rpartition("/")
        if changes and last.startswith(_WHITEOUT):
            self._remember(name)
            if last == _OPAQUE:
                layer.emptied.add(folder)
            else:
                layer.gone.add(posixpath.join(folder, last.removeprefix(_WHITEOUT)))
            return
        self._progress(name)
        # A link on the way to the file would have to be followed: it is reported where nothing else is found.
        if not name or not (is_at(name, self._wanted) or (member.issym() and is_at(self._wanted, name))):
            return
        (name + member.linkname).encode()  # raises where it is no text
        check_length(member.linkname)
        self._remember(name + member.linkname)
        if member.isdir():
            layer.folders.add(name)
            return
        entry = self._entry(member, name, archive, layer)
        if (before := layer.entries.get(name)) is not None:
            self._drop(before)
        layer.entries[name] = entry

    def _entry(self, member: tarfile.TarInfo, name: str, archive: tarfile.TarFile, layer: _Changes) -> Path | _Link:
        if member.issym():
            return _Link(_target(member.linkname, posixpath.dirname(name)))
        if member.islnk():
            linked = _checked(member.linkname, absolute=True)
            entry = layer.entries.get(linked, self._entries.get(linked))
            if entry is None:
                raise ValueError(f"{name} is a link to {linked}, which is not a file of the folder")
            return entry if isinstance(entry, _Link) else self._linked(entry)
        if not member.isreg() or member.issparse():
            raise ValueError(f"{name} is no file, folder or link")
        return self._write(member, archive)

    def _write(self, member: tarfile.TarInfo, archive: tarfile.TarFile) -> Path:
        self._bytes += member.size
        if member.size < 0 or self._bytes > self._context.size_limit:
            raise self._limited()
        target = self._next()
        source: Any = archive.fileobj
        source.seek(member.offset_data)
        left = member.size
        with target.open("wb") as file:
            while left:
                chunk = source.content(min(left, CHUNK_BYTES))
                if not chunk:
                    raise tarfile.ReadError(f"{member.name} is cut off")
                file.write(chunk)
                left -= len(chunk)
        return target

    def _followed(self, name: str) -> Path:
        entry, target = self._entries[name], name
        for _ in range(MOST_LINKS):
            if isinstance(entry, Path):
                return entry
            target = entry.target
            if target not in self._entries:
                break
            entry = self._entries[target]
        raise ValueError(f"{name} is a link to {target}, which is not a file of the folder")

    def _remember(self, name: str) -> None:
        self._names += len(name)
        if self._names > MOST_NAMES:
            raise self._too_large(f"names of more than {MOST_NAMES:,} characters")

    def _next(self) -> Path:
        self._kept += 1
        if self._kept > MOST_FILES:
            raise self._too_large(f"more than {MOST_FILES:,} files")
        return self._pool / str(self._kept)

    def _take(self, blob: Path) -> Path:
        target = self._next()
        os.replace(blob, target)
        return target

    def _linked(self, file: Path) -> Path:
        target = self._next()
        os.link(file, target)
        return target

    def _drop(self, entry: Path | _Link) -> None:
        if isinstance(entry, Path):
            entry.unlink()

    def _progress(self, name: str) -> None:
        if len(self.tops) < 1000:
            self.tops.add(name.partition("/")[0].encode(errors="replace").decode())

    def _limited(self) -> UserError:
        return self._too_large(f"more than {self._context.size_limit:,} bytes, unpacked")

    def _too_large(self, what: str) -> UserError:
        return UserError("SourceTooLarge", f"{self._uri} has {what}", field=self._context.field, value=self._uri,
                         remedy="name a smaller one")

    @contextmanager
    def _users_errors(self) -> Iterator[None]:
        try:
            yield
        # RecursionError: extended headers for extended headers.
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError, RecursionError) as error:
            raise UserError("SourceCorrupt", f"{self._uri} has a layer that is no whole archive: {error}",
                            field=self._context.field, value=self._uri, remedy="push it again") from error
        except ValueError as error:
            raise UserError("SourceUriInvalid", f"{self._uri}: {error}", field=self._context.field, value=self._uri,
                            remedy="push it again with plain files and folders, links replaced by what they lead to "
                                   "(cp -rL)") from error


def is_at(name: str, place: str) -> bool:
    return not place or name == place or name.startswith(f"{place}/")


def parents(name: str) -> Sequence[str]:
    """Of ``a/b/c``: ``a`` and ``a/b``."""
    parts = name.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts))]


def _checked(name: str, *, absolute: bool) -> str:
    """A member's name without what says nothing. In an image ``/`` is the image's own. Raises ``ValueError``."""
    check_length(name)
    if ".." in name.split("/") or "\0" in name or (name.startswith("/") and not absolute):
        raise ValueError(f"{name[:200]!r} leads out of its folder")
    return "/".join(part for part in PurePosixPath(name).parts if part != "/")


def _target(link: str, folder: str) -> str:
    """Where a symbolic link in ``folder`` leads, from the top. Raises ``ValueError`` where that is outside."""
    if not link.startswith("/"):
        link = posixpath.join(folder, link)
        if posixpath.normpath(link).startswith(".."):
            raise ValueError(f"a link to {link[:200]!r} leads out of its folder")
    return posixpath.normpath(link).lstrip("/")


@contextmanager
def _opened(blob: Path, limit: int, limited: Callable[[], UserError]) -> Iterator[tarfile.TarFile]:
    with blob.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        forward: Any = _Forward(_unpacked(file, magic), limit, limited)
        with tarfile.TarFile(fileobj=forward, mode="r") as archive:
            yield archive


def _unpacked(file: BinaryIO, magic: bytes) -> Any:
    if magic[:2] == _GZIP:
        return gzip.GzipFile(fileobj=file)
    return zstd.ZstdFile(file, options=_ZSTD_OPTIONS) if magic == _ZSTD else file


def _members(archive: Any) -> Iterator[tarfile.TarInfo]:
    for _ in range(MOST_MEMBERS):
        member = archive.next()
        if member is None:
            return
        archive.members.clear()  # which it keeps for readers that go back
        if len(archive.pax_headers) > MOST_ATTRIBUTES:
            raise tarfile.ReadError(f"more than {MOST_ATTRIBUTES} attributes of all entries")
        yield member
    raise tarfile.ReadError(f"more than {MOST_MEMBERS:,} entries")


class _Forward:
    """What an archive is read from: once, forwards, up to ``limit`` bytes, for more of which ``limited`` is raised.
    :meth:`read` is for headers alone, which :mod:`tarfile` holds in memory as long as they say that they are."""

    def __init__(self, source: Any, limit: int, limited: Callable[[], UserError]) -> None:
        self._source, self._limit, self._limited, self._at = source, limit, limited, 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        if not 0 <= size <= LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self.content(size)

    def content(self, size: int) -> bytes:
        data: bytes = self._source.read(size)
        self._at += len(data)
        # An archive has headers and padding beside its files.
        if self._at > 2 * self._limit + CHUNK_BYTES:
            raise self._limited()
        return data

    def seek(self, position: int) -> int:
        if position < self._at:
            raise tarfile.ReadError("a file that begins before its header")
        while self._at < position and self.content(min(position - self._at, CHUNK_BYTES)):
            pass
        return self._at

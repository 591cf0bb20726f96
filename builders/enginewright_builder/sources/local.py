"""Sources on file systems: ``pvc://CLAIM/path`` through the pod's mounts, ``file:///path``, and plain paths."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext, listed, unreadable


class PlainPathFetcher:
    """A path as typed on a command line; relative ones count from the working directory."""

    schemes = ("",)

    def fetch(self, uri: str, context: FetchContext) -> Path:
        return _existing(Path(uri).expanduser().resolve(), uri, context)


class FileFetcher:
    schemes = ("file",)

    def fetch(self, uri: str, context: FetchContext) -> Path:
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            raise UserError("SourceUriInvalid", f"{uri!r} names the host {parts.netloc!r}", field=context.field,
                            value=uri,
                            remedy="write file:///absolute/path with three slashes")
        path = Path(unquote(parts.path))
        if ".." in path.parts or "\0" in str(path):
            raise _escape(uri, context)
        return _existing(path.resolve(), uri, context)


class VolumeFetcher:
    """``pvc://CLAIM/path``: nothing outside the claim's mount is ever read, whatever ``..`` or links say."""

    schemes = ("pvc",)

    def fetch(self, uri: str, context: FetchContext) -> Path:
        parts = urlsplit(uri)
        if not parts.netloc:
            raise UserError("SourceUriInvalid", f"{uri!r} names no claim", field=context.field, value=uri,
                            remedy="write pvc://CLAIM/path/inside/the/volume")
        mount = context.mounts.get(parts.netloc)
        if mount is None:
            known = ", ".join(sorted(context.mounts)) or "none"
            raise UserError("SourceNotFound", f"volume claim {parts.netloc!r} is not mounted here (mounted: {known})",
                            field=context.field, value=uri, remedy="name a PersistentVolumeClaim of this namespace")
        relative = PurePosixPath(unquote(parts.path).lstrip("/"))
        if ".." in relative.parts or "\0" in str(relative):
            raise _escape(uri, context)
        root = Path(mount).resolve()
        path = (root / relative).resolve()
        if not path.is_relative_to(root):
            raise _escape(uri, context)
        return _existing(path, uri, context)


def _escape(uri: str, context: FetchContext) -> UserError:
    return UserError("SourceUriInvalid", f"{uri!r} leads out of its volume", field=context.field, value=uri,
                     remedy="write a path without '..' and without links that leave the volume")


def _existing(path: Path, uri: str, context: FetchContext) -> Path:
    try:
        if path.exists():
            return path
        parent = path.parent
        nearby = listed((entry.name for entry in parent.iterdir()), path.name) if parent.is_dir() else ""
    except PermissionError as error:
        raise unreadable(uri, error, context) from error
    hint = f"; beside it are {nearby}" if nearby else ""
    raise UserError("SourceNotFound", f"there is nothing at {uri!r}{hint}", field=context.field, value=uri,
                    remedy="name a file or folder that exists")

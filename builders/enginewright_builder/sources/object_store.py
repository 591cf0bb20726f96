"""Sources in object stores: ``s3://BUCKET/key`` and ``gs://BUCKET/key``, one object or all below a prefix.

The environment says who may read, and where the store is (:mod:`enginewright_builder.objectstore.client`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from enginewright_builder.errors import TransientError, UserError, brief
from enginewright_builder.foreign_names import check_names
from enginewright_builder.objectstore.client import ENDPOINTS, PART_BYTES, UnusableError, answer, connect
from enginewright_builder.sources.base import FetchContext, listed
from enginewright_builder.sources.remote import (
    MOST_FILES,
    bad_credentials,
    check_address,
    denied,
    tidy_environment,
)

_INVALID_NAME = re.compile(r"[Ii]nvalid path|parsing Path")
_REMEDY = ("name a Secret with credentials in spec.source.secretRef, or a ServiceAccount that may read it in "
           "spec.source.serviceAccountName")


@dataclass(frozen=True)
class _Object:
    key: str
    size: int
    etag: str | None


class ObjectStoreFetcher:
    schemes = ("s3", "gs")

    def fetch(self, uri: str, context: FetchContext) -> Path:
        with _users_errors(uri, context):
            parts = urlsplit(uri)
            bucket, key = parts.netloc, unquote(parts.path).strip("/")
            if not bucket or parts.query or parts.fragment:
                raise UserError("SourceUriInvalid", f"{uri!r} is no bucket and key", field=context.field, value=uri,
                                remedy=f"write {parts.scheme}://BUCKET/path, with ? and # as %3F and %23")
            store = _open(parts.scheme, bucket)
            found = _find(store, key, context)
            if not found:
                raise _nothing(store, key, uri, context)
            return _download(store, found, key, context, target=context.scratch / (PurePosixPath(key).name or bucket))


def _open(scheme: str, bucket: str) -> Any:
    """Asks nothing of the store yet: what fails is what the environment says. Raises :class:`UserError`
    ``CredentialsInvalid``."""
    tidy_environment()
    for name in ENDPOINTS:
        check_address(name)
    try:
        return connect(scheme, bucket)
    except UnusableError as error:
        raise bad_credentials(str(error), error.remedy) from error


def _find(store: Any, key: str, context: FetchContext) -> list[_Object]:
    """The object of that name, or all below it. Reads no more of a listing than may be downloaded."""
    import obstore

    if key:
        try:
            return [_object(obstore.head(store, key))]
        except FileNotFoundError:
            pass
    found, total = list[_Object](), 0
    for chunk in obstore.list(store, prefix=key or None):
        for entry in map(_object, chunk):
            found.append(entry)
            total += entry.size
        if total > context.size_limit or len(found) > MOST_FILES:
            raise UserError("SourceTooLarge", f"there are more than {MOST_FILES:,} objects or {context.size_limit:,} "
                            f"bytes below {key!r}", field=context.field, value=key,
                            remedy="name the model's own folder")
    return _without_markers(found, key)


def _without_markers(found: Sequence[_Object], key: str) -> list[_Object]:
    """Consoles make an empty object for a folder, whose final slash the client takes away."""
    folders = {str(folder) for entry in found for folder in PurePosixPath(entry.key).parents} | {key}
    return [entry for entry in found if entry.size or entry.key not in folders]


def _object(meta: Any) -> _Object:
    return _Object(key=meta["path"], size=int(meta["size"]), etag=meta.get("e_tag"))


def _nothing(store: Any, key: str, uri: str, context: FetchContext) -> UserError:
    import obstore

    parent, _, wanted = key.rpartition("/")
    nearby = obstore.list_with_delimiter(store, prefix=parent or None)
    paths = [*nearby["common_prefixes"], *(entry["path"] for entry in nearby["objects"])]
    names = listed((PurePosixPath(path).name for path in paths), wanted)
    hint = f"; beside it are {names}" if names else ""
    return UserError("SourceNotFound", f"there is nothing at {uri!r}{hint}", field=context.field, value=uri,
                     remedy="name an object, or a prefix below which objects are")


def _download(store: Any, found: Sequence[_Object], key: str, context: FetchContext, *, target: Path) -> Path:
    total = sum(entry.size for entry in found)
    if total > context.size_limit:
        raise UserError("SourceTooLarge", f"{key} has {total:,} bytes, more than {context.size_limit:,}",
                        field=context.field, value=key, remedy="name a smaller one")
    received = 0

    def read(size: int) -> None:
        nonlocal received
        received += size
        context.progress(received / max(total, 1), f"{received >> 20} of {total >> 20} MiB")

    check_names(_below(entry.key, key) for entry in found)
    context.scratch.mkdir(parents=True, exist_ok=True)
    if [entry.key for entry in found] == [key]:
        _save(store, found[0], target, read)
        return target
    for entry in found:
        _save(store, entry, target / _below(entry.key, key), read)
    return target


def _below(name: str, prefix: str) -> str:
    """Where an object lies in the folder that is made of the prefix."""
    if name == prefix:
        return PurePosixPath(name).name
    return name.removeprefix(f"{prefix}/") if prefix else name


def _save(store: Any, entry: _Object, target: Path, read: Callable[[int], None]) -> None:
    """To a temporary name, so that half an object is never taken for a whole one."""
    import obstore

    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.part")
    try:
        with partial.open("wb") as file:
            for start in range(0, entry.size, PART_BYTES):
                # Parts of two versions of an object make neither.
                options: Any = {"range": (start, min(start + PART_BYTES, entry.size)), "if_match": entry.etag}
                part = obstore.get(store, entry.key, options=options).bytes()
                file.write(part)
                read(len(part))
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _users_errors(uri: str, context: FetchContext) -> Iterator[None]:
    """What the store answers, as the builder's errors."""
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except PreconditionError as error:
        raise TransientError("SourceUnreachable", f"{uri}: an object was written while it was read",
                             field=context.field, value=uri) from error
    except ValueError as error:
        raise _bad_name(uri, error, context) from error
    except FileNotFoundError as error:
        raise UserError("SourceNotFound", f"{uri}: {brief(error)}", field=context.field, value=uri,
                        remedy="name a bucket and an object that exist") from error
    except BaseError as error:
        raise _refused(uri, error, context) from error


def _bad_name(uri: str, error: Exception, context: FetchContext) -> UserError:
    return UserError("SourceUriInvalid", f"{uri!r}: {brief(error)}", field=context.field, value=uri,
                     remedy="use keys without '..', '.' and empty parts")


def _refused(uri: str, error: Exception, context: FetchContext) -> UserError | TransientError:
    kind, reason = answer(error)
    if kind == "denied":
        return denied(uri, f"may not be read: {reason}", context, _REMEDY)
    if kind == "missing":
        return UserError("SourceNotFound", f"{uri}: {reason}", field=context.field, value=uri,
                         remedy="name a bucket and an object that exist")
    if _INVALID_NAME.search(str(error)):
        return _bad_name(uri, error, context)
    return TransientError("SourceUnreachable", f"{uri}: {brief(error)}", field=context.field, value=uri,
                          remedy="check that the object store can be reached from the cluster"
                                 + (", and its address and region (AWS_ENDPOINT_URL, AWS_REGION)"
                                    if uri.startswith("s3:") else ""))

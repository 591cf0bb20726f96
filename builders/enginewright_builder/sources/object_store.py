"""Sources in object stores: ``s3://BUCKET/key`` and ``gs://BUCKET/key``, one object or all below a prefix.

Who may read, and where the store is, the environment says in the names that the clouds' own tools use
(``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``GOOGLE_SERVICE_ACCOUNT_KEY``, …), or the pod's workload
identity: https://developmentseed.org/obstore/latest/authentication/.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.sources.base import FetchContext

# Read with one request each: a connection that breaks costs no more than this.
PART_BYTES = 32 << 20
_CLIENT = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "300s"}
_RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
# The service of the machine's own identity: it is asked where no other credentials are given.
_IDENTITY_SERVICES = ("169.254.169.254", "metadata.google.internal")


@dataclass(frozen=True)
class _Object:
    key: str
    size: int
    etag: str | None


class ObjectStoreFetcher:
    schemes = ("s3", "gs")

    def fetch(self, uri: str, context: FetchContext) -> Path:
        parts = urlsplit(uri)
        bucket, key = parts.netloc, unquote(parts.path).strip("/")
        if not bucket or parts.query or parts.fragment:
            raise UserError("SourceUriInvalid", f"{uri!r} is no bucket and key", field=context.field, value=uri,
                            remedy=f"write {parts.scheme}://BUCKET/path, with ? and # as %3F and %23")
        with _told(uri, context):
            store = _open(parts.scheme, bucket)
            found = _find(store, key)
            if not found:
                raise _nothing(store, key, uri, context)
            return _download(store, found, key, context, target=context.scratch / (PurePosixPath(key).name or bucket))


def _open(scheme: str, bucket: str) -> Any:
    from obstore.store import GCSStore, S3Store  # only where somebody asks

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    # Whoever names an address without encryption has it so: stores inside a cluster often have none. That of gs:// is
    # Google's, or stands in the credentials.
    options: Any = {**_CLIENT, "allow_http": scheme == "gs" or endpoint.startswith("http://")}
    return (GCSStore if scheme == "gs" else S3Store)(bucket, client_options=options, retry_config=_RETRY)


def _find(store: Any, key: str) -> list[_Object]:
    """The object of that name, or all below it."""
    import obstore

    if key:
        try:
            return [_object(obstore.head(store, key))]
        except FileNotFoundError:
            pass
    listed = (_object(entry) for chunk in obstore.list(store, prefix=key or None) for entry in chunk)
    return [entry for entry in listed if not entry.key.endswith("/")]


def _object(meta: Any) -> _Object:
    return _Object(key=meta["path"], size=int(meta["size"]), etag=meta.get("e_tag"))


def _nothing(store: Any, key: str, uri: str, context: FetchContext) -> UserError:
    import obstore

    parent = key.rpartition("/")[0]
    nearby = obstore.list_with_delimiter(store, prefix=parent or None)
    names = sorted([*nearby["common_prefixes"], *(entry["path"] for entry in nearby["objects"])])[:8]
    hint = f"; beside it are {', '.join(PurePosixPath(name).name for name in names)}" if names else ""
    return UserError("SourceNotFound", f"there is nothing at {uri!r}{hint}", field=context.field, value=uri,
                     remedy="name an object, or a prefix below which objects are")


def _download(store: Any, found: Sequence[_Object], key: str, context: FetchContext, *, target: Path) -> Path:
    total = sum(entry.size for entry in found)
    if total > context.size_limit:
        raise UserError("SourceTooLarge", f"{len(found)} objects have {total} bytes, more than {context.size_limit}",
                        field=context.field, value=key, remedy="name the model's own folder")
    received = 0

    def read(size: int) -> None:
        nonlocal received
        received += size
        context.progress(received / max(total, 1), f"{received >> 20} of {total >> 20} MiB")

    _check_names(found, key)
    context.scratch.mkdir(parents=True, exist_ok=True)
    if [entry.key for entry in found] == [key]:
        _save(store, found[0], target, read)
        return target
    for entry in found:
        _save(store, entry, target / _below(entry.key, key), read)
    return target


def _check_names(found: Sequence[_Object], prefix: str) -> None:
    """Keys are any text, and not all make a folder. Raises ``ValueError``."""
    names = {_below(entry.key, prefix) for entry in found}
    for name in names:
        if clash := next((folder for folder in name.parents if folder in names), None):
            raise ValueError(f"{clash} is both an object and a folder")


def _below(name: str, prefix: str) -> PurePosixPath:
    """Where an object lies in the folder; keys are any text, and none may lead out of it."""
    relative = PurePosixPath(name.removeprefix(f"{prefix}/") if prefix else name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ValueError(f"key {name!r} leads out of its folder")
    return relative


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
def _told(uri: str, context: FetchContext) -> Iterator[None]:
    """What the store answers, as the builder's errors."""
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except PreconditionError as error:
        raise TransientError("SourceUnreachable", f"{uri}: an object was written while it was read",
                             field=context.field, value=uri) from error
    except ValueError as error:
        raise UserError("SourceUriInvalid", f"{uri!r}: {_brief(error)}", field=context.field, value=uri,
                        remedy="use keys without '..', '.' and empty parts") from error
    except FileNotFoundError as error:
        raise UserError("SourceNotFound", f"{uri}: {_brief(error)}", field=context.field, value=uri,
                        remedy="name a bucket and an object that exist") from error
    except BaseError as error:
        raise _refused(uri, error, context) from error


def _refused(uri: str, error: Exception, context: FetchContext) -> UserError | TransientError:
    said = str(error)
    status, code = (match[1] if match else "" for match in (_STATUS.search(said), _CODE.search(said)))
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
        alone = any(service in said for service in _IDENTITY_SERVICES)
        why = "no credentials are given, and the node's identity has none" if alone else code or f"HTTP {status}"
        return UserError("SourceAccessDenied", f"{uri} may not be read: {why}", field=context.field, value=uri,
                         remedy="name a Secret with credentials in spec.source.credentialsFrom, or a ServiceAccount "
                                "that may read it in spec.source.serviceAccountName")
    if status == "404":
        return UserError("SourceNotFound", f"{uri}: {code or 'HTTP 404'}", field=context.field, value=uri,
                         remedy="name a bucket and an object that exist")
    return TransientError("SourceUnreachable", f"{uri}: {_brief(error)}", field=context.field, value=uri,
                          remedy="check that the object store can be reached from the cluster, and its address and "
                                 "region (AWS_ENDPOINT_URL, AWS_REGION)")


def _brief(error: Exception) -> str:
    """Without the client's own data structures, which follow an empty line."""
    return " ".join(str(error).partition("\n\n")[0].split())[:300]

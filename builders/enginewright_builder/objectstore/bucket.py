"""A bucket of an engine store: few calls, and what it answers as the builder's errors.

Credentials are environment variables in the names of the clouds' own tools behind the prefix ``ENGINEWRIGHT_STORE_``,
or the pod's workload identity. Those of the source, which have the same names without the prefix, are another's: they
are never used here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from enginewright_builder.contract import STORE_VARIABLES
from enginewright_builder.errors import BuilderError, TransientError, UserError, brief
from enginewright_builder.objectstore.client import ENDPOINTS, PART_BYTES, UnusableError, answer, connect

_URI = re.compile(r"(s3|gs)://([^/\s?#]+)(/[^\s?#]*)?")
_CLOUDS = ("AWS_", "GOOGLE_")
# What gives a pod its identity, and the region that comes with it: not of a Secret, but of the cluster.
_IDENTITY = ("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE",
             "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
             "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_FIELD, _CREDENTIALS = "spec.store.uri", "spec.store.secretRef"
_REMEDY = ("name a Secret with credentials in spec.store.secretRef, or a ServiceAccount in "
           "spec.store.serviceAccountName, that may list, read, write and delete below that prefix")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """``key`` is relative to the store's prefix. ``version`` names this state of it, for :meth:`Bucket.replace`, in
    the ways of S3 and of Google."""

    key: str
    size: int
    modified: datetime
    version: Mapping[str, str] = field(default_factory=dict)


class Bucket:
    """What lies below the prefix of one bucket; nothing else of it can be named. Calls raise :class:`UserError`
    ``StoreMissing`` or ``StoreAccessDenied``, and :class:`TransientError` ``StoreUnreachable``."""

    def __init__(self, uri: str, environ: Mapping[str, str] | None = None) -> None:
        """Asks nothing of the bucket yet. Raises :class:`UserError` ``CredentialsInvalid`` or ``StoreMissing``."""
        match = _URI.fullmatch(uri)
        if not match:
            raise UserError("StoreMissing", f"{uri!r} is no bucket", field=_FIELD, value=uri,
                            remedy="write s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
        self.uri, self._prefix = uri.rstrip("/"), (match[3] or "").strip("/")
        self._store = _open(match[1], match[2], os.environ if environ is None else environ)

    def read(self, key: str, most: int) -> bytes | None:
        """None where it is not there; of one that has more than ``most`` bytes the first ``most`` and one."""
        import obstore

        with self._builders_errors():
            try:
                found = obstore.get(self._store, self._key(key))
                if found.meta["size"] > most:
                    return bytes(obstore.get_range(self._store, self._key(key), start=0, end=most + 1))
                return bytes(found.bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def look(self, key: str) -> Entry | None:
        import obstore

        with self._builders_errors():
            try:
                return self._entry(obstore.head(self._store, self._key(key)))
            except FileNotFoundError:
                return None

    def write(self, key: str, data: bytes) -> None:
        import obstore

        with self._builders_errors():
            obstore.put(self._store, self._key(key), data)

    def upload(self, key: str, path: Path) -> None:
        import obstore

        with self._builders_errors():
            obstore.put(self._store, self._key(key), path, chunk_size=PART_BYTES, max_concurrency=4)

    def create(self, key: str, data: bytes) -> bool:
        """False where there is such an object already: of several that create one, one wins."""
        return self._put(key, data, "create")

    def replace(self, key: str, data: bytes, version: Mapping[str, str]) -> bool:
        """False where the object has another state than ``version`` by now."""
        return self._put(key, data, dict(version))

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._builders_errors():
            try:
                obstore.put(self._store, self._key(key), data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def remove(self, key: str) -> None:
        import obstore

        with self._builders_errors(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, self._key(key))

    def entries(self, below: str = "") -> Iterator[Entry]:
        import obstore

        with self._builders_errors():
            for chunk in obstore.list(self._store, prefix=self._key(below) or None):
                yield from map(self._entry, chunk)

    def download(self, key: str, size: int, target: Path) -> str | None:
        """Writes the object to ``target`` and returns the 64 hex digits of its SHA-256; None where it is not there or
        has another size. It is read in parts: a connection that breaks costs no more than one. What is named by its
        content needs no look at its version."""
        import obstore

        found = self.look(key)
        if found is None or found.size != size:
            return None
        digest = hashlib.sha256()
        with self._builders_errors(), target.open("wb") as file:
            for start in range(0, size, PART_BYTES):
                try:
                    part = obstore.get_range(self._store, self._key(key), start=start,
                                             end=min(start + PART_BYTES, size))
                except FileNotFoundError:
                    return None
                digest.update(part)
                file.write(part)
        return digest.hexdigest()

    def _key(self, key: str) -> str:
        return "/".join(filter(None, (self._prefix, key)))

    def _entry(self, meta: Any) -> Entry:
        key = str(meta["path"])
        if self._prefix:
            key = key.removeprefix(f"{self._prefix}/")
        return Entry(key=key, size=int(meta["size"]), modified=meta["last_modified"],
                     version={name: str(meta[name]) for name in ("e_tag", "version") if meta.get(name)})

    @contextlib.contextmanager
    def _builders_errors(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except BuilderError:
            raise
        except FileNotFoundError as error:
            if error.filename:  # of this machine, not of the bucket
                raise
            raise self._missing(brief(error)) from error
        except (BaseError, ValueError) as error:
            raise self._refused(error) from error

    def _missing(self, why: str) -> UserError:
        return UserError("StoreMissing", f"the engine store {self.uri} is not there: {why}", field=_FIELD,
                         value=self.uri, remedy="create the bucket, or correct spec.store.uri")

    def _refused(self, error: Exception) -> BuilderError:
        kind, why = answer(error)
        if kind == "missing":
            return self._missing(why)
        if kind == "denied":
            return UserError("StoreAccessDenied", f"the engine store {self.uri} may not be used: {why}", field=_FIELD,
                             value=self.uri, remedy=_REMEDY)
        return TransientError("StoreUnreachable", f"the engine store {self.uri}: {why}", field=_FIELD, value=self.uri,
                              remedy="check that the object store can be reached from the cluster, and its address and "
                                     f"region in the Secret of {_CREDENTIALS}")


def store_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the client of the store may see of the clouds' variables: those given for the store, and the pod's own
    identity unless keys were given. Entries of a Secret that was made from files end with a line break."""
    given = {name.removeprefix(STORE_VARIABLES): value.strip() for name, value in environ.items()
             if name.startswith(STORE_VARIABLES)}
    given = {name: value for name, value in given.items() if name.startswith(_CLOUDS) and value}
    if {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & set(given):
        return given
    identity = {name: environ[name] for name in _IDENTITY if environ.get(name)}
    region = {name: environ[name] for name in _REGION if identity and environ.get(name)}
    return {**identity, **region, **given}


def _open(scheme: str, bucket: str, environ: Mapping[str, str]) -> Any:
    given = store_environment(environ)
    for name in ENDPOINTS:
        if name in given and not re.match(r"https?://[^\s/]", given[name], re.IGNORECASE):
            raise _invalid(f"{name} is no address", f"write http:// or https:// and the host into {name}")
    with _seeing(given):
        try:
            return connect(scheme, bucket)
        except UnusableError as error:
            raise _invalid(str(error), error.remedy) from error


def _invalid(what: str, remedy: str) -> UserError:
    """Values stay out of it."""
    return UserError("CredentialsInvalid", what, field=_CREDENTIALS, value="", remedy=remedy)


@contextlib.contextmanager
def _seeing(given: Mapping[str, str]) -> Iterator[None]:
    """The client reads the environment when it is made, and only then."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(_CLOUDS)}
    try:
        for name in kept:
            del os.environ[name]
        os.environ.update(given)
        yield
    finally:
        for name in given:
            os.environ.pop(name, None)
        os.environ.update(kept)

"""Sources on web servers: streamed to a temporary name, so that half a file is never taken for a whole one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.foreign_names import check_names
from enginewright_builder.sources.base import CHUNK_BYTES, FetchContext
from enginewright_builder.sources.remote import check_near, is_loopback

if TYPE_CHECKING:
    import httpx

ATTEMPTS = 4
# Statuses worth another try: timeout, too early, throttled, and the server's own troubles.
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONNECT_SECONDS, _SECONDS = 10.0, 60.0


class HttpsFetcher:
    """``pause`` waits between attempts; tests pass their own."""

    schemes = ("https", "http")

    def __init__(self, pause: Callable[[float], None] = time.sleep, first_pause: float = 0.5) -> None:
        self._pause, self._first_pause = pause, first_pause

    def fetch(self, uri: str, context: FetchContext) -> Path:
        _check_transport(uri, context)
        name = PurePosixPath(unquote(urlsplit(uri).path)).name or "download"
        try:
            check_names([name])
        except ValueError as error:
            raise UserError("SourceUriInvalid", f"{uri!r}: {error}", field=context.field, value=uri,
                            remedy="write an address that ends in the file's name") from error
        context.scratch.mkdir(parents=True, exist_ok=True)
        target, partial = context.scratch / name, context.scratch / f"{name}.part"
        try:
            for attempt in range(ATTEMPTS):
                try:
                    _download(uri, partial, context)
                    os.replace(partial, target)
                    return target
                except TransientError:
                    if attempt + 1 == ATTEMPTS:
                        raise
                    self._pause(self._first_pause * 2**attempt)
        finally:
            partial.unlink(missing_ok=True)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _check_transport(uri: str, context: FetchContext) -> None:
    try:
        parts = urlsplit(uri)
        _ = parts.port  # read, it is looked at
    except ValueError as error:
        raise UserError("SourceUriInvalid", f"{uri!r}: {error}", field=context.field, value=uri,
                        remedy="write https://host/path or https://host:port/path") from error
    if not parts.hostname:
        raise UserError("SourceUriInvalid", f"{uri!r} names no host", field=context.field, value=uri,
                        remedy="write https://host/path")
    if parts.scheme.lower() != "https" and (parts.scheme.lower() != "http" or not is_loopback(parts.hostname)):
        raise UserError("SourceUriInvalid", f"{uri!r} is not encrypted", field=context.field, value=uri,
                        remedy="use https://; plain http:// is taken from this machine only")


def _check_redirect(uri: str, following: str, context: FetchContext) -> None:
    """A redirect may lead neither to a server that does not encrypt nor to this machine."""
    _check_transport(following, context)
    check_near(uri, following, uri, context)


def _download(uri: str, partial: Path, context: FetchContext) -> None:
    import httpx  # takes a fifth of a builder's start, and most sources lie on volumes

    timeout = httpx.Timeout(_SECONDS, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS)
    # Before every request, those that follow a redirect too.
    hooks = {"request": [lambda request: _check_redirect(uri, str(request.url), context)]}
    try:
        with (httpx.Client(timeout=timeout, follow_redirects=True, event_hooks=hooks) as client,
              client.stream("GET", uri) as response):
            _check_status(uri, response, context)
            expected = int(response.headers.get("content-length", -1))
            _check_size(uri, max(expected, 0), context)
            with partial.open("wb") as file:
                received = 0
                # Raw bytes: a digest is of what is served, not of what a content encoding makes of it.
                for chunk in response.iter_raw(CHUNK_BYTES):
                    received += len(chunk)
                    _check_size(uri, received, context)
                    file.write(chunk)
                    if expected > 0:
                        context.progress(received / expected, f"{received >> 20} of {expected >> 20} MiB")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TransientError("SourceUnreachable", f"{uri}: {type(error).__name__}: {error}", field=context.field,
                             value=uri, remedy="check that the server can be reached from the cluster") from error
    if expected >= 0 and received != expected:
        raise TransientError("SourceUnreachable", f"{uri}: got {received} of {expected} bytes", field=context.field,
                             value=uri)


def _check_status(uri: str, response: httpx.Response, context: FetchContext) -> None:
    if response.status_code in _RETRIED:
        raise TransientError("SourceUnreachable", f"{uri}: HTTP {response.status_code}", field=context.field, value=uri)
    if response.status_code != 200:
        raise UserError("SourceNotFound", f"{uri}: HTTP {response.status_code}", field=context.field, value=uri,
                        remedy="give an address that answers 200 without credentials, or put the model on a volume")


def _check_size(uri: str, size: int, context: FetchContext) -> None:
    if size > context.size_limit:
        raise UserError("SourceTooLarge", f"{uri} is larger than {context.size_limit} bytes", field=context.field,
                        value=uri, remedy="put the model on a volume and name it as pvc://CLAIM/path")

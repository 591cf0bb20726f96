"""What the hub's own client may ask for, and how much it may read: it follows every redirect, and reads any answer to
its end.

The client recreates its connections after an error, so the limits are set where it makes them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from enginewright_builder.errors import UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.remote import check_near

# Of an answer that is no file, in bytes. A page of a listing has 1,000 names.
MOST_WORDS: Final = 64 << 20
_PARTIAL: Final = 206
_RANGE: Final = re.compile(r"bytes=(\d+)-", re.ASCII)


class Limits:
    """Of what comes from ``endpoint`` for the source ``uri``, one file after the other."""

    def __init__(self, uri: str, endpoint: str, context: FetchContext) -> None:
        self._uri, self._endpoint, self._context = uri, endpoint, context
        self._file: str | None = None
        self._size = 0

    @contextmanager
    def of_file(self, name: str, size: int) -> Iterator[None]:
        """Meanwhile the file ``name`` of ``size`` bytes is downloaded, over several connections where one breaks."""
        self._file, self._size = name, size
        try:
            yield
        finally:
            self._file = None

    def check_request(self, request: Any) -> None:
        """Before every request, those that follow a redirect too. Raises :class:`UserError` ``SourceUriInvalid``."""
        following, scheme = str(request.url), urlsplit(str(request.url)).scheme
        # HF_ENDPOINT may name a hub that does not encrypt; its redirects need not either.
        if scheme not in ("https", urlsplit(self._endpoint).scheme):
            raise UserError("SourceUriInvalid", f"{self._uri} is redirected to {following[:200]!r}, which is not "
                            "encrypted", field=self._context.field, value=self._uri,
                            remedy="let HF_ENDPOINT name a hub that stays on https")
        check_near(self._endpoint, following, self._uri, self._context)
        # Else a few bytes may unpack to any number.
        request.headers["accept-encoding"] = "identity"

    def bound(self, response: Any) -> None:
        """Before the answer is read. Raises :class:`UserError` ``SourceTooLarge`` there and while it is read."""
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise self._too_large("sends an answer that is compressed, which may unpack to any number of bytes")
        is_file = self._file is not None and response.is_success
        left = self._size - _start(response) if is_file else MOST_WORDS
        response.stream = _bounded(response.stream, left, lambda: self._longer(is_file))

    def _longer(self, is_file: bool) -> UserError:
        if is_file:
            return self._too_large(f"sends more than the {self._size:,} bytes that it states of {self._file}")
        return self._too_large(f"sends an answer of more than {MOST_WORDS:,} bytes")

    def _too_large(self, what: str) -> UserError:
        return UserError("SourceTooLarge", f"the hub of {self._uri} {what}", field=self._context.field, value=self._uri,
                         remedy="check the hub that HF_ENDPOINT names, or put the model on a volume and name it as "
                                "pvc://CLAIM/path")


def _start(response: Any) -> int:
    """Where in the file the answer goes on, as the client has asked."""
    asked = _RANGE.match(response.request.headers.get("range", "")) if response.status_code == _PARTIAL else None
    return int(asked[1]) if asked else 0


def _bounded(stream: Any, left: int, longer: Callable[[], UserError]) -> Any:
    """The same stream, for the library that the hub's client is made of, with an error after ``left`` bytes."""
    library: Any = sys.modules[type(stream).__module__.partition(".")[0]]

    class Bounded(library.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            most = left
            for chunk in stream:
                most -= len(chunk)
                if most < 0:
                    raise longer()
                yield chunk

        def close(self) -> None:
            stream.close()

    return Bounded()


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Meanwhile the hub's client keeps ``limits``, and takes no other way: Xet's library has connections of its own."""
    from huggingface_hub import close_session, constants, get_session, set_client_factory

    close_session()
    usual = get_session()
    hooks = usual.event_hooks

    def client(**own: Any) -> Any:
        return type(usual)(follow_redirects=True, timeout=None, **own)

    before, constants.HF_HUB_DISABLE_XET = constants.HF_HUB_DISABLE_XET, True
    set_client_factory(lambda: client(event_hooks={"request": [*hooks["request"], limits.check_request],
                                                   "response": [*hooks["response"], limits.bound]}))
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = before
        set_client_factory(lambda: client(event_hooks=hooks))

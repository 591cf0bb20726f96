"""A session of ``requests`` that reads no more of an answer, and for no longer, than it was told.

The library's own timeout is of each read from the socket: an answer that drips, or never ends, has none.
"""

from __future__ import annotations

import time
from typing import Any, Final

import requests
import urllib3

CHUNK: Final = 1 << 16


class TooLargeError(requests.RequestException):
    """The answer is larger than anybody wants to read."""


class BoundedSession(requests.Session):
    """``deadline`` in seconds from the request to the last byte, ``largest`` in bytes."""

    def __init__(self, *, deadline: float, largest: int) -> None:
        super().__init__()
        self._deadline, self._largest = deadline, largest
        # What is packed may be of any size unpacked.
        self.headers["Accept-Encoding"] = "identity"

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Raises :class:`requests.Timeout` and :class:`TooLargeError` beside what it raises anyway."""
        began = time.monotonic()
        response = super().send(request, **{**kwargs, "stream": True})
        body = bytearray()
        try:
            # As much as is there: a read of a fixed size would wait for all of it.
            while chunk := response.raw.read1(CHUNK, decode_content=False):
                body += chunk
                if len(body) > self._largest:
                    raise TooLargeError(f"answer is larger than {self._largest} bytes")
                if time.monotonic() - began > self._deadline:
                    raise requests.Timeout(f"no whole answer within {self._deadline:g} s")
        except urllib3.exceptions.HTTPError as error:
            raise requests.ConnectionError(str(error)) from error
        finally:
            response.close()
        response._content = bytes(body)
        return response

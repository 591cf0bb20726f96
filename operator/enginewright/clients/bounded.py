"""A session of ``requests`` whose requests the event loop sends: within one deadline, bounded, to one address.

The library's own timeout is of each read from the socket, and of each connection tried: an answer that drips, its
headers too, or a name with many addresses, has none. A thread cannot be ended from outside, a task can.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import cached_property
from typing import Any, Final

import requests
from requests.adapters import BaseAdapter
from requests.utils import DEFAULT_CA_BUNDLE_PATH, urldefragauth

from enginewright.clients.direct import DirectSession, metered
from enginewright.clients.errors import ClientError, RefusedError, TransientError
from enginewright.clients.pods import TooLargeError, answered, body_of

# Seconds that a thread waits beyond the deadline for a loop that is late.
LATE: Final = 1.0


class Sender:
    """Sends for threads, in the loop that it was made in. ``deadline`` is seconds from looking up the name to the last
    byte, ``largest`` is bytes."""

    def __init__(self, *, deadline: float, largest: int) -> None:
        self._deadline, self._largest = deadline, largest
        self._loop = asyncio.get_running_loop()
        self._session = DirectSession(metered(largest))

    @cached_property
    def _context(self) -> ssl.SSLContext:
        """Made for the first request, as many operators send none: to read all authorities takes 40 ms."""
        context = ssl.create_default_context()
        context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
        return context

    async def close(self) -> None:
        await self._session.close()

    def send(self, request: requests.PreparedRequest, call: str) -> bytes:
        """The body of an answer with status 200. For threads alone. Raises :class:`TransientError` and
        :class:`RefusedError`."""
        sent = asyncio.run_coroutine_threadsafe(self._answer(request, call), self._loop)
        try:
            return sent.result(self._deadline + LATE)
        except TimeoutError:
            sent.cancel()
            raise

    async def _answer(self, request: requests.PreparedRequest, call: str) -> bytes:
        headers = {name: str(value) for name, value in request.headers.items()} | {"Accept-Encoding": "identity"}
        async with (
            answered(self._deadline, call),
            self._session.request(str(request.method), urldefragauth(str(request.url)), headers=headers,
                                  ssl=self._context) as answer,
        ):
            if answer.status != 200:
                raise _refusal(answer.status, call)
            body = await body_of(answer, self._largest)
            if body is None:
                raise TooLargeError(f"the answer has more than {self._largest} bytes, or too many pieces", call=call)
            return body


def _refusal(status: int, call: str) -> ClientError:
    if 300 <= status < 400:
        return RefusedError(f"it answered {status}, a redirect, which is not followed; write the address that it "
                            "redirects to", call=call, status=status)
    kind = RefusedError if 400 <= status < 500 else TransientError
    return kind(f"it answered {status}; the log of that server says why", call=call, status=status)


class BoundedSession(requests.Session):
    """Each of its requests is ``sender``'s, whatever is mounted; ``call`` is what errors name."""

    def __init__(self, sender: Sender, call: str) -> None:
        super().__init__()
        self.trust_env = False
        self._adapter = _Adapter(sender, call)

    def get_adapter(self, url: str | bytes) -> BaseAdapter:
        return self._adapter


class _Adapter(BaseAdapter):
    def __init__(self, sender: Sender, call: str) -> None:
        super().__init__()
        self._sender, self._call = sender, call

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, str(request.url)
        response._content = self._sender.send(request, self._call)
        return response

    def close(self) -> None:
        """The sender is others' as well."""

"""A fake of Google's object store: the three calls of its XML API that reading takes.

Google's own cannot be reached from here. The API is https://cloud.google.com/storage/docs/xml-api/reference-methods;
the client that speaks it is the real one, told by its credentials to ask elsewhere and without OAuth.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.http_server import Handler, answering

TIME = "2026-11-21T12:00:00.000Z"


@contextlib.contextmanager
def serving(bucket: str, objects: Mapping[str, bytes]) -> Iterator[str]:
    """``GOOGLE_SERVICE_ACCOUNT_KEY`` for a store with one bucket."""

    class Bound(_Handler):
        name, content = bucket, objects

    with answering(Bound) as port:
        yield json.dumps({"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True, "client_email": "",
                          "private_key": "", "private_key_id": ""})


class _Handler(Handler):
    name: str
    content: Mapping[str, bytes]

    def answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).strip("/").partition("/")
        if bucket != self.name:
            self.send(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchBucket</Code></Error>", {})
        elif not key:
            self.send(HTTPStatus.OK, self._listed(parse_qs(parts.query)).encode(), {})
        elif key not in self.content:
            self.send(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>", {})
        else:
            self._object(self.content[key])

    def _object(self, data: bytes) -> None:
        headers = {"ETag": _etag(data), "Last-Modified": "Sat, 21 Nov 2026 12:00:00 GMT"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if asked is None:
            self.send(HTTPStatus.OK, data, headers)
            return
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        self.send(HTTPStatus.PARTIAL_CONTENT, data[first:last + 1],
                   {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"})

    def _listed(self, query: Mapping[str, list[str]]) -> str:
        prefix = query.get("prefix", [""])[0]
        found = [(key, data) for key, data in self.content.items() if key.startswith(prefix)]
        entries = "".join(f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>{_etag(data)}</ETag>"
                          f"<LastModified>{TIME}</LastModified></Contents>" for key, data in found)
        return f"<ListBucketResult><Name>{self.name}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'

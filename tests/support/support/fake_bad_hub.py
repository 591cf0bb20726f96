"""A fake of a model hub that means harm: what it states of its files is not what it sends."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from support.fake_hub import REPOSITORY, FakeHub, HubAnswers

Harm = Literal["endless", "compressed", "resumed", "broken", "redirected", "listed", ""]
CHUNK = bytes(1 << 16)
# It stops there, though nothing else stops it.
MOST = 256 << 20


@dataclass
class FakeBadHub(FakeHub):
    """``harm`` is of every file, or of the listing. ``sent`` counts bytes of files; ``following`` is where files are
    said to be."""

    harm: Harm = ""
    following: str = ""
    sent: int = 0


class BadAnswers(HubAnswers):
    state: FakeBadHub

    def answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        if self.state.harm == "listed" and "/tree/" in parts.path:
            self._page(int(parse_qs(parts.query).get("cursor", ["0"])[0]))
        else:
            super().answer(body)

    def file(self, revision: str, name: str) -> None:
        if self.state.harm == "redirected":
            self.send(HTTPStatus.FOUND, b"", {"Location": self.state.following, **self._about(revision, name)})
        elif self.state.harm == "" or self.command == "HEAD":
            super().file(revision, name)
        elif self.state.harm == "compressed":
            self.send(HTTPStatus.OK, gzip.compress(bytes(10 << 20)), {"Content-Encoding": "gzip"})
        elif self.state.harm == "resumed":
            self._break()
        elif self.state.harm == "broken":
            self._break_at(self.state.revisions[revision][name])
        else:
            self._endless()

    def _about(self, revision: str, name: str) -> dict[str, str]:
        size = len(self.state.revisions[revision][name])
        return {"X-Repo-Commit": revision, "X-Linked-ETag": '"0"', "X-Linked-Size": str(size)}

    def _page(self, number: int) -> None:
        self.state.asked.append(f"page {number}")
        entries = [{"type": "file", "path": f"{number}-{index}.json", "size": 1, "oid": "0"} for index in range(3)]
        host = urlsplit(self.state.endpoint)
        following = f"{host.scheme}://{host.netloc}/api/models/{REPOSITORY}/tree/x?cursor={number + 1}"
        self.say(entries, {"Link": f'<{following}>; rel="next"'})

    def _endless(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while self.state.sent < MOST:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
            self.state.sent += len(CHUNK)
        self.wfile.write(b"0\r\n\r\n")

    def _break_at(self, data: bytes) -> None:
        """Six bytes more of what is asked for, honestly."""
        start = int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:start + 6])
        self.state.sent += len(data[start:start + 6])
        self.close_connection = True

    def _break(self) -> None:
        """Most of the file, and then the connection ends; what goes on from there is as long again."""
        resumed = "range" in self.headers
        self.send_response(HTTPStatus.PARTIAL_CONTENT if resumed else HTTPStatus.OK)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"x" * 8)
        self.state.sent += 8
        self.close_connection = True

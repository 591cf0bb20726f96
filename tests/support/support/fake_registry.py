"""A fake of a registry, for what a real one does not do when told: tokens that run out, blobs that lie on another host,
connections that break, bytes that are others. Three servers: the registry, its token service, and where blobs lie.

Shapes of answers are those of the OCI distribution specification and of
https://distribution.github.io/distribution/spec/auth/token/.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from support.artifacts import Artifact
from support.http_server import Handler, answering

REPOSITORY, USER, PASSWORD = "acme/net", "reader", "hunter2"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@dataclass(frozen=True)
class Asked:
    """One request. ``of`` is the server that was asked."""

    of: str
    path: str
    authorization: str
    range: str


@dataclass
class FakeRegistry:
    """``artifacts`` by tag, all in one repository. ``challenge`` is what a private one asks for, ``uses`` how many
    requests a token is good for. ``redirects`` sends readers of blobs elsewhere. Of blobs ``cut`` answers break in the
    middle, after ``wrong`` have had other bytes and ``refused`` were none; ``ranges`` says whether parts can be asked
    for. ``stated`` is what is said to be the manifest's digest, ``tls`` whether the registry itself speaks TLS."""

    artifacts: dict[str, Artifact]
    challenge: str = ""
    uses: int = 1000
    redirects: bool = False
    cut: int = 0
    wrong: int = 0
    refused: int = 0
    ranges: bool = True
    stated: str = ""
    tls: ssl.SSLContext | None = None
    ports: dict[str, int] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    good: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports['registry']}"

    @property
    def realm(self) -> str:
        return f"http://127.0.0.1:{self.ports['tokens']}/token"

    def of(self, server: str) -> list[Asked]:
        return [one for one in self.asked if one.of == server]


@contextlib.contextmanager
def serving(state: FakeRegistry) -> Iterator[FakeRegistry]:
    with contextlib.ExitStack() as servers:
        for name, handler in (("registry", _Registry), ("tokens", _Tokens), ("storage", _Storage)):
            bound = type(name, (handler,), {"state": state, "name": name})
            tls = state.tls if name == "registry" else None
            state.ports[name] = servers.enter_context(answering(bound, tls=tls))
        yield state


class _Server(Handler):
    state: FakeRegistry
    name: str

    def answer(self, body: bytes) -> None:
        self.state.asked.append(Asked(self.name, self.path, self.headers.get("authorization", ""),
                                      self.headers.get("range", "")))
        self.reply(urlsplit(self.path).path)

    def reply(self, path: str) -> None:
        raise NotImplementedError

    def refuse(self, status: HTTPStatus, code: str, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps({"errors": [{"code": code}]}).encode(), headers or {})

    def blob(self, digest: str) -> None:
        state = self.state
        data = next((found.blobs[digest] for found in state.artifacts.values() if digest in found.blobs), None)
        if state.refused:
            state.refused -= 1
            self.refuse(HTTPStatus.TOO_MANY_REQUESTS, "TOOMANYREQUESTS")
        elif data is None:
            self.refuse(HTTPStatus.NOT_FOUND, "BLOB_UNKNOWN")
        elif state.wrong:
            state.wrong -= 1
            self.send(HTTPStatus.OK, bytes(len(data)), {})
        else:
            self._some(data)

    def _some(self, data: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        start = int(asked[1]) if asked and self.state.ranges else 0
        self.send_response(HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        end = len(data)
        if self.state.cut:
            self.state.cut -= 1
            end, self.close_connection = (start + end) // 2, True
        self.wfile.write(data[start:end])


class _Registry(_Server):
    def reply(self, path: str) -> None:
        state = self.state
        kind, _, reference = path.removeprefix(f"/v2/{REPOSITORY}/").partition("/")
        if state.challenge and not self._may():
            self.refuse(HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED",
                        {"WWW-Authenticate": state.challenge.format(realm=state.realm)})
        elif kind == "blobs" and state.redirects:
            place = f"http://127.0.0.1:{state.ports['storage']}/{reference}?signed=yes"
            self.send(HTTPStatus.TEMPORARY_REDIRECT, b"", {"Location": place})
        elif kind == "blobs":
            self.blob(reference)
        elif found := next((one for tag, one in state.artifacts.items() if reference in (tag, one.digest)), None):
            self.send(HTTPStatus.OK, found.manifest, {"Content-Type": found.media_type,
                                                      "Docker-Content-Digest": state.stated or found.digest})
        else:
            self.refuse(HTTPStatus.NOT_FOUND, "MANIFEST_UNKNOWN")

    def _may(self) -> bool:
        given = self.headers.get("authorization", "")
        if "bearer" not in self.state.challenge.lower():
            return given == BASIC
        if given != f"Bearer token-{self.state.good}":
            return False
        self.state.uses -= 1
        return self.state.uses >= 0


class _Tokens(_Server):
    def reply(self, path: str) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if self.headers.get("authorization", "") != BASIC or asked["scope"] != [f"repository:{REPOSITORY}:pull"]:
            self.refuse(HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED")
            return
        self.state.good += 1
        self.state.uses = max(self.state.uses, 2)
        self.send(HTTPStatus.OK, json.dumps({"token": f"token-{self.state.good}"}).encode(), {})


class _Storage(_Server):
    def reply(self, path: str) -> None:
        self.blob(path.strip("/"))

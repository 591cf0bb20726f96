"""A fake of the model hub: the calls that its own client makes to look at a repository and to read its files.

The hub itself cannot be reached from here. Shapes of answers are those of https://huggingface.co/docs/hub/api; the
client that reads them is the real one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from support.http_server import Handler, answering

REPOSITORY, TOKEN = "acme/net", "hf_secret"


@dataclass
class FakeHub:
    """One repository. ``revisions`` are its files by commit, ``branches`` name commits; ``private`` wants the token;
    ``down`` answers everything with that status. ``asked`` are the paths of all requests."""

    revisions: dict[str, Mapping[str, bytes]]
    branches: dict[str, str]
    private: bool = False
    down: int = 0
    endpoint: str = ""
    asked: list[str] = field(default_factory=list)

    def files(self, revision: str) -> tuple[str, Mapping[str, bytes]] | None:
        commit = self.branches.get(revision, revision)
        return (commit, self.revisions[commit]) if commit in self.revisions else None


def commit_of(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def serving(hub: FakeHub, host: str = "127.0.0.1", answers: type[HubAnswers] | None = None) -> Iterator[FakeHub]:
    class Bound(answers or HubAnswers):  # type: ignore[misc]
        state = hub

    with answering(Bound, host) as port:
        hub.endpoint = f"http://{host}:{port}"
        yield hub


class HubAnswers(Handler):
    state: FakeHub

    def answer(self, body: bytes) -> None:
        # A slash within a revision is escaped, and one between parts is not.
        hub, path = self.state, urlsplit(self.path).path
        about, content = f"/api/models/{REPOSITORY}", f"/{REPOSITORY}/resolve/"
        hub.asked.append(path)
        if hub.down:
            self._error(HTTPStatus(hub.down), "")
        elif hub.private and self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._error(HTTPStatus.UNAUTHORIZED, "RepoNotFound")
        elif path.startswith(about):
            self._describe(path.removeprefix(about).strip("/"), body)
        elif path.startswith(content):
            revision, _, name = path.removeprefix(content).partition("/")
            self.file(unquote(revision), unquote(name))
        else:
            self._error(HTTPStatus.NOT_FOUND, "RepoNotFound")

    def _describe(self, what: str, body: bytes) -> None:
        kind, _, rest = what.partition("/")
        revision, _, folder = (rest or "main").partition("/")
        known = self.state.files(unquote(revision))
        if known is None:
            self._error(HTTPStatus.NOT_FOUND, "RevisionNotFound")
            return
        commit, files = known
        if kind in ("", "revision"):
            self.say({"id": REPOSITORY, "sha": commit, "private": self.state.private, "siblings": []})
        elif kind == "tree":
            below = f"{unquote(folder)}/" if folder else ""
            self.say([_entry(name, data) for name, data in files.items() if name.startswith(below)])
        else:
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
            self.say([entry for name in wanted for entry in _entries(name, files)])

    def file(self, revision: str, name: str) -> None:
        known = self.state.files(revision)
        if known is None or name not in known[1]:
            self._error(HTTPStatus.NOT_FOUND, "EntryNotFound" if known else "RevisionNotFound")
            return
        data = known[1][name]
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.send(HTTPStatus.OK, data, {"X-Repo-Commit": known[0], "ETag": f'"{etag}"'})

    def say(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        self.send(HTTPStatus.OK, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _error(self, status: HTTPStatus, code: str) -> None:
        self.send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": status.phrase})


def _entries(name: str, files: Mapping[str, bytes]) -> list[dict[str, object]]:
    if name in files:
        return [_entry(name, files[name])]
    return [{"type": "directory", "path": name, "oid": "0"}] if any(one.startswith(f"{name}/") for one in files) else []


def _entry(name: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(data), "oid": commit_of(name)}

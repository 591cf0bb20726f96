"""Finding 15: a bucket that ignores the conditions of writes passes for an engine store, and of two builds that publish
at once one overwrites the other's manifest."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from enginewright_builder.contract import STORE_VARIABLES as PREFIX
from enginewright_builder.contract import BucketRequest, BuildRequest, ErrorReport, SourceRequest
from enginewright_builder.engine_store import store as engine_store
from enginewright_builder.errors import BuilderError, TransientError, UserError
from enginewright_builder.pipeline import run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from support.http_server import Handler, answering
from support.models import mlp


class Store(Handler):
    """An object store that speaks as much S3 as a probe takes, and keeps to the conditions that it ``honours``."""

    honours: frozenset[str] = frozenset()
    forgets = False
    content: dict[str, bytes]

    def do_PUT(self) -> None:  # noqa: N802  (the name that http.server calls)
        body, key = self.rfile.read(int(self.headers.get("content-length", 0))), self._key()
        there = self.content.get(key)
        wanted = {name: self.headers.get(name) for name in self.honours}
        refused = (wanted.get("If-None-Match") == "*" and there is not None) or (
            wanted.get("If-Match") and (there is None or wanted["If-Match"] != _etag(there)))
        if refused:
            self.send(HTTPStatus.PRECONDITION_FAILED, b"<Error><Code>PreconditionFailed</Code></Error>", {})
            return
        if not self.forgets:
            self.content[key] = body
        self.send(HTTPStatus.OK, b"", {"ETag": _etag(body)})

    def answer(self, body: bytes) -> None:
        data = self.content.get(self._key())
        if data is None:
            self.send(HTTPStatus.NOT_FOUND, b"<Error><Code>NoSuchKey</Code></Error>", {})
        else:
            self.send(HTTPStatus.OK, data, {"ETag": _etag(data), "Last-Modified": "Tue, 24 Nov 2026 12:00:00 GMT"})

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *honours: str, forgets: bool = False) -> Iterator[None]:
    kind = type("Bound", (Store,), {"honours": frozenset(honours), "content": {}, "forgets": forgets})
    with answering(kind) as port:
        for name, value in {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "a",
                            "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}.items():
            monkeypatch.setenv(PREFIX + name, value)
        yield


def request(folder: Path) -> BuildRequest:
    (folder / "store").mkdir()
    (folder / "net.onnx").write_bytes(mlp().SerializeToString())
    return BuildRequest(model_name="net", source=SourceRequest(uri=str(folder / "net.onnx")),
                        store_path=str(folder / "store"), bucket=BucketRequest(uri="s3://engines/team"))


def resolved(folder: Path) -> ErrorReport | None:
    """The step before any device is asked for."""
    return run_resolve(request(folder), folder, Tracker(JsonLines(io.StringIO()))).error


def test_a_bucket_that_ignores_both_is_refused_before_a_device_is_used(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch):
        error = resolved(tmp_path)
    assert error is not None
    assert (error.family, error.field, error.value) == ("user", "spec.store.uri", "s3://engines/team")
    assert error.reason == "ConditionalWritesIgnored"
    assert "pvc://" in error.remedy


@pytest.mark.parametrize(("honoured", "ignored"), [("If-None-Match", "If-Match"), ("If-Match", "If-None-Match")])
def test_one_that_ignores_either_is_refused(honoured: str, ignored: str, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, honoured), pytest.raises(UserError) as caught:
        engine_store.of(request(tmp_path)).check_writable(1)
    assert f"ignores {ignored}:" in str(caught.value)


def test_one_that_holds_nothing_is_not_taken_for_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "If-None-Match", "If-Match", forgets=True), pytest.raises(BuilderError) as caught:
        engine_store.of(request(tmp_path)).check_writable(1)
    assert isinstance(caught.value, TransientError)


def test_one_that_keeps_to_both_is_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, "If-None-Match", "If-Match"):
        assert resolved(tmp_path) is None

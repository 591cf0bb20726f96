"""Where sources come from, and what is refused on the way."""

from __future__ import annotations

import errno
import hashlib
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.errors import TransientError, UserError
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.digest import content_digest
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.https import ATTEMPTS, HttpsFetcher

Handler = Callable[[http.server.BaseHTTPRequestHandler], None]


def context(tmp_path: Path, **fields: object) -> FetchContext:
    return FetchContext(**{"mounts": {"models": str(tmp_path / "volume")}, "scratch": tmp_path / "scratch", **fields})  # type: ignore[arg-type]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    (folder / "net").mkdir(parents=True)
    (folder / "net" / "weights").write_bytes(b"abc")
    return folder


@pytest.mark.parametrize("uri", ["pvc://models/net/weights", "file://{volume}/net/weights", "{volume}/net/weights"])
def test_the_same_content_has_the_same_digest_wherever_it_lies(uri: str, volume: Path, tmp_path: Path) -> None:
    path, digest = fetch(uri.format(volume=volume), context(tmp_path))
    assert path.read_bytes() == b"abc"
    assert digest == f"sha256:{hashlib.sha256(b'abc').hexdigest()}"


@pytest.mark.parametrize(("uri", "reason", "remedy"), [
    ("ftp://host/x", "SourceUriUnsupported", "pvc://, https://, s3://, gs://, hf://, oci://, file://"),
    ("oci://registry/x", "SourceUriInvalid", "oci://REGISTRY/REPOSITORY:TAG"),
    ("pvc:///x", "SourceUriInvalid", "pvc://CLAIM"),
    ("pvc://other/x", "SourceNotFound", "PersistentVolumeClaim"),
    ("pvc://models/net/none", "SourceNotFound", "exists"),
    ("pvc://models/../secret", "SourceUriInvalid", "'..'"),
    ("pvc://models/%2e%2e/secret", "SourceUriInvalid", "'..'"),
    ("pvc://models/leak", "SourceUriInvalid", "links"),
    ("file://host/x", "SourceUriInvalid", "three slashes"),
    ("file:///a/../b", "SourceUriInvalid", "'..'"),
    ("http://example.com/x", "SourceUriInvalid", "https://"),
    ("https:///x", "SourceUriInvalid", "https://host"),
    ("https://host:abc/x", "SourceUriInvalid", "https://host:port"),
    ("https://host:99999/x", "SourceUriInvalid", "https://host:port"),
    ("https://[::1/x", "SourceUriInvalid", "https://host:port"),
    ("  ", "SourceUriInvalid", "pvc://"),
])
def test_bad_uri_is_refused_with_a_remedy(uri: str, reason: str, remedy: str, volume: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not yours")
    (volume / "leak").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError) as caught:
        fetch(uri, context(tmp_path))
    assert caught.value.reason == reason
    assert caught.value.field == "spec.source.uri"
    assert remedy in caught.value.remedy


def test_of_many_names_that_is_told_first_which_was_meant(volume: Path, tmp_path: Path) -> None:
    for name in (*(f"a{number}.npz" for number in range(9)), "weather.onnx"):
        (volume / name).touch()
    with pytest.raises(UserError) as caught:
        fetch("pvc://models/wether.onnx", context(tmp_path))
    assert "; beside it are weather.onnx, a0.npz, a1.npz, a2.npz, a3.npz, a4.npz, a5.npz, a6.npz, …" in (
        caught.value.message)


@pytest.mark.parametrize("closed", ["net/weights", "net/1_Pooling"])
def test_what_may_not_be_read_is_told(closed: str, volume: Path, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user other than the files' own: root, as whom tests may run, reads them all the same. A folder that may
    not be listed was taken for an empty one."""
    (volume / "net/1_Pooling").mkdir()
    (volume / "net/lost+found").mkdir()
    opened, listed = Path.open, os.scandir

    def refuse(path: object) -> None:
        if Path(str(path)) in (volume / closed, volume / "net/lost+found"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def opens(path: Path, *how: Any) -> Any:
        refuse(path)
        return opened(path, *how)

    def lists(path: Any) -> Any:
        refuse(path)
        return listed(path)

    monkeypatch.setattr(Path, "open", opens)
    monkeypatch.setattr(os, "scandir", lists)
    with pytest.raises(UserError, match="may not be read: Permission denied") as caught:
        fetch("pvc://models/net", context(tmp_path))
    assert (caught.value.reason, caught.value.field) == ("SourceNotFound", "spec.source.uri")
    assert closed in caught.value.message
    assert f"let user {os.getuid()}" in caught.value.remedy


def test_digest_mismatch_says_both(volume: Path, tmp_path: Path) -> None:
    stated = "sha256:" + "0" * 64
    with pytest.raises(UserError) as caught:
        fetch("pvc://models/net/weights", context(tmp_path, digest=stated))
    assert (caught.value.reason, caught.value.field, caught.value.value) == (
        "DigestMismatch", "spec.source.digest", stated)
    assert hashlib.sha256(b"abc").hexdigest() in caught.value.message


@pytest.mark.parametrize("digest", ["md5:1", "sha256:XYZ", "0" * 64])
def test_malformed_digest_is_refused(digest: str, volume: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        fetch("pvc://models/net/weights", context(tmp_path, digest=digest))
    assert caught.value.reason == "DigestInvalid"


class TestDirectoryDigest:
    def test_is_what_its_documentation_says(self, volume: Path) -> None:
        (volume / "net" / "a").write_bytes(b"")
        lines = ["enginewright-directory-v1", f"{hashlib.sha256(b'').hexdigest()}  net/a",
                 f"{hashlib.sha256(b'abc').hexdigest()}  net/weights", ""]
        assert content_digest(volume) == f"sha256:{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"

    def test_changes_with_content_and_names_only(self, volume: Path) -> None:
        before = content_digest(volume)
        (volume / "net" / "weights").chmod(0o600)
        assert content_digest(volume) == before
        (volume / "net" / "weights").rename(volume / "net" / "other")
        assert content_digest(volume) != before

    def test_of_a_projected_volume_is_that_of_its_files(self, volume: Path, tmp_path: Path) -> None:
        """The kubelet puts files behind a time-stamped folder and links."""
        projected = tmp_path / "projected"
        version = "..2026_01_01_00_00_00.123456789"
        (projected / version / "net").mkdir(parents=True)
        (projected / version / "net" / "weights").write_bytes(b"abc")
        (projected / "..data").symlink_to(version)
        (projected / "net").symlink_to("..data/net")
        assert content_digest(projected) == content_digest(volume)

    def test_a_link_that_leaves_the_folder_is_refused(self, volume: Path, tmp_path: Path) -> None:
        (tmp_path / "outside").write_text("x")
        (volume / "net" / "link").symlink_to(tmp_path / "outside")
        with pytest.raises(UserError, match="outside the folder") as caught:
            content_digest(volume)
        assert "cp -rL" in caught.value.remedy

    def test_a_link_to_nothing_is_refused(self, volume: Path) -> None:
        (volume / "net" / "link").symlink_to("gone")
        with pytest.raises(UserError, match="link to nothing"):
            content_digest(volume)


@pytest.fixture
def web() -> Iterator[Callable[[Handler], str]]:
    """Serves ``handler`` on loopback; returns the address of ``/model.onnx``."""
    servers = []

    def serve(handler: Handler) -> str:
        class Requests(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handler(self)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing on the test's output."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/model.onnx"

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(status: int, body: bytes = b"", length: int | None = None) -> Handler:
    def handle(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body) if length is None else length))
        request.end_headers()
        request.wfile.write(body)

    return handle


class TestWeb:
    def test_downloads_whole_files(self, web: Callable[[Handler], str], tmp_path: Path) -> None:
        path, digest = fetch(web(answer(200, b"x" * 100_000)), context(tmp_path))
        assert path.name == "model.onnx"
        assert path.stat().st_size == 100_000
        assert digest == f"sha256:{hashlib.sha256(b'x' * 100_000).hexdigest()}"

    def test_tries_again_after_the_servers_troubles(self, web: Callable[[Handler], str], tmp_path: Path) -> None:
        answers = iter([answer(503), answer(429), answer(200, b"ok")])
        pauses: list[float] = []
        address = web(lambda request: next(answers)(request))
        path = HttpsFetcher(pause=pauses.append).fetch(address, context(tmp_path))
        assert path.read_bytes() == b"ok"
        assert pauses == [0.5, 1.0]

    @pytest.mark.parametrize("broken", [answer(500), answer(200, b"half", length=8)], ids=["status", "truncated"])
    def test_gives_up_as_transient_and_leaves_nothing(self, broken: Handler, web: Callable[[Handler], str],
                                                      tmp_path: Path) -> None:
        pauses: list[float] = []
        with pytest.raises(TransientError) as caught:
            HttpsFetcher(pause=pauses.append).fetch(web(broken), context(tmp_path))
        assert caught.value.reason == "SourceUnreachable"
        assert len(pauses) == ATTEMPTS - 1
        assert list((tmp_path / "scratch").iterdir()) == []

    def test_missing_is_the_users_to_mend(self, web: Callable[[Handler], str], tmp_path: Path) -> None:
        with pytest.raises(UserError, match="404") as caught:
            fetch(web(answer(404)), context(tmp_path))
        assert caught.value.reason == "SourceNotFound"

    def test_too_large_is_refused_before_it_fills_the_disk(self, web: Callable[[Handler], str],
                                                           tmp_path: Path) -> None:
        with pytest.raises(UserError) as caught:
            fetch(web(answer(200, b"x" * 64)), context(tmp_path, size_limit=32))
        assert caught.value.reason == "SourceTooLarge"
        assert list((tmp_path / "scratch").iterdir()) == []

    def test_a_redirect_may_not_leave_encryption(self, web: Callable[[Handler], str], tmp_path: Path) -> None:
        def redirect(request: http.server.BaseHTTPRequestHandler) -> None:
            request.send_response(302)
            request.send_header("Location", "http://models.invalid/else")
            request.send_header("Content-Length", "0")
            request.end_headers()

        with pytest.raises(UserError, match="not encrypted"):
            fetch(web(redirect), context(tmp_path))

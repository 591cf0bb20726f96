"""The same mistakes as in findings 1, 6 and 8, in readers of sources: what is announced is not what is there, settings
that name programs, and redirects to this machine."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path

import httpx
import pytest

from enginewright_builder.data.files import read_samples
from enginewright_builder.errors import UserError
from enginewright_builder.models.pooling import read_sentence_modules
from enginewright_builder.sources.base import FetchContext
from enginewright_builder.sources.fetching import fetch
from enginewright_builder.sources.formats import check_config


@pytest.mark.parametrize("shape", ["(1099511627776,)", "(99999999999, 0)", "(-1,)", "(3, 1099511627776)"])
def test_samples_that_are_promised_are_there(shape: str, tmp_path: Path) -> None:
    """An array is made before it is read: a header of 60 bytes asked for terabytes."""
    line = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line)
    (tmp_path / "s.npz").write_bytes(file.getvalue())
    with pytest.raises(UserError) as caught:
        read_samples(tmp_path / "s.npz")
    assert caught.value.reason == "EvaluationDataInvalid"
    assert "promises" in caught.value.message or "samples, of shape" in caught.value.message or "zero" in str(
        caught.value)


@pytest.mark.parametrize("config", [
    {"text_config": {"auto_map": {"AutoModel": "evil.Model"}}}, {"_attn_implementation": "org/kernel"},
    {"sub": [{"attn_implementation": {"text": "org/kernel"}}]}, {"architectures": {"0": "pipeline"}},
    {"architectures": [1]},
])
def test_settings_bring_no_code(config: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError) as caught:
        check_config(tmp_path / "config.json")
    assert caught.value.reason in ("UnsupportedModel", "SourceCorrupt")


@pytest.mark.parametrize("step", ["../elsewhere", "/etc", ".git"])
def test_steps_of_a_model_lie_in_its_folder(step: str, tmp_path: Path) -> None:
    net = tmp_path / "net"
    for folder in (net / ".git", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"pooling_mode": "mean"}')
    (net / "modules.json").write_text(json.dumps([{"type": "Pooling", "path": step}]))
    with pytest.raises(UserError, match="is not a part of the folder"):
        read_sentence_modules(net)


@pytest.mark.parametrize("following", [
    "https://127.0.0.1/x", "https://localhost/x", "https://169.254.169.254/latest", "https://[::1]/x",
    "https://[fe80::1]/x", "https://[::ffff:169.254.169.254]/x", "https://0.0.0.0/x", "http://127.0.0.1/x",
    "http://elsewhere.example/x", "ftp://elsewhere.example/x", "file:///etc/passwd",
])
def test_no_redirect_leads_to_this_machine_or_in_the_clear(following: str, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the client itself, with answers of our own: whoever serves the source names the next address."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"location": following}) if len(asked) == 1 else httpx.Response(
            200, content=b"inside")

    client = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **options: client(**options, transport=httpx.MockTransport(answer)))
    with pytest.raises(UserError) as caught:
        fetch("https://models.example/m.onnx", FetchContext(mounts={}, scratch=tmp_path))
    assert caught.value.reason == "SourceUriInvalid"
    assert asked == ["https://models.example/m.onnx"]


@pytest.mark.parametrize("uri", ["https://models.example/a%2F..", "https://models.example/%00",
                                 f"https://models.example/{'a' * 300}"])
def test_the_name_of_a_file_is_one(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        fetch(uri, FetchContext(mounts={}, scratch=tmp_path))
    assert caught.value.reason == "SourceUriInvalid"

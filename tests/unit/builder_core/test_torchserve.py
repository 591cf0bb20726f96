"""Archives of TorchServe: weights are taken, pickles are refused, and code is never even unpacked."""

from __future__ import annotations

import dataclasses
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder.contract import BuildRequest, SourceRequest
from enginewright_builder.errors import UserError
from enginewright_builder.pipeline import run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.resolve import resolve
from enginewright_builder.sources.digest import file_sha256
from enginewright_builder.sources.formats import Located, locate
from support.inputs.torchserve import HANDLER, write_mar

PICKLE = pickle.dumps({"weight": 1}, protocol=2)


def files(located: Located) -> list[str]:
    return sorted(str(path.relative_to(located.path)) for path in located.path.rglob("*") if path.is_file())


def refused(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        locate(path, "auto", path.parent / "unpacked")
    return caught.value


@pytest.fixture
def onnx_bytes(perceptron: Path) -> bytes:
    return perceptron.read_bytes()


@pytest.fixture
def weights(safetensors: Callable[..., Path]) -> bytes:
    return safetensors().read_bytes()


def test_the_file_that_the_manifest_names_is_taken_and_the_handler_is_said_to_be_lost(
        onnx_bytes: bytes, tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"model.onnx": onnx_bytes, "index_to_name.json": b"{}"},
                     serializedFile="model.onnx", handler="image_classifier")
    located = locate(path, "onnx", tmp_path / "unpacked")
    assert (located.format, located.path) == ("onnx", tmp_path / "unpacked" / "model.onnx")
    assert located.path.read_bytes() == onnx_bytes
    (note,) = located.notes
    assert "handler image_classifier does not run" in note


def test_safetensors_are_taken_before_the_pickle_beside_them_and_code_stays_packed(
        weights: bytes, tmp_path: Path) -> None:
    members = {"pytorch_model.bin": PICKLE, "model.safetensors": weights, "config.json": b"{}",
               "vocab/words.txt": b"a", "handler.py": HANDLER, "net.PY": HANDLER, "ops.so": b"x"}
    path = write_mar(tmp_path / "m.mar", members, serializedFile="pytorch_model.bin", modelFile="net.PY",
                     handler="handler.py")
    located = locate(path, "auto", tmp_path / "unpacked")
    assert (located.format, located.path) == ("huggingface", tmp_path / "unpacked")
    assert files(located) == ["config.json", "model.safetensors", "pytorch_model.bin", "vocab/words.txt"]
    ignored, code, handler = located.notes
    assert "pytorch_model.bin" in ignored
    assert code == "left out code in m.mar, which is never run: handler.py, net.PY, ops.so"
    assert "handler.py does not run" in handler


def test_what_an_earlier_try_left_is_gone(weights: bytes, tmp_path: Path) -> None:
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked" / "model.onnx").write_bytes(b"of another archive")
    path = write_mar(tmp_path / "m.mar", {"model.safetensors": weights, "config.json": b"{}"}, handler="handler.py")
    assert files(locate(path, "auto", tmp_path / "unpacked")) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(("model", "says"), [
    ({"modelFile": "net.py"}, "m.mar holds its weights as pickle (model.pth, of a class in net.py)"),
    ({}, "m.mar holds its weights as pickle (model.pth)"),
])
def test_pickles_are_refused_by_name(model: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"model.pth": PICKLE, "net.py": HANDLER}, serializedFile="model.pth", **model)
    error = refused(path)
    assert (error.reason, error.message) == ("PickleRefused", says)
    assert "safetensors" in error.remedy


def test_weights_alone_say_what_is_missing(weights: bytes, tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"model.safetensors": weights}, serializedFile="model.safetensors")
    assert refused(path).reason == "FormatUnknown"


def test_an_archive_without_weights_says_what_it_holds(tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"handler.py": HANDLER, "labels.json": b"{}"}, handler="handler.py")
    error = refused(path)
    assert error.reason == "FormatUnknown"
    assert "labels.json" in error.message


@pytest.mark.parametrize(("members", "model", "says"), [
    pytest.param({"a": b""}, {"serializedFile": "model.pt"}, "names 'model.pt', which is not in it", id="missing"),
    pytest.param({"a": b""}, {"serializedFile": "../x.onnx"}, "names '../x.onnx'", id="named outside"),
    pytest.param({"../../x.onnx": b""}, {}, "'../../x.onnx' is no name of a file", id="outside"),
    pytest.param({"/etc/x.onnx": b""}, {}, "'/etc/x.onnx' is no name of a file", id="absolute"),
    pytest.param({"a": b"", "a/b": b""}, {}, "no whole archive", id="file and folder"),
    pytest.param({"x": b"\0" * (80 << 20)}, {}, "promise more bytes", id="bomb"),
    pytest.param({"a": b""}, {"serializedFile": 3}, "serializedFile in MAR-INF/MANIFEST.json is no text", id="number"),
])
def test_odd_archives_are_corrupt_and_write_nothing_elsewhere(members: dict[str, bytes], model: dict[str, Any],
                                                              says: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    error = refused(write_mar(folder / "m.mar", members, **model))
    assert error.reason == "SourceCorrupt"
    assert says in error.message
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert [one.name for one in (tmp_path / "a").iterdir()] == ["b"]


@pytest.mark.parametrize("manifest", ["[]", "{}", '{"model": []}', "{", "\xff", "[" * 100_000])
def test_a_manifest_that_is_none_is_corrupt(manifest: str, tmp_path: Path) -> None:
    path = tmp_path / "m.mar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", manifest.encode("latin-1"))
    assert refused(path).reason == "SourceCorrupt"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_corrupt(onnx_bytes: bytes, tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"model.onnx": onnx_bytes}, serializedFile="model.onnx")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model.onnx", b"other")
    assert "twice" in refused(path).message


def test_a_flipped_byte_is_corrupt(onnx_bytes: bytes, tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"model.onnx": onnx_bytes}, serializedFile="model.onnx")
    content = bytearray(path.read_bytes())
    content[200] ^= 0xFF
    path.write_bytes(content)
    assert refused(path).reason == "SourceCorrupt"


def test_another_format_than_the_user_named_is_told(onnx_bytes: bytes, tmp_path: Path) -> None:
    path = write_mar(tmp_path / "m.mar", {"model.onnx": onnx_bytes}, serializedFile="model.onnx")
    with pytest.raises(UserError, match="the source is onnx, not torchscript"):
        locate(path, "torchscript", tmp_path / "unpacked")


def of_a_claim(request_for: Callable[..., BuildRequest], folder: Path) -> BuildRequest:
    return dataclasses.replace(request_for(folder), source=SourceRequest(uri="pvc://models/m.mar"),
                               mounts={"models": str(folder)})


def test_the_digest_is_that_of_the_archive_and_nothing_is_written_beside_it(
        onnx_bytes: bytes, request_for: Callable[..., BuildRequest], tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    claim.mkdir()
    path = write_mar(claim / "m.mar", {"model.onnx": onnx_bytes}, serializedFile="model.onnx", handler="handler.py")
    found = resolve(of_a_claim(request_for, claim), tmp_path / "scratch")
    assert (found.source.format, found.source.digest) == ("onnx", f"sha256:{file_sha256(path)}")
    assert found.source.size_bytes == path.stat().st_size
    assert any("handler.py does not run" in note for note in found.notes)
    assert [one.name for one in claim.iterdir()] == ["m.mar"]


def test_a_file_in_it_is_called_as_the_user_called_the_archive(
        weights: bytes, request_for: Callable[..., BuildRequest], tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    claim.mkdir()
    write_mar(claim / "m.mar", {"model.safetensors": weights}, serializedFile="model.safetensors")
    outcome = run_resolve(of_a_claim(request_for, claim), tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.value) == ("FormatUnknown", "pvc://models/m.mar/model.safetensors")
    assert str(tmp_path) not in f"{outcome.error.message} {outcome.error.remedy}"

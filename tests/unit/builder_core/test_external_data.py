"""Graphs with their weights in files beside them: digest and signature hold for all of it."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from enginewright_builder.contract import BuildRequest, SignatureRequest
from enginewright_builder.errors import UserError
from enginewright_builder.pipeline import run_resolve
from enginewright_builder.progress import JsonLines, Tracker
from enginewright_builder.sources.digest import content_digest, file_sha256
from enginewright_builder.sources.external_data import external_files
from enginewright_builder.sources.signature import check_signature
from support.signing import new_key, sign

Make = Callable[..., BuildRequest]


@pytest.fixture
def graph(perceptron: Path, tmp_path: Path) -> Path:
    """``m.onnx`` with each of its tensors in a file of its own."""
    folder = tmp_path / "model"
    folder.mkdir()
    model = onnx.load(str(perceptron))
    onnx.save(model, str(folder / "m.onnx"), save_as_external_data=True, all_tensors_to_one_file=False,
              size_threshold=0)
    return folder / "m.onnx"


def beside(graph: Path) -> list[Path]:
    return sorted(file for file in graph.parent.iterdir() if file != graph)


def spoil(file: Path) -> None:
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))


def constant(location: str) -> onnx.TensorProto:
    """One number that lies in ``location``."""
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="length", value="4")
    return tensor


def with_constant(path: Path, location: str, *, inner: bool = False, initializer: bool = False) -> Path:
    """A graph whose only tensor is a node's attribute, an ``inner`` graph's node's, or an initializer."""
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    node = helper.make_node("Constant", [], ["y"], value=constant(location))
    if initializer:
        node = helper.make_node("Identity", ["c"], ["y"])
    if inner:
        then = helper.make_graph([node], "inner", [], [output])
        node = helper.make_node("If", ["x"], ["y"], then_branch=then, else_branch=then)
    made = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.BOOL, [1])], [output],
                             [constant(location)] if initializer else [])
    path.write_bytes(helper.make_model(made).SerializeToString())
    return path


def test_every_file_beside_the_graph_counts_in_its_digest(graph: Path) -> None:
    files = beside(graph)
    assert len(files) > 1
    digests = [content_digest(graph)]
    for file in files:
        spoil(file)
        digests.append(content_digest(graph))
    assert len(set(digests)) == len(digests)


def test_the_digest_is_what_its_documentation_says(graph: Path) -> None:
    lines = ["enginewright-onnx-v1", file_sha256(graph), *(f"{file_sha256(one)}  {one.name}" for one in beside(graph))]
    text = "".join(f"{line}\n" for line in lines)
    assert content_digest(graph) == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_a_graph_that_is_one_file_keeps_the_digest_that_sha256sum_gives(perceptron: Path, tmp_path: Path) -> None:
    for path in (perceptron, tmp_path / "text", tmp_path / "archive", tmp_path / "empty"):
        if path != perceptron:
            path.write_bytes({"text": b"abc", "archive": b"PK\x03\x04abc", "empty": b""}[path.name])
        assert content_digest(path) == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("where", [{}, {"inner": True}, {"initializer": True}],
                         ids=["attribute", "inner graph", "initializer"])
def test_tensors_are_found_wherever_a_graph_has_them(where: dict[str, bool], tmp_path: Path) -> None:
    path = with_constant(tmp_path / "m.onnx", "c.bin", **where)
    (tmp_path / "c.bin").write_bytes(b"1234")
    assert [file.path for file in external_files(path)] == [tmp_path / "c.bin"]
    before = content_digest(path)
    spoil(tmp_path / "c.bin")
    assert content_digest(path) != before


def test_samples_are_no_graph_whatever_they_name(tmp_path: Path) -> None:
    path = with_constant(tmp_path / "samples", "c.bin")
    assert content_digest(path, "spec.accuracy.evaluation.uri") == f"sha256:{file_sha256(path)}"


@pytest.mark.parametrize(("location", "words"), [
    ("../secret", "'../secret', outside its folder"), ("{tmp}/secret", "outside its folder"),
    ("link", "'link', outside its folder"), ("gone", "'gone', which is missing"), (".", "which is missing"),
])
@pytest.mark.parametrize("initializer", [False, True])
def test_what_is_not_in_the_folder_is_refused(location: str, words: str, *, initializer: bool, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1234")
    (tmp_path / "model").mkdir()
    os.symlink(tmp_path / "secret", tmp_path / "model" / "link")
    path = with_constant(tmp_path / "model" / "m.onnx", location.format(tmp=tmp_path), initializer=initializer)
    with pytest.raises(UserError, match="takes weights from") as caught:
        content_digest(path)
    assert caught.value.reason == "SourceCorrupt"
    assert caught.value.field == "spec.source.uri"
    assert words in caught.value.message
    assert "one folder and name that" in caught.value.remedy


@pytest.fixture
def signed(tmp_path: Path) -> Callable[[Path, Path], SignatureRequest]:
    new_key(tmp_path / "ours")

    def signed_as(model: Path, signature: Path) -> SignatureRequest:
        sign(model, signature, tmp_path / "ours.key")
        return SignatureRequest(key_path=str(tmp_path / "ours.pub"), key_name="ConfigMap keys/pub")

    return signed_as


def test_a_signature_of_the_graph_alone_is_refused(graph: Path, signed: Callable[[Path, Path], SignatureRequest],
                                                   request_for: Make, tmp_path: Path) -> None:
    asked = signed(graph, graph.parent / "m.onnx.sig")
    for file in beside(graph):
        if file.suffix != ".sig":
            spoil(file)
    outcome = run_resolve(request_for(graph, signature=asked), tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is not None
    assert (outcome.error.reason, outcome.error.field) == ("SignatureInvalid", "spec.source.uri")
    assert "does not cover" in outcome.error.message
    assert "name the folder" in outcome.error.remedy


def test_a_signature_of_the_folder_covers_them(graph: Path, signed: Callable[[Path, Path], SignatureRequest]) -> None:
    asked = signed(graph.parent, graph.parent / "model.sig")
    check_signature(graph.parent, asked)
    spoil(beside(graph)[0])
    with pytest.raises(UserError, match="not what was signed"):
        check_signature(graph.parent, asked)


def test_a_graph_is_not_looked_into_before_its_signature_is_right(
        graph: Path, signed: Callable[[Path, Path], SignatureRequest], request_for: Make, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    asked = signed(graph, graph.parent / "m.onnx.sig")
    spoil(graph)
    monkeypatch.setattr(onnx, "load", lambda *_, **__: pytest.fail("opened"))
    outcome = run_resolve(request_for(graph, signature=asked), tmp_path / "scratch", Tracker(JsonLines(io.StringIO())))
    assert outcome.error is not None
    assert outcome.error.reason == "SignatureInvalid"
    assert "not what was signed" in outcome.error.message

"""What a build leaves for its proof comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from enginewright_builder.contract import (
    BuildRequest,
    ContractError,
    Interface,
    ResolvedSource,
    SourceRequest,
    TensorSpec,
    to_plain,
)
from enginewright_builder.engines.base import Artifact, BatchRange, Joined, Member, Rung
from enginewright_builder.engines.composite import combine
from enginewright_builder.hand_over import (
    DOCUMENT,
    Counted,
    Handed,
    HandOver,
    Keeper,
    KeptCase,
    Plain,
)
from enginewright_builder.report.model import AccuracyEvidence, Hardware, Reference
from enginewright_builder.triton.smoke_record import SmokeSamples

INTERFACE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 2)),))
JOINED = Joined(mask="mask", fill={"x": 1.0, "mask": 0.0}, cut={"y": (1, 2)}, run_positions=3.5, steps=(8, 12))
ROWS = {"x": np.arange(6, dtype=np.float32).reshape(3, 2)}


def artifact(folder: Path, precision: str) -> Artifact:
    path = folder / f"{precision}.onnx"
    path.write_bytes(precision.encode())
    return Artifact(rung=Rung(backend="onnxruntime", precision=precision,
                              ranges=(BatchRange(low=1, best=4, high=8),)), files={"model.onnx": path},
                    triton_backend="python", interface=INTERFACE, runtime_version="onnxruntime 1",
                    parameters={"threads": "2"}, in_python={"buckets": "1,4"} if precision == "fp32" else None,
                    graph=path, graph_seconds=3.0)


def leave(folder: Path, tmp_path: Path) -> Artifact:
    """Of two engines, of which the wide one serves twice and is served plainly as well."""
    wide, narrow = artifact(tmp_path, "fp32"), artifact(tmp_path, "int8")
    whole = combine([Member(up_to=1, artifact=wide), Member(up_to=4, artifact=narrow), Member(up_to=8, artifact=wide)])
    keeper = Keeper(folder)
    served = keeper.served(whole, 8)
    plain = Plain(name="onnxruntime fp32", engine=keeper.engine(wide))
    keeper.write(HandOver(
        request=BuildRequest(model_name="m", source=SourceRequest(uri="pvc://models/m")),
        source=ResolvedSource(digest="sha256:1", format="onnx", size_bytes=3), name="both", shipped=("a", "b"),
        speedup=2.0, fallback="", engines=keeper.engines, served=served, plain=plain, candidates=(),
        accuracy=AccuracyEvidence(metric="cosine", value=1.0, low=0.99, tolerance=0.01, samples=3,
                                  evaluation="held-out"),
        reference=Reference(name="onnx", batch=8), figures=(), counted=Counted(notes=("not counted",)), drift={},
        hardware=Hardware(device="a CPU", cores=2, memory_bytes=1, architecture="amd64"), notes=("a note",),
        requests=tuple(keeper.tensors({"x": ROWS["x"][row:row + 1]}) for row in range(3)), warmup=keeper.tensors(ROWS),
        cases=(KeptCase(inputs=keeper.tensors(ROWS), expected=keeper.tensors({"y": ROWS["x"] * 2})),),
        smoke=keeper.smoke(SmokeSamples(inputs=ROWS, reference=ROWS, batches=(1, 8), gated=({}, ROWS))),
        mixed=(KeptCase(inputs=keeper.tensors(ROWS), expected=keeper.tensors({"y": ROWS["x"]})),), joined=JOINED,
        steps={"ladder": 1.5}, spent=2.5))
    return whole


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "hand-over"


def test_it_comes_back_as_it_was(folder: Path, tmp_path: Path) -> None:
    whole = leave(folder, tmp_path)
    handed = Handed(folder)
    back = handed.artifact
    assert (back.rung, sorted(back.files), back.triton_backend) == (whole.rung, sorted(whole.files), "python")
    assert {name: path.read_bytes() for name, path in back.files.items()} == {
        name: path.read_bytes() for name, path in whole.files.items()}
    first, second, third = back.members
    assert first.artifact is third.artifact is not second.artifact
    assert (first.artifact.parameters, first.artifact.rung) == ({"threads": "2"}, whole.members[0].artifact.rung)
    assert handed.plain == ("onnxruntime fp32", first.artifact)
    assert [one["x"].tolist() for one in handed.requests] == [[[0.0, 1.0]], [[2.0, 3.0]], [[4.0, 5.0]]]
    assert back.joined == JOINED
    [mixed] = handed.mixed
    assert np.array_equal(mixed.expected["y"], ROWS["x"])
    [case] = handed.cases
    assert np.array_equal(case.expected["y"], ROWS["x"] * 2)
    assert handed.smoke is not None
    assert (handed.smoke.batches, handed.smoke.count) == ((1, 8), 3)
    assert [sorted(one) for one in handed.smoke.gated] == [[], ["x"]]
    assert np.array_equal(handed.smoke.gated[1]["x"], ROWS["x"])
    document = handed.document
    assert (document.counted.notes, document.steps, document.spent) == (("not counted",), {"ladder": 1.5}, 2.5)


def test_tensors_are_in_the_shapes_that_clients_send(folder: Path, tmp_path: Path) -> None:
    """One number a sample behind the batch, and of a whole call what it has."""
    leave(folder, tmp_path)
    numbers = np.arange(3, dtype=np.float32)
    for file in (folder / "arrays").iterdir():
        np.save(file, numbers)
    _declare(folder, ["batch"])
    handed = Handed(folder)
    assert handed.smoke is not None
    for sent in (handed.requests[0], handed.warmup, handed.cases[0].inputs, handed.mixed[0].inputs,
                 handed.smoke.inputs, handed.smoke.request(3)):
        assert sent["x"].tolist() == [[0.0], [1.0], [2.0]]
    assert handed.cases[0].expected["y"].shape == handed.smoke.reference["x"].shape == (3, 1)
    for file in (folder / "arrays").iterdir():
        np.save(file, numbers[None])
    _declare(folder, [3])
    whole = Handed(folder)
    assert whole.smoke is not None
    for sent in (whole.requests[0], whole.cases[0].expected, whole.smoke.request(1)):
        assert [array.tolist() for array in sent.values()] == [[0.0, 1.0, 2.0]]


def _declare(folder: Path, shape: list[int | str]) -> None:
    told = json.loads((folder / DOCUMENT).read_text())
    for engine in told["engines"]:
        engine["interface"]["inputs"][0]["shape"] = shape
    (folder / DOCUMENT).write_text(json.dumps(told))


def test_what_lay_there_before_is_gone(folder: Path, tmp_path: Path) -> None:
    (folder / "staging").mkdir(parents=True)
    (folder / "staging" / "report.html").write_text("of a build that was cut off")
    leave(folder, tmp_path)
    assert list(Handed(folder).staging.iterdir()) == []


Change = Callable[[dict[str, Any]], Any]


def _into(document: dict[str, Any], key: str, value: Any) -> None:
    document[key] = value


@pytest.mark.parametrize(("change", "words"), [
    (lambda told: told.pop("cases"), "cases"),
    (lambda told: _into(told, "cases", []), "at least one"),
    (lambda told: _into(told, "more", 1), "more"),
    (lambda told: _into(told, "version", 2), "version"),
    (lambda told: _into(told, "spent", "2"), "spent"),
    (lambda told: _into(told, "requests", []), "requests"),
    (lambda told: _into(told, "requests", [{}]), "requests"),
    (lambda told: _into(told["joined"], "more", 1), "more"),
    (lambda told: _into(told, "served", []), "served"),
    (lambda told: _into(told["served"][0], "engine", 7), r"names engines \[7"),
    (lambda told: _into(told["served"][0], "up_to", 9), "largest batches"),
    (lambda told: _into(told["plain"], "engine", -1), "names engines"),
    (lambda told: _into(told["engines"][0], "files", ["../../store/model.onnx"]), "file name"),
    (lambda told: _into(told["requests"][0], "x", "/etc/passwd"), "file name"),
    (lambda told: _into(told["smoke"]["inputs"], "x", "a/../../b"), "file name"),
    (lambda told: _into(told["mixed"][0]["inputs"], "x", "../b"), "file name"),
], ids=["no case given", "no case", "a field more", "version", "type", "no request", "an empty request",
        "a field more of lengths", "nobody serves", "no such engine", "out of order", "no such plain engine",
        "engine elsewhere", "array elsewhere", "array above", "mixed array above"])
def test_anything_else_is_refused(change: Change, words: str, folder: Path, tmp_path: Path) -> None:
    leave(folder, tmp_path)
    told = json.loads((folder / DOCUMENT).read_text())
    change(told)
    (folder / DOCUMENT).write_text(json.dumps(told))
    with pytest.raises(ContractError, match=words):
        Handed(folder)


def test_no_program_comes_with_an_array(folder: Path, tmp_path: Path) -> None:
    leave(folder, tmp_path)
    handed = Handed(folder)
    np.save(folder / "arrays" / handed.document.requests[0]["x"], np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        _ = handed.requests


def test_a_document_is_plain_json(folder: Path, tmp_path: Path) -> None:
    leave(folder, tmp_path)
    told = Handed(folder).document
    assert json.loads((folder / DOCUMENT).read_text()) == to_plain(replace(told))

"""Rows by ranges, and the folder of answers: what has a name is whole, and belongs to one run."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from enginewright_builder.contract import Interface, TensorSpec, shard_range
from enginewright_builder.errors import BuilderError, UserError
from enginewright_builder.offline.answers import Answers, Run, begin, publish
from enginewright_builder.offline.asking import Asker, Served, served
from enginewright_builder.offline.rows import data_format, open_rows
from enginewright_builder.offline.shard import Asked, run_shard
from enginewright_builder.tensors import Array

ENGINE = "a" * 64


def a_run(**changes: object) -> Run:
    return Run(**{"engine": ENGINE, "input": "sha256:1", "rows": 10, "shards": 3, "chunk_rows": 2, "format": "npz",
                  "bytes": 5, "modified": 7, **changes})  # type: ignore[arg-type]


@given(total=st.integers(0, 10_000), shards=st.integers(1, 300), chunk=st.integers(1, 500))
def test_files_of_all_shards_cover_each_row_once_and_sort_in_their_order(total: int, shards: int, chunk: int) -> None:
    answers = Answers(Path("out"), a_run(rows=total, shards=shards, chunk_rows=chunk))
    chunks = [one for shard in range(shards) for one in answers.chunks(shard)]
    assert [row for one in chunks for row in one] == list(range(total))
    assert [answers.path(one).name for one in chunks] == sorted(answers.path(one).name for one in chunks)
    sizes = [len(shard_range(total, shards, shard)) for shard in range(shards)]
    assert max(sizes) - min(sizes) <= 1


def test_a_name_is_given_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    assert publish(tmp_path / "a", b"first")
    assert not publish(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_was_being_written_has_no_name_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a kill leaves it, which runs nothing that cleans up."""
    answers = begin(tmp_path, a_run(shards=1, rows=2))
    (chunk,) = answers.chunks(0)

    def killed(*given: object, **more: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", killed)
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(SystemExit):
            answers.write(chunk, [{"y": np.ones(2)}] * 2)
    (left,) = [path for path in tmp_path.iterdir() if path.name != "run.json"]
    assert left.name.startswith(".answers-")
    assert answers.missing(0) == [chunk]
    answers.write(chunk, [{"y": np.ones(2)}] * 2)
    answers.finish(0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [answers.path(chunk).name, "run.json",
                                                                "shard-000000.json"]


@pytest.mark.parametrize(("changes", "words"), [
    ({"engine": "b" * 64}, "another engine"), ({"input": "sha256:2"}, "another input"),
    ({"shards": 4}, "another number of shards"), ({"format": "jsonl"}, "another format")])
def test_a_folder_of_another_run_is_refused(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    begin(tmp_path, a_run())
    assert begin(tmp_path, a_run(chunk_rows=5, modified=8)).run == a_run()  # files keep their rows
    with pytest.raises(UserError, match=words):
        begin(tmp_path, a_run(**changes))


@pytest.mark.parametrize("name", ["answers-000000000000-000000000002.npz", "run.json"])
def test_a_folder_that_does_not_say_what_it_has_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{")
    with pytest.raises(UserError, match=r"run\.json"):
        begin(tmp_path, a_run())


def test_a_file_system_without_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*given: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UserError, match="without hard links") as caught:
        begin(tmp_path, a_run())
    assert caught.value.field == "spec.batch.output.uri"
    assert list(tmp_path.iterdir()) == []


def test_texts_and_what_json_has_no_word_for(tmp_path: Path) -> None:
    values = [{"y": np.array([1.5, np.nan, -np.inf], np.float32), "word": np.array([b"gr\xc3\xbcn"], np.object_)},
              {"y": np.array([0.1, 2, 3], np.float32), "word": np.array([b"a"], np.object_)}]
    lines = begin(tmp_path / "lines", a_run(shards=1, rows=2, format="jsonl"))
    lines.write(lines.chunks(0)[0], values)
    found = [json.loads(line) for line in lines.path(lines.chunks(0)[0]).read_text().splitlines()]
    assert found[0] == {"y": [1.5, None, None], "word": ["grün"]}
    assert np.float32(found[1]["y"][0]) == values[1]["y"][0]  # a number comes back as it was
    arrays = begin(tmp_path / "arrays", a_run(shards=1, rows=2))
    arrays.write(arrays.chunks(0)[0], values)
    back = np.load(arrays.path(arrays.chunks(0)[0]), allow_pickle=False)
    assert back["word"].tolist() == [["grün"], ["a"]]
    np.testing.assert_array_equal(back["y"], [one["y"] for one in values])
    with pytest.raises(UserError, match="differ in their shape"):
        arrays.write(range(1), [values[0], {**values[1], "y": np.ones(2)}])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_read_by_ranges_and_again(tmp_path: Path, save: object) -> None:
    x, y = np.arange(60, dtype=np.int32).reshape(10, 3, 2), np.arange(10, dtype=np.float16)
    save(tmp_path / "rows.npz", x=x, y=y)  # type: ignore[operator]
    with open_rows(tmp_path / "rows.npz") as rows:
        assert (rows.count, rows.row_bytes) == (10, 26)
        for start, stop in ((0, 4), (4, 6), (9, 10), (2, 3), (5, 5)):
            found = rows.read(start, stop).rows
            assert [row["x"].tolist() for row in found] == x[start:stop].tolist()
            assert [row["y"] for row in found] == list(y[start:stop])


def test_lines_are_read_by_ranges_and_again(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"x": [{number}]}}\n\n' for number in range(10)))
    with open_rows(tmp_path / "rows.jsonl") as rows:
        assert rows.count == 10
        for start, stop in ((0, 4), (4, 6), (9, 10), (2, 3)):
            assert [row["x"][0] for row in rows.read(start, stop).rows] == list(range(start, stop))
        with pytest.raises(UserError, match="ends before row 11"):
            rows.read(9, 12)


@pytest.mark.parametrize(("arrays", "words"), [
    ({"x": np.ones(3), "y": np.ones(4)}, "differ in their number of rows"), ({"x": np.float32(1)}, "differ"),
    ({}, "no arrays"), ({"x": np.array([{}], np.object_)}, "expected numbers"),
    ({"x": np.asfortranarray(np.ones((3, 2)))}, "Fortran")])
def test_archives_that_are_no_rows_are_refused(tmp_path: Path, arrays: dict[str, Array], words: str) -> None:
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(UserError, match=words) as caught:
        open_rows(tmp_path / "rows.npz")
    assert (caught.value.reason, caught.value.field) == ("BatchInputInvalid", "spec.batch.input.uri")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04torn")
    (tmp_path / "half.jsonl").write_bytes(b'{"x": [1]}\n{"x": "\xff"}\n')
    for name, words in (("rows.csv", "neither"), ("missing.npz", "not there")):
        with pytest.raises(UserError, match=words):
            data_format(tmp_path / name)
    with pytest.raises(UserError, match="cannot be read"):
        open_rows(tmp_path / "torn.npz")
    with open_rows(tmp_path / "half.jsonl") as rows, pytest.raises(UserError, match=r"half\.jsonl:2: is not UTF-8"):
        rows.read(0, 2)


def test_a_shard_that_is_not_there_is_refused(tmp_path: Path) -> None:
    asked = Asked(input=tmp_path / "rows.npz", output=tmp_path / "out", engine=ENGINE, model="net", shard=2, shards=2,
                  http="127.0.0.1:1", grpc="127.0.0.1:1", ready_seconds=0)
    with pytest.raises(UserError, match="there is no shard 2 of 2") as caught:
        run_shard(asked, lambda *told: None)
    assert (caught.value.reason, caught.value.field) == ("BatchShardInvalid", "--shard")


X = TensorSpec(name="x", dtype="float32", shape=("batch", 2))


@pytest.mark.parametrize(("about", "words"), [
    ({}, "serves no model 'net'"),
    ({"inputs": [{"name": "x", "datatype": "BF16", "shape": [-1, 2]}], "outputs": []}, "'x' is BF16"),
])
def test_a_model_that_cannot_be_asked_is_refused(about: dict[str, Any], words: str) -> None:
    async def described(model: str) -> tuple[dict[str, Any], dict[str, Any]]:
        return about, {"max_batch_size": 4} if about else {}

    server = SimpleNamespace(described=described, address=SimpleNamespace(http="127.0.0.1:8000"))
    with pytest.raises(UserError, match=words) as caught:
        asyncio.run(served(cast("Any", server), "net"))
    assert (caught.value.reason, caught.value.field) == ("ModelNotServed", "--model")


def test_another_number_of_answers_than_rows_is_no_answer() -> None:
    one = service_pb2.ModelInferResponse(raw_output_contents=[bytes(8)])
    one.outputs.add(name="y", datatype="FP32", shape=[1, 2])

    async def call(payload: bytes, seconds: float) -> bytes:
        return bytes(one.SerializeToString())

    about = Served(model="net", batch=4, interface=Interface(inputs=(X,)), instances=1)
    asker = Asker(cast("Any", SimpleNamespace(ready_seconds=0)), cast("Any", SimpleNamespace(call=call)), about, 1)
    with pytest.raises(BuilderError, match=r"2 rows were asked, and output 'y' has shape \[1, 2\]") as caught:
        asyncio.run(asker.answers([{"x": np.zeros(2, np.float32)}] * 2))
    assert caught.value.reason == "BatchAnswerInvalid"

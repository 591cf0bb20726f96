"""Evaluation and calibration files: what is read, and how a wrong one is told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from enginewright_builder.contract import AccuracyRequest, Interface, TensorSpec
from enginewright_builder.data.files import (
    CALIBRATION,
    SampleFile,
    check_against,
    note_left_out,
    note_rounded,
    read_samples,
)
from enginewright_builder.data.sample_keys import row_key, text_key
from enginewright_builder.data.sets import gate_samples, held_apart, sample_set, synthetic_set
from enginewright_builder.errors import UserError
from enginewright_builder.models.synthetic import example_inputs
from enginewright_builder.tensors import Array, Call, Tensors

IMAGE = Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 2)),))
TOKENS = Interface(inputs=(TensorSpec(name="input_ids", dtype="int64", shape=("batch", "1..4")),
                           TensorSpec(name="attention_mask", dtype="int64", shape=("batch", "1..4"))))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_npz_rows_are_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(6.0).reshape(3, 2))
    samples = check_against(read_samples(tmp_path / "d.npz"), IMAGE)
    assert len(samples) == 3
    assert samples.rows[2]["x"].tolist() == [4.0, 5.0]
    assert samples.rows[2]["x"].dtype == np.float32


def test_jsonl_takes_texts_or_tensors(tmp_path: Path) -> None:
    texts = read_samples(write(tmp_path / "t.jsonl", '{"text": "one"}\n\n{"text": "two"}\n'))
    assert texts.texts == ("one", "two")
    rows = check_against(read_samples(write(tmp_path / "r.jsonl", '{"x": [1, 2]}\n')), IMAGE)
    assert rows.rows[0]["x"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("name", "content", "told"), [
    ("e.jsonl", "", "no samples"),
    ("e.jsonl", "{oops\n", "e.jsonl:1: not JSON"),
    ("e.jsonl", "[1]\n", "expected an object"),
    ("e.jsonl", '{"text": "a"}\n{"x": [1]}\n', "mixed"),
    ("e.jsonl", '{"x": [[1], [1, 2]]}\n', "e.jsonl:1: x"),
    ("e.jsonl", '{"x": ["a"]}\n', "expected numbers"),
    ("e.jsonl", '{"text": "a"}\n{"text": "\\ud83d"}\n', "e.jsonl:2: text holds half a character"),
    ("e.npz", "not a zip", "cannot be read"),
    ("e.csv", "1,2", "neither .npz nor .jsonl"),
])
def test_unreadable_file_is_told(name: str, content: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        read_samples(write(tmp_path / name, content))
    assert (caught.value.reason, caught.value.field) == ("EvaluationDataInvalid", "spec.accuracy.evaluation.uri")
    assert caught.value.remedy


def test_half_a_character_is_told_whatever_the_input_is_called(tmp_path: Path) -> None:
    interface = Interface(inputs=(TensorSpec(name="query", dtype="string", shape=("batch", 2)),))
    path = write(tmp_path / "e.jsonl", '{"query": ["a", "b"]}\n{"query": ["a", "\\ud83d"]}\n')
    with pytest.raises(UserError, match="sample 1: query: text holds half a character"):
        check_against(read_samples(path, words=True), interface)


def test_texts_that_differ_in_white_space_are_one_sample() -> None:
    one, other = (row_key({"text": np.array([text], np.object_)}) for text in ("a  b", "a b\n"))
    assert one == other != row_key({"text": np.array(["ab"], np.object_)})


def test_texts_may_hold_what_ends_lines_elsewhere(tmp_path: Path) -> None:
    """As pages of the web do."""
    texts = [f"{place} one\u2028two\x85three" for place in range(20)]
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\r\n" for text in texts)
    assert list(read_samples(write(tmp_path / "t.jsonl", lines)).texts) == texts


def test_npz_that_holds_texts_is_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", text=np.array(["one", "two"]))
    with pytest.raises(UserError, match="text holds <U3, expected numbers") as caught:
        read_samples(tmp_path / "d.npz")
    assert "texts in .jsonl" in caught.value.remedy


def test_npz_that_is_damaged_or_a_bare_array_is_told(tmp_path: Path) -> None:
    whole = tmp_path / "d.npz"
    np.savez_compressed(whole, x=np.random.default_rng(0).normal(size=(500, 8)))
    content = bytearray(whole.read_bytes())
    content[2000:2100] = bytes(byte ^ 0xFF for byte in content[2000:2100])
    whole.write_bytes(content)
    with (tmp_path / "bare.npz").open("wb") as file:
        np.save(file, np.zeros((20, 3)))
    for path in (whole, tmp_path / "bare.npz"):
        with pytest.raises(UserError, match="cannot be read") as caught:
            read_samples(path)
        assert "numpy.savez" in caught.value.remedy


@pytest.mark.parametrize("arrays", [
    {}, {"x": np.zeros((0, 2))}, {"x": np.float32(1)}, {"x": np.zeros((3, 2)), "y": np.zeros((2, 2))},
    {"x": np.array([{"a": 1}], dtype=object)},
], ids=["nothing", "empty", "scalar", "uneven", "pickled"])
def test_npz_that_holds_no_samples(arrays: dict[str, Array], tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(UserError) as caught:
        read_samples(tmp_path / "d.npz", CALIBRATION)
    assert (caught.value.reason, caught.value.field) == ("CalibrationDataInvalid", "spec.engine.calibration.uri")


@pytest.mark.parametrize(("row", "got", "expected"), [
    ({"z": [1.0, 2.0]}, "has z", "takes x"),
    ({"x": [1.0, 2.0, 3.0]}, r"shape \[3\]", r"expected \[2\]"),
    ({"x": [[1.0, 2.0]]}, r"shape \[1, 2\]", r"expected \[2\]"),
    ({"x": [True, False]}, "is bool", "expected float32"),
])
def test_wrong_samples_say_what_was_got_and_what_is_expected(row: dict[str, list[object]], got: str,
                                                             expected: str) -> None:
    samples = SampleFile(rows=({name: np.asarray(value) for name, value in row.items()},))
    with pytest.raises(UserError, match=f"(?s){got}.*{expected}"):
        check_against(samples, IMAGE)


@pytest.mark.parametrize("shape", [("batch",), ("batch", 1)])
def test_one_number_is_written_as_such_or_as_a_list_of_it(shape: tuple[int | str, ...]) -> None:
    interface = Interface(inputs=(TensorSpec(name="user", dtype="int64", shape=shape),))
    samples = SampleFile(rows=({"user": np.array(5)}, {"user": np.array([7])}))
    assert [row["user"].tolist() for row in check_against(samples, interface).rows] == (
        [5, 7] if shape == ("batch",) else [[5], [7]])
    with pytest.raises(UserError, match=r"shape \[2\]"):
        check_against(SampleFile(rows=({"user": np.array([1, 2])},)), interface)


def test_fractions_are_no_tokens() -> None:
    samples = SampleFile(rows=({"input_ids": np.array([0.5]), "attention_mask": np.array([1])},))
    with pytest.raises(UserError, match="float64, expected int64"):
        check_against(samples, TOKENS)


def test_too_long_is_told_with_the_range() -> None:
    samples = SampleFile(rows=({"input_ids": np.ones(5, np.int64), "attention_mask": np.ones(5, np.int64)},))
    with pytest.raises(UserError, match=r"shape \[5\], expected \[1\.\.4\]"):
        check_against(samples, TOKENS)


def test_texts_need_a_model_that_takes_tokens() -> None:
    with pytest.raises(UserError, match="holds texts, but the model takes x"):
        check_against(SampleFile(texts=("a",)), IMAGE)


def test_keys_tell_equal_samples() -> None:
    one = SampleFile(texts=("a", "b "))
    assert set(one.keys()) & set(SampleFile(texts=("b",)).keys())
    assert one.without({one.keys()[0]}).texts == ("b ",)
    rows = SampleFile(rows=({"x": np.ones(2)}, {"x": np.zeros(2)}))
    assert len(set(rows.keys())) == 2
    assert len(rows.without({rows.keys()[1]})) == 1


class Words:
    """A model whose tokenizer counts letters."""

    name = "words"
    interface = TOKENS
    vocabulary, candidate = 7, ""
    notes: tuple[str, ...] = ()

    def tokenize(self, texts: Sequence[str]) -> Tensors:
        longest = max(map(len, texts))
        mask = np.array([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
        return {"input_ids": mask * 3, "attention_mask": mask}

    def run(self, inputs: Tensors) -> Tensors:
        return inputs

    def bind(self, inputs: Tensors) -> Call:
        return lambda: self.run(inputs)

    def export_onnx(self, path: Path, opset: int, precision: str = "fp32") -> None:
        raise NotImplementedError

    def torch_program(self, precision: str, batch: int = 0) -> None:
        raise NotImplementedError


def test_columns_follow_their_texts_into_batches() -> None:
    """Sorted by length; what is tokenised alike counts once."""
    file = SampleFile(texts=("ccc", "a", "bb", "x", "dddd"), columns={"length": (3, 1, 2, 9, 4)})
    assert sample_set(file, Words(), batch=2).columns == {"length": (1, 2, 3, 4)}


def test_texts_are_batched_by_length_with_little_padding() -> None:
    samples = sample_set(SampleFile(texts=("aaaa", "b", "cc", "ddd", "eeeee")), Words(), batch=2)
    assert [batch["input_ids"].shape for batch in samples.batches] == [(2, 2), (2, 4), (1, 5)]
    assert (samples.count, samples.repeated) == (5, 0)


def test_texts_that_are_tokenised_alike_count_once() -> None:
    samples = sample_set(SampleFile(texts=("a", "b", "cc", "dd", "eee")), Words(), batch=2)
    assert (samples.count, samples.repeated) == (3, 2)
    assert sorted(len(batch["input_ids"]) for batch in samples.batches) == [1, 1, 1]


def test_calibration_that_the_model_sees_as_the_evaluation() -> None:
    """Texts here, tokens there; padding does not hide it."""
    evaluation = sample_set(SampleFile(texts=("a", "bb", "ccc", "dddd")), Words(), batch=4)
    tokens = {"input_ids": np.array([3, 3, 0, 0]), "attention_mask": np.array([1, 1, 0, 0])}
    others = tuple({"input_ids": np.full(4, 3 + index), "attention_mask": np.ones(4, np.int64)}
                   for index in range(1, 20))
    calibration = sample_set(SampleFile(rows=(tokens, *others)), Words(), CALIBRATION)
    with pytest.raises(UserError) as caught:
        held_apart(calibration, evaluation)
    assert caught.value.reason == "CalibrationEqualsEvaluation"
    assert "1 of 20 calibration samples" in caught.value.message
    many = sample_set(SampleFile(texts=tuple("x" * size for size in range(1, 15))), Words())
    apart = held_apart(calibration, many)
    assert (apart.count, sum(len(batch["input_ids"]) for batch in apart.batches)) == (19, 19)


@pytest.mark.parametrize(("one", "other", "same"), [
    ([1, 2, 3], [1.0, 2.0, 3.0], True), (np.array([5], np.int32), np.array([5], np.uint8), True),
    ([True, False], [1, 0], True),
    (np.array([0.1, 0.2]), np.array([0.1, 0.2], np.float32), True), ([0.0, 0.5], [-0.0, 0.5], True),
    (np.linspace(0, 1, 32), np.linspace(0, 1, 32).astype(np.float16), True),
    (np.linspace(0, 1e-6, 32), np.linspace(0, 2e-6, 32), False), (np.full(32, 1e5), np.full(32, 1.5e5), False),
    ([0.5], [0.50001], False), ([1, 2, 3], [[1, 2, 3]], False), ([1, 2, 3], [1, 2, 4], False),
])
def test_when_numbers_are_the_same_sample(one: Array, other: Array, same: bool) -> None:
    assert (row_key({"x": np.asarray(one)}) == row_key({"x": np.asarray(other)})) is same


def test_when_texts_are_the_same_sample() -> None:
    assert text_key(" caf\u00e9  noir\n") == text_key("cafe\u0301 noir")
    assert text_key("a b") != text_key("ab")


def test_a_sample_that_is_not_a_number_is_told() -> None:
    with pytest.raises(UserError, match="sample 0: x holds NaN"):
        check_against(SampleFile(rows=({"x": np.array([np.nan, 1.0])},)), IMAGE)


def of_type(dtype: str) -> Interface:
    return Interface(inputs=(TensorSpec(name="x", dtype=dtype, shape=("batch", 2)),))


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("number", [np.inf, -np.inf])
def test_an_infinite_number_is_told(number: float, missing: bool) -> None:
    with pytest.raises(UserError, match="sample 7: x holds an infinite number") as caught:
        check_against(SampleFile(rows=({"x": np.array([number, 1.0])},)), IMAGE, first=7, missing=missing)
    assert caught.value.remedy


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("numbers", "dtype", "number"), [
    (np.array([1.0, 70000.0]), "float16", "70000.0"), (np.array([1, 70000]), "float16", "70000"),
    (np.array([1, -70000]), "float16", "-70000"), (np.array([1e300, 1.0]), "float32", "1e\\+300"),
    (np.array([np.nan, 1e300]), "float32", "1e\\+300"),
])
def test_a_number_that_the_models_type_does_not_hold_is_told(numbers: Array, dtype: str, number: str) -> None:
    """The model got infinity for it, and was blamed for what it answered."""
    with pytest.raises(UserError, match=f"sample 3: x holds {number}, which is infinite as {dtype}") as caught:
        check_against(SampleFile(rows=({"x": numbers},)), of_type(dtype), first=3, missing=True)
    assert "wider type" in caught.value.remedy


@pytest.mark.parametrize(("numbers", "dtype", "told"), [
    (np.array([1, 2**24 + 1]), "float32", "sample 1: x: float32 has no 16777217: it is 16777216 there"),
    (np.array([1, -2**24 - 1]), "float32", "sample 1: x: float32 has no -16777217: it is -16777216 there"),
    (np.array([2**63 - 1, 1]), "float32", f"sample 1: x: float32 has no {2**63 - 1}: it is {2**63} there"),
    (np.array([2**64 - 1, 1], np.uint64), "float64", f"sample 1: x: float64 has no {2**64 - 1}: it is {2**64} there"),
    (np.array([1, 2049]), "float16", "sample 1: x: float16 has no 2049: it is 2048 there"),
    (np.array([2**24, 2**24 + 2]), "float32", ""), (np.array([2**24 + 1, 1]), "float64", ""),
    (np.array([0.1, 16777217.0]), "float32", ""),
])
def test_a_whole_number_that_becomes_another_is_noted(numbers: Array, dtype: str, told: str) -> None:
    """Identities and times in columns of floats: the model cannot tell them apart, whoever sends them."""
    fine = {"x": np.array([1, 2])}
    found = check_against(SampleFile(rows=(fine, {"x": numbers}, {"x": numbers})), of_type(dtype))
    assert found.rounded == ((told,) if told else ())
    assert found.distinct().rounded == found.rounded
    assert len(list(note_rounded(found.rounded, "evaluation"))) == bool(told)


def test_a_value_that_is_missing_is_one_where_the_model_takes_it() -> None:
    for value in ([np.nan, 1.0], [None, 1.0]):
        found = check_against(SampleFile(rows=({"x": np.array(value)},)), IMAGE, missing=True)
        assert np.isnan(found.rows[0]["x"]).tolist() == [True, False]
        assert found.rows[0]["x"].dtype == np.float32
    with pytest.raises(UserError, match="sample 0: x: expected numbers, got"):
        check_against(SampleFile(rows=({"x": np.array(["a", None])},)), IMAGE, missing=True)


def test_a_row_may_lack_some_values_or_all(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", '{"x": [1, null]}\n{"x": [null, null]}\n{"x": [0.5, 2]}\n')
    found = check_against(read_samples(path), IMAGE, missing=True)
    assert [np.isnan(row["x"]).tolist() for row in found.rows] == [[False, True], [True, True], [False, False]]
    with pytest.raises(UserError, match="sample 0: x holds NaN"):
        check_against(read_samples(path), IMAGE)
    columns = Interface(inputs=tuple(TensorSpec(name=name, dtype="float32", shape=("batch", 1)) for name in "ab"))
    path = write(tmp_path / "d.jsonl", '{"a": null, "b": null}\n')
    (row,) = check_against(read_samples(path), columns, missing=True).rows
    assert all(np.isnan(row[name]).all() for name in "ab")


def test_a_text_that_is_missing_is_told() -> None:
    city = Interface(inputs=(TensorSpec(name="city", dtype="string", shape=("batch", 1)),))
    with pytest.raises(UserError, match=r"sample 0: city: expected texts, got \[null\]"):
        check_against(SampleFile(rows=({"city": np.array(None)},)), city, missing=True)


@pytest.mark.parametrize("name", ["d.npz", "d.jsonl"])
def test_columns_that_are_no_inputs_are_left_out_and_told(name: str, tmp_path: Path) -> None:
    rows = [{"x": [1.0, 2.0], "id": f"row {place}", "weight": 0.5} for place in range(3)]
    if name == "d.npz":
        np.savez(tmp_path / name, **{key: np.array([row[key] for row in rows]) for key in rows[0]})
    else:
        write(tmp_path / name, "".join(json.dumps({**row, "about": {"day": 1}, "seen": None}) + "\n" for row in rows))
    found = check_against(read_samples(tmp_path / name), IMAGE)
    assert [list(row) for row in found.rows] == [["x"]] * 3
    assert found.left_out == (("id", "weight") if name == "d.npz" else ("about", "id", "seen", "weight"))
    assert len(found.distinct()) == 1, "an identity makes no sample another one"
    (note,) = note_left_out(found.distinct().left_out, "evaluation")
    assert note.startswith("left ")
    assert "id, " in note
    assert not list(note_left_out((), "evaluation"))


def test_a_missing_input_is_told_whatever_stands_beside() -> None:
    samples = SampleFile(rows=({"X": np.ones(2), "id": np.array("a")},))
    with pytest.raises(UserError, match="sample 0 has X, id; the model takes x") as caught:
        check_against(samples, IMAGE)
    assert caught.value.remedy.startswith("add x: name the arrays exactly as the model's inputs")


@pytest.mark.parametrize(("value", "told"), [(None, "null"), ("a", "a"), ({"a": True}, "{a: true}")])
def test_an_input_that_is_no_number_is_told(value: object, told: str, tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", json.dumps({"x": value, "id": 1}) + "\n")
    with pytest.raises(UserError, match=re.escape(f"sample 0: x: expected numbers, got {told}")):
        check_against(read_samples(path), Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=("batch",)),)))


def test_requests_go_round_and_lose_padding() -> None:
    samples = sample_set(SampleFile(texts=("a", "bbb")), Words(), batch=2)
    assert samples.request(1)["input_ids"].shape == (1, 1)
    assert samples.request(5)["attention_mask"].sum() == 1 + 3 + 1 + 3 + 1


@pytest.mark.parametrize(("size", "sent"), [(6, 6), ("4..8", 4), ("1..8", 2), ("length", 2)])
def test_requests_are_as_long_as_the_model_asks(size: int | str, sent: int) -> None:
    """Padding goes as far as it may."""
    class Sized(Words):
        interface = Interface(inputs=tuple(TensorSpec(name=spec.name, dtype=spec.dtype, shape=("batch", size))
                                           for spec in TOKENS.inputs))

    mask = np.array([1, 1, 0, 0, 0, 0])
    rows = tuple({"input_ids": mask * place, "attention_mask": mask} for place in range(2, 6))
    assert sample_set(SampleFile(rows=rows), Sized()).request(3)["input_ids"].shape == (3, sent)


def test_rows_of_different_shapes_are_never_padded() -> None:
    rows = tuple({"input_ids": np.full(size, place), "attention_mask": np.ones(size, np.int64)}
                 for place, size in enumerate((2, 2, 3, 2)))
    samples = sample_set(SampleFile(rows=rows), Words(), batch=8)
    assert [batch["input_ids"].shape for batch in samples.batches] == [(3, 2), (1, 3)]
    assert samples.batches[0]["input_ids"][:, 0].tolist() == [0, 1, 3]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("max_batch_size", "largest"), [(1, 1), (8, 8), (16, 16), (64, 16)])
def test_no_forward_pass_takes_more_than_an_engine_is_built_for(given: bool, max_batch_size: int,
                                                                largest: int) -> None:
    """A TensorRT engine for at most 8 has no profile for 16."""
    texts = SampleFile(texts=tuple("x" * size for size in range(1, 401)))
    other = SampleFile(texts=tuple("x" * size for size in range(401, 440)))
    evaluation, calibration = gate_samples(texts if given else None, other if given else None, AccuracyRequest(),
                                           Words(), max_batch_size)
    for batches in (evaluation.batches, *([calibration] if given else [])):
        assert max(len(batch["input_ids"]) for batch in batches) == largest


def test_synthetic_samples_repeat_and_say_what_they_are() -> None:
    one, other = synthetic_set(Words(), 20), synthetic_set(Words(), 20)
    assert one.origin == "synthetic"
    assert [len(batch["input_ids"]) for batch in one.batches] == [16, 4]
    assert all((a["input_ids"] == b["input_ids"]).all() for a, b in zip(one.batches, other.batches, strict=True))
    assert max(batch["input_ids"].max() for batch in one.batches) < Words.vocabulary


def test_made_up_texts_end_once_and_hold_no_padding() -> None:
    ids = Interface(inputs=(TensorSpec(name="input_ids", dtype="int64", shape=("batch", 16)),))
    made = example_inputs(ids, 64, vocabulary=5, end_token=2, pad_token=1)["input_ids"]
    assert set(made[:, :-1].ravel().tolist()) == {0, 3, 4}
    assert set(made[:, -1].tolist()) == {2}


WORDS = Interface(inputs=(TensorSpec(name="word", dtype="string", shape=("batch", 2)),))


@pytest.mark.parametrize("name", ["words.npz", "words.jsonl"])
def test_words_are_read_for_models_that_take_texts(name: str, tmp_path: Path) -> None:
    every = [["a", "bb"], ["Zürich", ""], ["a", "bb"]]
    if name.endswith("npz"):
        np.savez(tmp_path / name, word=np.array(every))
    else:
        (tmp_path / name).write_text("\n".join(json.dumps({"word": words}) for words in every))
    found = check_against(read_samples(tmp_path / name, words=True), WORDS)
    assert [row["word"].tolist() for row in found.rows] == every
    assert {row["word"].dtype for row in found.rows} == {np.dtype(np.object_)}
    assert len(found.distinct()) == 2
    with pytest.raises(UserError, match="expected numbers"):
        read_samples(tmp_path / name)


def test_texts_are_the_input_where_it_is_the_only_one() -> None:
    one = Interface(inputs=(TensorSpec(name="sentence", dtype="string", shape=("batch", 1)),))
    found = check_against(SampleFile(texts=("a b", "c")), one)
    assert [row["sentence"].tolist() for row in found.rows] == [["a b"], ["c"]]
    with pytest.raises(UserError, match="has shape"):
        check_against(SampleFile(texts=("a b",)), WORDS)


@pytest.mark.parametrize(("given", "interface"), [(np.array([1.0, 2.0]), WORDS), (np.array(["a"] * 3), IMAGE)])
def test_words_and_numbers_are_not_mistaken(given: Array, interface: Interface) -> None:
    name = interface.inputs[0].name
    with pytest.raises(UserError, match="sample 0"):
        check_against(SampleFile(rows=({name: given},)), interface)

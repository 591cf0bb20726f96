"""Reading Triton's traces: what tritonserver 2.51 wrote, and files that are not whole."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enginewright_builder.contract import PROBE_REQUEST_ID, Interface, TensorSpec
from enginewright_builder.quality.trace import (
    INPUT,
    OUTPUT,
    Expected,
    Traced,
    UnreadableTraceError,
    read_traces,
    readable,
)

# As tritonserver 2.51 wrote it.
SEEN = (
    b'[{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"i","data":"-9223372036854775808,65","shape":"1,2",'
    b'"dtype":"INT64"}},{"id":1,"activity":"TENSOR_BACKEND_OUTPUT","tensor":{"name":"b","data":"1,0","shape":"1,2",'
    b'"dtype":"BOOL"}},{"id":1,"activity":"TENSOR_BACKEND_OUTPUT","tensor":{"name":"f","data":"nan,inf,-inf,0.333333",'
    b'"shape":"1,4","dtype":"FP32"}}]'
)


def entry(activity: str, name: str, data: str, shape: str, dtype: str = "FP32", number: int = 1) -> dict[str, Any]:
    return {"id": number, "activity": activity,
            "tensor": {"name": name, "data": data, "shape": shape, "dtype": dtype}}


def dumped(entries: list[dict[str, Any]]) -> bytes:
    return json.dumps(entries, separators=(",", ":")).encode()


def test_what_a_server_wrote() -> None:
    [found] = read_traces(SEEN)
    assert found.inputs["i"].tolist() == [[-(2**63), 65]]
    assert found.inputs["i"].dtype == np.int64
    assert found.outputs["b"].tolist() == [[True, False]]
    assert np.isnan(found.outputs["f"][0, 0])
    assert found.outputs["f"][0, 1:].tolist() == [np.inf, -np.inf, np.float32(0.333333)]
    assert found.rows == 1


def test_several_requests_in_one_file_are_told_apart_and_half_ones_left_out() -> None:
    text = dumped([entry(INPUT, "x", "1,2", "2,1", number=4), entry(INPUT, "x", "3", "1,1", number=5),
                       entry(OUTPUT, "y", "6", "1,1", number=5), entry(OUTPUT, "y", "2,4", "2,1", number=4),
                       entry(INPUT, "x", "9", "1,1", number=6)])
    assert [(found.inputs["x"].ravel().tolist(), found.outputs["y"].ravel().tolist()) for found in read_traces(text)
            ] == [([1, 2], [2, 4]), ([3], [6])]


def test_the_operators_own_requests_are_left_out_by_their_id() -> None:
    # As tritonserver 2.51 writes them, with the timestamps left out.
    ids = {1: PROBE_REQUEST_ID, 2: "", 3: "a client's own"}
    text = dumped([event for number, told in ids.items() for event in (
        {"id": number, "model_name": "m", "model_version": 1, **({"request_id": told} if told else {})},
        {"id": number, "timestamps": [{"name": "REQUEST_START", "ns": 6420777130175}]},
        entry(INPUT, "x", str(number), "1,1", number=number), entry(OUTPUT, "y", "6", "1,1", number=number),
    )])
    assert [found.inputs["x"].item() for found in read_traces(text)] == [2, 3]


@pytest.mark.parametrize("text", [
    b"", b"[", SEEN[:-1], SEEN[:200], b'{"id":1}', b"[1]", b'[{"id":1,"activity":"TENSOR_QUEUE_INPUT"}]',
    dumped([entry(INPUT, "x", "1,2,3", "1,2")]),  # another number of entries than its shape says
    dumped([entry(INPUT, "x", "1,2", "2,1"), entry(INPUT, "x", "1,2", "2,1")]),
    b'[{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"i","data":"\x80x"","shape":"1,2","dtype":"INT8"}}]',
], ids=range(10))
def test_what_is_no_whole_trace(text: bytes) -> None:
    with pytest.raises(UnreadableTraceError):
        list(read_traces(text))


def test_tensors_without_a_common_batch_are_left_out() -> None:
    text = dumped([entry(INPUT, "x", "1,2", "2,1"), entry(INPUT, "z", "1", "1,1"),
                       entry(OUTPUT, "y", "2,4", "2,1")])
    assert list(read_traces(text)) == []


@pytest.mark.parametrize(("dtype", "wanted"), [
    ("float32", True), ("float64", True), ("int64", True), ("int32", True), ("bool", True), ("uint16", True),
    ("float16", False), ("bfloat16", False), ("int8", True), ("uint8", True), ("string", True),
])
def test_types_that_a_trace_holds(dtype: str, wanted: bool) -> None:
    assert readable(dtype) is wanted


def model(**dtypes: str) -> Expected:
    """Inputs by name and type, and the output ``y``."""
    return Expected.of(Interface(
        inputs=tuple(TensorSpec(name=name, dtype=dtype, shape=("batch", 2)) for name, dtype in dtypes.items()),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 1)),)))


def written(data: bytes, dtype: str, shape: str = "1,2", answer: str = "5") -> bytes:
    """One request as tritonserver 2.51 writes it, whose input ``s`` has ``data``."""
    return (b'[{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"s","data":"%s","shape":"%s","dtype":"%s"}},'
            b'{"id":1,"activity":"TENSOR_BACKEND_OUTPUT","tensor":{"name":"y","data":"%s","shape":"1,1","dtype":"FP32"}'
            b'}]') % (data, shape.encode(), dtype.encode(), answer.encode())


def read(text: bytes, expected: Expected | None) -> list[Traced]:
    """Nothing of what is no whole trace."""
    try:
        return list(read_traces(text, expected=expected))
    except UnreadableTraceError:
        return []


def in_texts(*texts: bytes) -> bytes:
    return b",".join(b'\\"%s\\"' % text for text in texts)


@given(st.binary(min_size=2, max_size=12))
@example(b'",')
@example(b'","shape":"1,2"')
def test_bytes_are_read_whatever_they_are(values: bytes) -> None:
    data = b",".join(bytes([value]) for value in values)
    shape = f"1,{len(values)}"
    [found] = read_traces(written(data, "UINT8", shape))
    assert found.inputs["s"].tobytes() == values
    [signed] = read_traces(written(data, "INT8", shape))
    assert signed.inputs["s"].tolist() == [np.frombuffer(values, np.int8).tolist()]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), min_size=2, max_size=2))
@example(['say "a, b"', "c:\\d\n"])
@example(["", ""])
def test_texts_are_read_as_they_were_sent(texts: list[str]) -> None:
    found = read(written(in_texts(*(text.encode() for text in texts)), "BYTES"), model(s="string"))
    assert [one.inputs["s"].tolist() for one in found] == [[texts]] or '\\"' in "".join(texts)


FORGED = (b'x\\"","shape":"1,1","dtype":"BYTES"}},{"id":%d,"activity":"TENSOR_BACKEND_OUTPUT","tensor":{"name":"y",'
          b'"data":"666","shape":"1,1","dtype":"FP32"}},{"id":%d,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"%s",'
          b'"data":"\\"')


@pytest.mark.parametrize("forged", [(1, 1, b"s"), (1, 1, b"t"), (1, 2, b"s"), (2, 2, b"s"), (2, 1, b"t")])
@pytest.mark.parametrize("answered", [True, False])
def test_a_text_that_looks_like_a_trace_adds_no_answer(forged: tuple[int, int, bytes], answered: bool) -> None:
    text = written(in_texts(FORGED % forged), "BYTES", "1,1")
    if not answered:
        text = text[:text.rindex(b',{"id":1,"activity":"TENSOR_BACKEND_OUTPUT"')] + b"]"
    assert read(text, model(s="string")) == []


def test_texts_are_read_of_a_known_model_alone() -> None:
    text = written(in_texts(b"a", b"b"), "BYTES")
    assert len(read(text, model(s="string"))) == 1
    assert read(text, None) == read(text, model(s="float32")) == read(text, model(s="string", t="int32")) == []


def test_answers_that_are_written_as_nothing_leave_what_was_sent() -> None:
    text = dumped([entry(INPUT, "x", "1,2", "1,2"), entry(OUTPUT, "y", "", "1,1", "FP16")])
    [found] = read_traces(text)
    assert (found.inputs["x"].tolist(), found.outputs) == ([[1, 2]], {})
    assert list(read_traces(text.replace(b"FP32", b"BF16"))) == []


def test_calls_without_a_batch_have_tensors_of_any_first_size() -> None:
    text = dumped([entry(INPUT, "x", "1,2", "2,1"), entry(INPUT, "z", "1", "1,1"),
                       entry(OUTPUT, "y", "2,4,6", "3,1")])
    [found] = read_traces(text, expected=Expected(tensors={}, batched=False))
    assert {name: array.shape for name, array in found.inputs.items()} == {"x": (2, 1), "z": (1, 1)}


def test_one_number_a_sample_is_as_the_model_has_it() -> None:
    """And a whole call as it came."""
    def wanted(shape: tuple[int | str, ...]) -> Expected:
        return Expected.of(Interface(inputs=(TensorSpec(name="x", dtype="float32", shape=shape),),
                                     outputs=(TensorSpec(name="y", dtype="float32", shape=shape),)))

    text = dumped([entry(INPUT, "x", "1,2", "2,1"), entry(OUTPUT, "y", "2,4", "2,1")])
    for shape, read in ((("batch",), (2,)), (("batch", 1), (2, 1)), ((2, 1), (2, 1))):
        [found] = read_traces(text, expected=wanted(shape))
        assert (found.inputs["x"].shape, found.outputs["y"].shape) == (read, read)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode)
       | st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                          st.sampled_from(["id", "activity", "tensor", "data", "shape"]), inner, max_size=4),
                      max_leaves=12).map(json.dumps).map(str.encode))
def test_rubbish_never_gets_through(text: bytes) -> None:
    try:
        found = list(read_traces(text))
    except UnreadableTraceError:
        return
    assert found == []

"""Reading Triton's traces: what tritonserver 2.51 wrote, and files that are not whole."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright_builder.contract import PROBE_REQUEST_ID
from enginewright_builder.quality.trace import INPUT, OUTPUT, UnreadableTraceError, read_traces, readable

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


def test_what_a_server_wrote() -> None:
    [found] = read_traces(SEEN)
    assert found.inputs["i"].tolist() == [[-(2**63), 65]]
    assert found.inputs["i"].dtype == np.int64
    assert found.outputs["b"].tolist() == [[True, False]]
    assert np.isnan(found.outputs["f"][0, 0])
    assert found.outputs["f"][0, 1:].tolist() == [np.inf, -np.inf, np.float32(0.333333)]
    assert found.rows == 1


def test_several_requests_in_one_file_are_told_apart_and_half_ones_left_out() -> None:
    text = json.dumps([entry(INPUT, "x", "1,2", "2,1", number=4), entry(INPUT, "x", "3", "1,1", number=5),
                       entry(OUTPUT, "y", "6", "1,1", number=5), entry(OUTPUT, "y", "2,4", "2,1", number=4),
                       entry(INPUT, "x", "9", "1,1", number=6)]).encode()
    assert [(found.inputs["x"].ravel().tolist(), found.outputs["y"].ravel().tolist()) for found in read_traces(text)
            ] == [([1, 2], [2, 4]), ([3], [6])]


def test_the_operators_own_requests_are_left_out_by_their_id() -> None:
    # As tritonserver 2.51 writes them, with the timestamps left out.
    ids = {1: PROBE_REQUEST_ID, 2: "", 3: "a client's own"}
    text = json.dumps([event for number, told in ids.items() for event in (
        {"id": number, "model_name": "m", "model_version": 1, **({"request_id": told} if told else {})},
        {"id": number, "timestamps": [{"name": "REQUEST_START", "ns": 6420777130175}]},
        entry(INPUT, "x", str(number), "1,1", number=number), entry(OUTPUT, "y", "6", "1,1", number=number),
    )]).encode()
    assert [found.inputs["x"].item() for found in read_traces(text)] == [2, 3]


@pytest.mark.parametrize("text", [
    b"", b"[", SEEN[:-1], SEEN[:200], b'{"id":1}', b"[1]", b'[{"id":1,"activity":"TENSOR_QUEUE_INPUT"}]',
    json.dumps([entry(INPUT, "x", "1,2,3", "1,2")]).encode(),  # another number of entries than its shape says
    json.dumps([entry(INPUT, "x", "", "1,2", "FP16")]).encode(),  # FP16 is written as nothing
    b'[{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name":"i","data":"\x80,"","shape":"1,2","dtype":"INT8"}}]',
], ids=range(10))
def test_what_is_no_whole_trace(text: bytes) -> None:
    with pytest.raises(UnreadableTraceError):
        list(read_traces(text))


def test_tensors_without_a_common_batch_are_left_out() -> None:
    text = json.dumps([entry(INPUT, "x", "1,2", "2,1"), entry(INPUT, "z", "1", "1,1"),
                       entry(OUTPUT, "y", "2,4", "2,1")]).encode()
    assert list(read_traces(text)) == []


@pytest.mark.parametrize(("dtype", "wanted"), [
    ("float32", True), ("float64", True), ("int64", True), ("int32", True), ("bool", True), ("uint16", True),
    ("float16", False), ("bfloat16", False), ("int8", False), ("uint8", False), ("string", False),
])
def test_types_that_a_trace_holds(dtype: str, wanted: bool) -> None:
    assert readable(dtype) is wanted


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

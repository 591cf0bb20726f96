"""Made-up requests and the comparison of answers."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginewright.core.probe import Match, ProbeError, Tensor, make_request, match, read_answer, similarities


def meta(*inputs: tuple[str, str, list[int]]) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in inputs]}


def parts(metadata: dict[str, Any], seed: int = 0) -> tuple[list[dict[str, Any]], bytes]:
    request = make_request(metadata, seed)
    return json.loads(request.body[: request.json_bytes])["inputs"], request.body[request.json_bytes :]


def test_free_dimensions_are_filled_in_and_bytes_follow_the_json() -> None:
    entries, body = parts(meta(("ids", "INT64", [-1, -1]), ("x", "FP32", [-1, 3, 2])))
    assert [entry["shape"] for entry in entries] == [[1, 8], [1, 3, 2]]
    assert [entry["parameters"]["binary_data_size"] for entry in entries] == [64, 24]
    assert len(body) == 88
    ids = struct.unpack("<8q", body[:64])
    assert ids[0] == 1
    assert set(ids) <= {0, 1}
    assert all(-1 <= value <= 1 for value in struct.unpack("<6f", body[64:]))


@pytest.mark.parametrize("kind", ["BOOL", "UINT8", "INT8", "INT32", "FP16", "BF16", "FP64", "BYTES", "UINT64"])
def test_every_type_is_made(kind: str) -> None:
    (entry,), body = parts(meta(("x", kind, [2, 3])))
    assert len(body) == entry["parameters"]["binary_data_size"] > 0


def test_the_same_seed_makes_the_same_input() -> None:
    model = meta(("x", "FP32", [4]))
    assert make_request(model, 1) == make_request(model, 1)
    assert make_request(model, 1) != make_request(model, 2)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "names no inputs"),
        (meta(("x", "FP32", [1, 40_000_000])), "takes more than 4 MiB"),
        (meta(("x", "FP64", [1, 4_000_000])), "takes more than 4 MiB"),
        (meta(("x", "COMPLEX", [1])), "input x has an unknown type"),
    ],
)
def test_what_cannot_be_made_up_is_said(metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(ProbeError, match=words):
        make_request(metadata, 0)


def answer(*outputs: tuple[str, str, list[int], bytes]) -> tuple[bytes, int]:
    head = json.dumps({"outputs": [
        {"name": name, "datatype": kind, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
        for name, kind, shape, raw in outputs]}).encode()
    return head + b"".join(raw for *_, raw in outputs), len(head)


def test_binary_answers_are_read() -> None:
    found = read_answer(*answer(("y", "FP32", [2], struct.pack("<2f", 1, 2)), ("b", "BF16", [1], b"\x80\x3f"),
                                ("t", "BYTES", [1], b"\x01\0\0\0a")))
    assert found == {"y": Tensor((2,), (1.0, 2.0)), "b": Tensor((1,), (1.0,)), "t": Tensor((1,), ())}


def test_json_answers_are_read() -> None:
    body = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1, 2.5]}]}).encode()
    assert read_answer(body, None) == {"y": Tensor((2,), (1.0, 2.5))}


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"outputs": [{"name": "y"}]}', b"\xff\xfe"])
def test_nonsense_is_refused(body: bytes) -> None:
    with pytest.raises(ProbeError, match="cannot be read"):
        read_answer(body, None)


def one(*values: float, shape: tuple[int, ...] = ()) -> dict[str, Tensor]:
    return {"y": Tensor(shape or (len(values),), values)}


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20))
def test_an_answer_is_like_itself(values: list[float]) -> None:
    found = match(one(*values), one(*values), same_model=True)
    assert (similarities([found]), found.flaw) == ((1.0,), "")


@given(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), st.lists(st.floats(-1e300, 1e300), min_size=3,
                                                                             max_size=3))
def test_cosine_is_between_minus_one_and_one(first: list[float], second: list[float]) -> None:
    found = match(one(*first), one(*second), same_model=True)
    assert found.similarity is not None
    assert -1 - 1e-9 <= found.similarity <= 1 + 1e-9


def test_how_alike_they_are() -> None:
    assert match(one(1, 0), one(1, 1), same_model=True).similarity == pytest.approx(math.sqrt(0.5))
    assert match(one(1, 0), one(-3, 0), same_model=True).similarity == pytest.approx(-1)
    assert match(one(0, 0), one(1, 0), same_model=True).similarity == 0
    two = {**one(1, 0), "z": Tensor((2,), (1.0, 0.0))}
    assert match(two, {**two, "z": Tensor((2,), (-1.0, 0.0))}, same_model=True).similarity == -1


def alike(*pairs: tuple[float, float], **more: Tensor) -> tuple[float, ...]:
    """Of an output of one number, to several inputs."""
    return similarities([match({**one(mine), **more}, {**one(theirs), **more}, same_model=True)
                         for mine, theirs in pairs])


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        # A tenth off is as much as a cosine of 0.995 allows, whatever the sign.
        ([(10.0, 11.0), (-10.0, -9.0)], [0.995, 0.995]),
        # Twice as large, another number, or the other sign.
        ([(10.0, 20.0), (10.0, 0.0), (10.0, -10.0)], [0.5, 0.5, 0.0]),
        # One next to nothing is held against what all are: of 0.01 and 10 the root of the mean square is 7.07.
        ([(0.01, -0.6), (10.0, 10.0)], [1 - (0.61 / math.hypot(10, 0.01)) ** 2, 1.0]),
        # Probabilities are held against one half.
        ([(0.02, 0.05), (0.0, 0.5), (0.1, 0.9)], [0.9982, 0.5, 0.0]),
        ([(0.0, 0.0)], [1.0]),
        ([(0.0, 7.0)], [0.0]),
        ([(1e308, -1e308), (1e308, 1e308)], [0.0, 1.0]),
    ],
)
def test_a_single_number_counts_by_its_error(pairs: list[tuple[float, float]], expected: list[float]) -> None:
    """As in the accuracy gate: its cosine is 1 or -1 whatever it is."""
    assert alike(*pairs) == pytest.approx(expected, abs=1e-4)


def test_a_single_number_counts_beside_other_outputs() -> None:
    assert alike((1.0, 1.0), (3.0, 9.0), z=Tensor((2,), (1.0, 2.0))) == pytest.approx((1.0, 0.0))
    assert alike((math.nan, 2.0), z=Tensor((2,), (1.0, 2.0))) == (1.0,)


@pytest.mark.parametrize("kind", ["BOOL", "INT32", "INT64", "UINT32", "UINT64"])
def test_a_single_number_of_a_class_says_nothing_by_its_size(kind: str) -> None:
    """Made-up inputs lie off the data that the gate compares classes on: all may fall between two."""
    size = {"BOOL": 1, "INT32": 4, "UINT32": 4}.get(kind, 8)
    first, second = (read_answer(*answer(("y", kind, [1, 1], value.to_bytes(size, "little")))) for value in (0, 1))
    assert similarities([match(first, second, same_model=True)]) == ()


def test_what_is_wrong_whatever_the_weights() -> None:
    assert "not finite" in match(one(1, 2), one(1, math.nan), same_model=False).flaw
    assert match(one(math.nan, 2), one(math.nan, 2), same_model=True).flaw == ""
    assert "instead of [2]" in match(one(1, 2), one(1, 2, 3), same_model=True).flaw
    assert "is missing" in match(one(1, 2), {}, same_model=True).flaw
    assert match(one(1, 2), one(1, 2, 3), same_model=False) == Match()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((1.0, 2.0, -math.inf), (1.0, 2.000001, -math.inf), Match(similarity=1.0)),
        ((1.0, 0.0, -math.inf), (0.0, 1.0, -math.inf), Match(similarity=0.0)),
        ((3.0, 4.0, math.nan), (3.0, 4.0, math.nan), Match(similarity=1.0)),
        ((3.0, 4.0, math.nan), (3.0, 4.0, -math.inf), Match(similarity=1.0)),
        ((3.0, 4.0, 1.0), (3.0, 4.0, -math.inf), Match(flaw="output y holds numbers that are not finite")),
        ((math.nan, 4.0), (4.0, math.nan), Match(flaw="output y holds numbers that are not finite")),
        ((1.0, -math.inf), (1.0, 1.0), Match(similarity=math.sqrt(0.5))),
        ((math.nan, math.nan), (1.0, math.inf), Match()),
    ],
)
def test_what_is_finite_in_neither_is_left_out(
    first: tuple[float, ...], second: tuple[float, ...], expected: Match
) -> None:
    found = match(one(*first), one(*second), same_model=True)
    assert found.flaw == expected.flaw
    assert found.similarity == (None if expected.similarity is None else pytest.approx(expected.similarity))

"""What the proof says of answers that are none; real servers: tests/integration/builder_triton/test_served.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc.aio
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from enginewright_builder.errors import UserError
from enginewright_builder.tensors import Steps
from enginewright_builder.triton import prove


async def test_an_answer_that_lost_its_numbers_names_the_cause() -> None:
    answer = service_pb2.ModelInferResponse(raw_output_contents=[b""])
    answer.outputs.add(name="y", datatype="FP32").shape.extend([1, 384])

    async def call(payload: bytes, limit: float) -> bytes:
        return bytes(answer.SerializeToString())

    channels: Any = SimpleNamespace(call=call)
    server: Any = SimpleNamespace(log_tail=lambda: "")
    with pytest.raises(UserError, match=r"output 'y' has the shape .1, 384. and 0 numbers as 'm' is served") as caught:
        await prove._infer(channels, server, "m", {"x": np.zeros((1, 4), np.float32)})
    assert caught.value.reason == "ServedAnswersDiffer"
    assert "NumPy below 2" in caught.value.remedy


class Idle:
    """A server that forgets a sequence before its second step, so many ``times``."""

    def __init__(self, times: int) -> None:
        self.times, self.begun = times, list[int]()

    async def call(self, payload: bytes, limit: float) -> bytes:
        request = service_pb2.ModelInferRequest.FromString(payload)
        if request.parameters["sequence_start"].bool_param:
            self.begun.append(request.parameters["sequence_id"].int64_param)
        elif len(self.begun) <= self.times:
            raise grpc.aio.AioRpcError(grpc.StatusCode.INVALID_ARGUMENT, grpc.aio.Metadata(), grpc.aio.Metadata(),
                                       "inference request must specify the START flag on the first request of the "
                                       "sequence")
        message = service_pb2.ModelInferResponse(raw_output_contents=request.raw_input_contents)
        message.outputs.add(name="y", datatype="FP32").shape.extend([1])
        return bytes(message.SerializeToString())


async def answers_of(idle: Idle) -> Any:
    server: Any = SimpleNamespace(last_words=lambda: "its last words")
    steps = Steps(x=np.arange(3, dtype=np.float32)[:, None])
    return await prove._infer(idle, server, "m", steps)  # type: ignore[arg-type]


async def test_a_sequence_that_was_idle_for_too_long_is_begun_again() -> None:
    idle = Idle(2)
    assert (await answers_of(idle))["y"].tolist() == [[0.0], [1.0], [2.0]]
    assert len(set(idle.begun)) == 3


async def test_a_server_that_forgets_each_sequence_is_refused_by_the_field_that_says_how_long_it_remembers() -> None:
    idle = Idle(99)
    with pytest.raises(UserError, match="forgets a sequence before its last step, 3 times of 3") as caught:
        await answers_of(idle)
    assert len(idle.begun) == 3
    assert caught.value.field == "spec.interface.sequenceBatching.maxSequenceIdleMicroseconds"


class Echo:
    """A server whose answers are what it is sent as ``y``, turned by ``turn`` where requests are longer than 2."""

    def __init__(self, turn: Any) -> None:
        self.turn, self.sent = turn, list[int]()

    async def call(self, payload: bytes, limit: float) -> bytes:
        request = service_pb2.ModelInferRequest.FromString(payload)
        [given], [raw] = request.inputs, request.raw_input_contents
        array = np.frombuffer(raw, np.float32 if given.datatype == "FP32" else np.int64)
        self.sent.append(len(array))
        answer = self.turn(array) if len(array) > 2 else array
        message = service_pb2.ModelInferResponse(raw_output_contents=[answer.tobytes()])
        message.outputs.add(name="y", datatype=given.datatype).shape.extend([1, len(array)])
        return bytes(message.SerializeToString())


def cases(kind: Any) -> list[prove.Case]:
    arrays = [np.arange(1, length + 1, dtype=kind)[None] for length in (2, 5, 9)]
    return [prove.Case(inputs={"x": array}, expected={"y": array}) for array in arrays]


async def proven(echo: Echo, kind: Any, loss: float) -> None:
    await prove._prove_mixed(echo, SimpleNamespace(), "m", cases(kind), loss)  # type: ignore[arg-type]


async def test_requests_of_different_length_are_asked_in_either_order() -> None:
    echo = Echo(lambda array: array)
    await proven(echo, np.float32, 0.0)
    assert echo.sent == [2, 5, 9, 9, 5, 2]


async def test_an_answer_that_its_neighbours_turn_is_refused() -> None:
    echo = Echo(lambda array: array[::-1].copy())
    with pytest.raises(UserError, match=r"agrees by 0\.\d+ with the engine's answer .* alone .x .1, 5.") as caught:
        await proven(echo, np.float32, 0.01)
    assert (caught.value.reason, caught.value.field) == ("ServedAnswersDiffer", "spec.interface.padding")
    await proven(echo, np.float32, 0.9)


async def test_numbers_of_classes_may_differ_in_one_answer_and_no_more() -> None:
    await proven(Echo(lambda array: np.where(array == 3, 7, array)), np.int64, 0.0)
    with pytest.raises(UserError, match="agrees by"):
        await proven(Echo(lambda array: array + 1), np.int64, 0.0)

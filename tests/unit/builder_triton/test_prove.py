"""What the proof says of answers that are none; real servers: tests/integration/builder_triton/test_served.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from enginewright_builder.errors import UserError
from enginewright_builder.triton import prove


async def test_an_answer_that_lost_its_numbers_names_the_cause() -> None:
    answer = service_pb2.ModelInferResponse(raw_output_contents=[b""])
    answer.outputs.add(name="y", datatype="FP32").shape.extend([1, 384])

    async def call(payload: bytes, limit: float) -> bytes:
        return bytes(answer.SerializeToString())

    channels: Any = SimpleNamespace(call=call)
    server: Any = SimpleNamespace(log_tail=lambda: "")
    with pytest.raises(UserError, match=r"output 'y' has the shape .1, 384. and 0 numbers as 'm' is served") as caught:
        await prove._infer(channels, server, "m", {"x": np.zeros((1, 4), np.float32)}, 1.0)
    assert caught.value.reason == "ServedAnswersDiffer"
    assert "NumPy below 2" in caught.value.remedy

"""What clients send of each shape, and that ``config.pbtxt`` asks for the same."""

from __future__ import annotations

import numpy as np
import pytest

from enginewright_builder.contract import Interface, ServingChoice, TensorSpec
from enginewright_builder.triton.model_config import ServedModel, model_config
from enginewright_builder.wire import Shape, from_wire, to_wire, wire_shape

# The model's shape, whether the server takes batches, and what clients send.
TABLE: list[tuple[Shape, bool, Shape]] = [
    (("batch",), True, ("batch", 1)),
    (("batch", 1), True, ("batch", 1)),
    (("batch", 16), True, ("batch", 16)),
    (("batch", "1..512"), True, ("batch", "1..512")),
    (("batch", 3, "h", "w"), True, ("batch", 3, "h", "w")),
    (("frames",), False, ("frames",)),
    ((1,), False, (1,)),
    ((16,), False, (16,)),
    ((2, 1, 128), False, (2, 1, 128)),
    ((), False, ()),
]


@pytest.mark.parametrize(("shape", "batched", "sent"), TABLE)
def test_shape_that_clients_send(shape: Shape, batched: bool, sent: Shape) -> None:
    assert wire_shape(shape, batched=batched) == sent


@pytest.mark.parametrize(("shape", "batched", "sent"), [row for row in TABLE if row[0]])
def test_config_asks_for_what_clients_send_and_gives_the_model_its_own(shape: Shape, batched: bool, sent: Shape
                                                                       ) -> None:
    interface = Interface(inputs=(TensorSpec(name="x", dtype="int64", shape=shape),),
                          outputs=(TensorSpec(name="y", dtype="float32", shape=shape),))
    config = model_config(ServedModel(name="m", triton_backend="python", interface=interface,
                                      serving=ServingChoice(max_batch_size=8 * batched)))
    for tensor in (config.input[0], config.output[0]):
        assert list(tensor.dims) == [size if isinstance(size, int) else -1 for size in sent[batched:]]
        assert tensor.HasField("reshape") == (sent != shape)
        assert list(tensor.reshape.shape) == []


@pytest.mark.parametrize(("shape", "batched"), [((3,), True), ((3, 1), True), ((3, 4), True), ((3,), False),
                                                ((1, 3), False), ((), False)])
def test_arrays_come_back_as_they_were(shape: tuple[int, ...], batched: bool) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    spec = TensorSpec(name="x", dtype="float32", shape=("batch", *shape[1:]) if batched else shape)
    sent = to_wire({"x": array}, batched=batched)
    assert sent["x"].shape == wire_shape(shape, batched=batched)
    back = from_wire(sent, (spec,), batched=batched)
    assert (back["x"].shape, back["x"].tolist()) == (shape, array.tolist())


def test_samples_and_steps_stand_in_front_of_what_a_request_has() -> None:
    """Of two sequences of five steps one number each, and three."""
    sequences = {"gain": np.zeros((2, 5, 1), np.float32), "sound": np.zeros((2, 5, 1, 3), np.float32)}
    sent = to_wire(sequences, batched=True, ahead=2)
    assert {name: array.shape for name, array in sent.items()} == {"gain": (2, 5, 1, 1), "sound": (2, 5, 1, 3)}
    assert to_wire(sequences, batched=False, ahead=2)["gain"].shape == (2, 5, 1)


def test_what_is_not_in_the_clients_shape_stays() -> None:
    specs = (TensorSpec(name="x", dtype="float32", shape=("batch",)),)
    odd = {"x": np.zeros((3, 2), np.float32), "other": np.zeros((3, 1), np.float32)}
    assert {name: array.shape for name, array in from_wire(odd, specs, batched=True).items()} == {
        "x": (3, 2), "other": (3, 1)}

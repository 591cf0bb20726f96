"""In which shape clients send a model's tensors, and get them: one rule, by which ``config.pbtxt`` is written, and that
all clients of this project use.

Triton takes one dimension at least behind the batch. So one number a sample, ``[batch]`` for the model, is
``[batch, 1]`` on its way, and ``reshape`` in ``config.pbtxt`` undoes it. Everything else goes in the model's own shape;
where the server takes no batches, that is any.
"""

from __future__ import annotations

from collections.abc import Sequence

from enginewright_builder.contract import TensorSpec
from enginewright_builder.tensors import Array, Tensors

Shape = tuple[int | str, ...]


def wire_shape(shape: Shape, *, batched: bool) -> Shape:
    """Of one request. ``shape`` is the model's, whole; ``batched``: ``max_batch_size`` in ``config.pbtxt`` is above
    0."""
    return (*shape, 1) if batched and len(shape) == 1 else shape


def to_wire(tensors: Tensors, *, batched: bool, ahead: int = 0) -> dict[str, Array]:
    """As clients send ``tensors`` of the model. ``ahead``: how many dimensions stand in front of those of one request,
    as samples and steps of a sequence do."""
    return {name: array.reshape(array.shape[:ahead] + _sizes(array.shape[ahead:], batched))
            for name, array in tensors.items()}


def from_wire(tensors: Tensors, specs: Sequence[TensorSpec], *, batched: bool) -> dict[str, Array]:
    """As the model has what clients sent or got; ``specs`` are the model's. What is not in the shape that clients use
    stays as it is."""
    flat = {spec.name for spec in specs if wire_shape(spec.shape, batched=batched) != spec.shape}
    return {name: array.reshape(array.shape[:1]) if name in flat and array.shape[1:] == (1,) else array
            for name, array in tensors.items()}


def _sizes(shape: tuple[int, ...], batched: bool) -> tuple[int, ...]:
    return tuple(map(int, wire_shape(shape, batched=batched)))

"""Requests encoded once, before the clock runs, and sent as bytes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2
from tritonclient.utils import (
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

from enginewright_builder.tensors import Steps


@dataclass(frozen=True)
class Request:
    """``batch`` is how many inferences it counts for. ``steps``: it stands for a sequence of requests, of which
    ``payload`` is the first, alone; each of them counts for ``batch``."""

    payload: bytes
    batch: int
    steps: tuple[bytes, ...] = ()


def encode(model: str, inputs: Mapping[str, NDArray[Any]], *, batch: int | None = None) -> Request:
    """One ModelInfer request, or a sequence of them. ``batch`` defaults to the leading size of the first input, and of
    a sequence to 1."""
    if isinstance(inputs, Steps):
        steps = tuple(encode(model, call, batch=1).payload for call in inputs.calls)
        return Request(in_sequence(steps[0], new_sequence(), first=True, last=True), 1, steps)
    if not inputs:
        raise ValueError("a request needs at least one input")
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        entry = message.inputs.add(name=name, datatype=np_to_triton_dtype(array.dtype))
        entry.shape.extend(array.shape)
        message.raw_input_contents.append(_raw(array))
    first = next(iter(inputs.values()))
    return Request(message.SerializeToString(), batch if batch is not None else (len(first) if first.ndim else 1))


def new_sequence() -> int:
    """A correlation ID that no other client has: Triton would end the sequence of one that it knows."""
    return random.getrandbits(63) | 1


def in_sequence(payload: bytes, sequence: int, *, first: bool, last: bool) -> bytes:
    """A request as one of ``sequence``. Messages of protobuf may follow each other: they count as one."""
    message = service_pb2.ModelInferRequest()
    message.parameters["sequence_id"].int64_param = sequence
    message.parameters["sequence_start"].bool_param = first
    message.parameters["sequence_end"].bool_param = last
    return bytes(payload + message.SerializeToString())


class TruncatedAnswerError(ValueError):
    """An output holds fewer or more numbers than its shape says."""


def decode(payload: bytes) -> dict[str, NDArray[Any]]:
    """Outputs of one ModelInfer response by name; texts, which are UTF-8, as ``str``. Raises
    :class:`TruncatedAnswerError`."""
    message = service_pb2.ModelInferResponse.FromString(payload)
    outputs = {}
    for entry, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        array = _texts(raw) if entry.datatype == "BYTES" else np.frombuffer(raw, triton_to_np_dtype(entry.datatype))
        if array.size != prod(entry.shape):
            raise TruncatedAnswerError(f"output {entry.name!r} has the shape {list(entry.shape)} and {array.size} "
                                       "numbers")
        outputs[entry.name] = array.reshape(tuple(entry.shape))
    return outputs


def split(inputs: Mapping[str, NDArray[Any]], batch: int) -> list[dict[str, NDArray[Any]]]:
    """Whole batches of ``batch`` rows; a last one that is too short is left out, unless it is the only one."""
    rows = {name: len(array) for name, array in inputs.items()}
    if len(set(rows.values())) != 1:
        raise ValueError(f"inputs differ in their leading size: {rows}")
    count = next(iter(rows.values()))
    if count < 1:
        raise ValueError("inputs hold no sample")
    starts: Sequence[int] = range(0, count - batch + 1, batch) if count >= batch else (0,)
    return [{name: array[start:start + batch] for name, array in inputs.items()} for start in starts]


def unpadded(inputs: Mapping[str, NDArray[Any]], mask: str) -> dict[str, NDArray[Any]]:
    """Without the padding that all rows have at their end, of inputs that are as long as ``mask``, which is 0 there.
    Raises ``ValueError`` for a mask that is none."""
    if mask not in inputs or inputs[mask].ndim != 2:
        raise ValueError(f"--mask {mask!r} names no input of [samples, length]; there are {', '.join(inputs)}")
    marks = inputs[mask]
    length = max(1, int(np.flatnonzero(marks.any(axis=0)).max(initial=0)) + 1)
    return {name: array[:, :length] if array.shape[:2] == marks.shape else array for name, array in inputs.items()}


def _texts(raw: bytes) -> NDArray[Any]:
    return np.array([text.decode() for text in deserialize_bytes_tensor(raw)], np.object_)


def _raw(array: NDArray[Any]) -> bytes:
    if array.dtype.kind in "OSU":
        return bytes(serialize_byte_tensor(array.astype(np.object_)).item())
    return np.ascontiguousarray(array).tobytes()

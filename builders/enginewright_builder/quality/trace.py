"""Tensors of sampled requests, out of the files that Triton's trace extension writes.

Level ``TENSORS`` gives, for each traced request, its inputs as they were queued and the outputs of the backend, as text
of six digits: ``[{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name","data","shape","dtype"}}, …]`` (server
``docs/user_guide/trace.md``). The id that a client gave its request is there with level ``TIMESTAMPS`` alone. Six
digits are far below what a metric resolves.

As seen with tritonserver 2.51, FP16 and BF16 are written as nothing, and some types as bytes that are no JSON: INT8 and
UINT8 as one byte each, with commas between them; BYTES as they are, between ``\\"``. So the data of tensors are cut out
before what is around them is read as JSON. Texts are what clients choose, and may look like the rest of a trace. A file
with texts therefore counts only if it has one request, with the model's own tensors, each once and of its type: of what
a text adds the last would be there twice, or have the type of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np

from enginewright_builder.contract import PROBE_REQUEST_ID, Interface, TensorSpec
from enginewright_builder.shapes import STRING, takes_batches
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.wire import from_wire

TRACE_LEVEL: Final = ("TIMESTAMPS", "TENSORS")
INPUT, OUTPUT = "TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT"
_TEXTS: Final = "BYTES"
# One byte for each entry, and those that are written as nothing.
_RAW: Final[Mapping[str, Any]] = {"INT8": np.int8, "UINT8": np.uint8}
_ABSENT: Final = frozenset({"FP16", "BF16"})
_TYPES: Final[Mapping[str, Any]] = {
    "BOOL": np.bool_, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT16": np.uint16,
    "UINT32": np.uint32, "UINT64": np.uint64, "FP32": np.float32, "FP64": np.float64,
}
_NAMES: Final[Mapping[str, str]] = {
    **{np.dtype(kind).name: name for name, kind in (*_TYPES.items(), *_RAW.items())}, STRING: _TEXTS}
_DATA: Final = re.compile(rb'"data":"(.*?)","shape":"([0-9,]*)","dtype":"([A-Z0-9]+)"', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What clients of a model send and get: Triton's types by side and name, and what the model itself takes and gives
    by side. Of a model that is not ``batched`` a request is one call."""

    tensors: Mapping[tuple[str, str], str]
    batched: bool
    specs: Mapping[str, tuple[TensorSpec, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, interface: Interface) -> Self:
        def named(side: str, specs: tuple[TensorSpec, ...]) -> dict[tuple[str, str], str]:
            return {(side, spec.name): _NAMES.get(spec.dtype, "") for spec in specs}

        return cls(tensors={**named(INPUT, interface.inputs), **named(OUTPUT, interface.outputs)},
                   batched=takes_batches(interface), specs={INPUT: interface.inputs, OUTPUT: interface.outputs})


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One request: what came in and what the engine answered, in the model's own shapes, the batch in front.
    ``outputs`` is empty where a trace does not hold them."""

    inputs: Tensors
    outputs: Tensors

    @property
    def rows(self) -> int:
        return len(next(iter(self.outputs.values())))


class UnreadableTraceError(ValueError):
    """Not (yet) a whole trace file."""


def readable(dtype: str) -> bool:
    """Whether a tensor of this type, by its name in an interface, can be had from a trace."""
    return dtype in _NAMES


def read_traces(text: bytes, computed: str = "", expected: Expected | None = None) -> Iterator[Traced]:
    """The requests of one file that have both sides, in their order, without the operator's own; with a name only those
    that the model ``computed`` answered, and no hits of a cache before it. Texts are read where it is known what is
    ``expected``. Raises :class:`UnreadableTraceError`."""
    found: dict[int, dict[tuple[str, str], Mapping[str, str]]] = {}
    ours: set[int] = set()
    models: dict[int, str] = {}
    data: list[bytes] = []
    try:
        for entry in json.loads(_without_data(text, data)):
            number = int(entry["id"])
            if "model_name" in entry:
                models[number] = str(entry["model_name"])
            if entry.get("request_id") == PROBE_REQUEST_ID:
                ours.add(number)
            if entry.get("activity") in (INPUT, OUTPUT):
                tensors, which = found.setdefault(number, {}), (entry["activity"], entry["tensor"]["name"])
                if which in tensors:
                    raise UnreadableTraceError("a tensor is there twice")
                tensors[which] = entry["tensor"]
        texts = any(tensor["dtype"] == _TEXTS for tensors in found.values() for tensor in tensors.values())
        kept = [_request(tensors, data, expected) for number, tensors in found.items()
                if number not in ours and not (computed and models.get(number) != computed)
                and not (texts and (expected is None or len(found) > 1 or not _as_expected(tensors, expected)))]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, IndexError) as error:
        raise UnreadableTraceError(f"{type(error).__name__}: {error}") from error
    yield from filter(None, kept)


def _without_data(text: bytes, data: list[bytes]) -> bytes:
    """JSON, with the place of each tensor's data in ``data``."""
    def cut(match: re.Match[bytes]) -> bytes:
        data.append(match[1])
        return b'"data":"%d","shape":"%s","dtype":"%s"' % (len(data) - 1, match[2], match[3])

    return _DATA.sub(cut, text)


def _as_expected(tensors: Mapping[tuple[str, str], Mapping[str, str]], expected: Expected) -> bool:
    """What is written as nothing has no type here."""
    return tensors.keys() == expected.tensors.keys() and all(
        tensor["dtype"] == expected.tensors[which] or (not expected.tensors[which] and tensor["dtype"] in _ABSENT)
        for which, tensor in tensors.items())


def _request(tensors: Mapping[tuple[str, str], Mapping[str, str]], data: list[bytes], expected: Expected | None
             ) -> Traced | None:
    """None without both sides, or without what clients sent."""
    sides: dict[str, dict[str, Array | None]] = {INPUT: {}, OUTPUT: {}}
    for (side, name), tensor in tensors.items():
        sides[side][name] = _array(tensor, data[int(tensor["data"])])
    batched, specs = (expected.batched, expected.specs) if expected else (True, {})
    inputs, outputs = (from_wire(_held(sides[side]), specs.get(side, ()), batched=batched) for side in (INPUT, OUTPUT))
    if not inputs or not sides[OUTPUT] or (batched and not (_whole(inputs) and (not outputs or _whole(outputs)))):
        return None
    return Traced(inputs=inputs, outputs=outputs)


def _held(side: Mapping[str, Array | None]) -> dict[str, Array]:
    """Nothing where one of them is not held."""
    held = {name: array for name, array in side.items() if array is not None}
    return held if len(held) == len(side) else {}


def _array(tensor: Mapping[str, str], data: bytes) -> Array | None:
    """None of a type that is written as nothing."""
    shape = [int(size) for size in tensor["shape"].split(",")] if tensor["shape"] else []
    if tensor["dtype"] in _ABSENT:
        return None
    if tensor["dtype"] == _TEXTS:
        return _texts(data, int(np.prod(shape, dtype=np.int64))).reshape(shape)
    if tensor["dtype"] in _RAW:
        if any(data[1::2].strip(b",")):
            raise UnreadableTraceError("bytes without commas between them")
        return np.frombuffer(data[::2], _RAW[tensor["dtype"]]).reshape(shape)
    kind = _TYPES[tensor["dtype"]]
    texts = data.decode().split(",") if data else []
    if kind is np.bool_:
        values: Array = np.array([text == "1" for text in texts], np.bool_)
    elif np.dtype(kind).kind == "f":
        values = np.array(texts, np.float64).astype(kind)
    else:
        values = np.array([int(text) for text in texts], kind)
    return values.reshape(shape)


def _texts(data: bytes, count: int) -> Array:
    """Each stands between ``\\"``. A text that has what stands between two makes more than there are."""
    found = data[2:-2].split(b'\\",\\"') if count else []
    if len(found) != count or (count and not (data.startswith(b'\\"') and data.endswith(b'\\"') and len(data) >= 4)):
        raise UnreadableTraceError("another number of texts than the shape says")
    made = np.empty(count, np.object_)
    made[:] = [text.decode() for text in found]
    return made


def _whole(side: Mapping[str, Array]) -> bool:
    """Tensors with a batch in front, the same for all."""
    return bool(side) and all(array.ndim for array in side.values()) and len({len(a) for a in side.values()}) == 1

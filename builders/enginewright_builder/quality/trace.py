"""Tensors of sampled requests, out of the files that Triton's trace extension writes.

Level ``TENSORS`` gives, for each traced request, its inputs as they were queued and the outputs of the backend, as text
of six digits: ``[{"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":{"name","data","shape","dtype"}}, …]`` (server
``docs/user_guide/trace.md``). The id that a client gave its request is there with level ``TIMESTAMPS`` alone. Six
digits are far below what a metric resolves. Of other types the text is empty (FP16, BF16) or raw bytes that break the
JSON (INT8, UINT8, BYTES), as seen with tritonserver 2.51.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from enginewright_builder.contract import PROBE_REQUEST_ID
from enginewright_builder.tensors import Array, Tensors

TRACE_LEVEL: Final = ("TIMESTAMPS", "TENSORS")
INPUT, OUTPUT = "TENSOR_QUEUE_INPUT", "TENSOR_BACKEND_OUTPUT"
_TYPES: Final[Mapping[str, Any]] = {
    "BOOL": np.bool_, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT16": np.uint16,
    "UINT32": np.uint32, "UINT64": np.uint64, "FP32": np.float32, "FP64": np.float64,
}
_READABLE: Final = frozenset(np.dtype(kind).name for kind in _TYPES.values())


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One request: what came in and what the engine answered, the batch in front."""

    inputs: Tensors
    outputs: Tensors

    @property
    def rows(self) -> int:
        return len(next(iter(self.outputs.values())))


class UnreadableTraceError(ValueError):
    """Not (yet) a whole trace file."""


def readable(dtype: str) -> bool:
    """Whether a tensor of this type, by NumPy's name, can be had from a trace."""
    return dtype in _READABLE


def read_traces(text: bytes, computed: str = "") -> Iterator[Traced]:
    """The requests of one file that have both sides, in their order, without the operator's own; with a name only those
    that the model ``computed`` answered, and no hits of a cache before it. Raises :class:`UnreadableTraceError`."""
    sides: dict[int, dict[str, dict[str, Array]]] = {}
    ours: set[int] = set()
    models: dict[int, str] = {}
    try:
        for entry in json.loads(text):
            if "model_name" in entry:
                models[int(entry["id"])] = str(entry["model_name"])
            if entry.get("request_id") == PROBE_REQUEST_ID:
                ours.add(int(entry["id"]))
            if entry.get("activity") in (INPUT, OUTPUT):
                tensor = entry["tensor"]
                found = sides.setdefault(int(entry["id"]), {INPUT: {}, OUTPUT: {}})
                found[entry["activity"]][tensor["name"]] = _array(tensor)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise UnreadableTraceError(f"{type(error).__name__}: {error}") from error
    for number, request in sides.items():
        if computed and models.get(number) != computed:
            continue
        if number not in ours and _whole(request[INPUT]) and _whole(request[OUTPUT]):
            yield Traced(inputs=request[INPUT], outputs=request[OUTPUT])


def _array(tensor: Mapping[str, str]) -> Array:
    shape = [int(size) for size in tensor["shape"].split(",")]
    kind = _TYPES[tensor["dtype"]]
    texts = tensor["data"].split(",") if tensor["data"] else []
    if kind is np.bool_:
        values: Array = np.array([text == "1" for text in texts], np.bool_)
    elif np.dtype(kind).kind == "f":
        values = np.array(texts, np.float64).astype(kind)
    else:
        values = np.array([int(text) for text in texts], kind)
    return values.reshape(shape)


def _whole(side: Mapping[str, Array]) -> bool:
    """Tensors with a batch in front, the same for all."""
    return bool(side) and all(array.ndim for array in side.values()) and len({len(a) for a in side.values()}) == 1

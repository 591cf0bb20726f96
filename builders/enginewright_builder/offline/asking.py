"""Rows to a tritonserver and their answers back, in full batches, a few of them on the way at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.data.files import Row, check_against
from enginewright_builder.data.files import SampleFile as Samples
from enginewright_builder.errors import BuilderError, TransientError, UserError
from enginewright_builder.load import Channels, encode
from enginewright_builder.offline.answers import Answer
from enginewright_builder.offline.rows import INPUT, shapes, stacked
from enginewright_builder.shapes import BATCH, DTYPES
from enginewright_builder.tensors import Array
from enginewright_builder.triton.client import Server
from enginewright_builder.triton.model_config import TAKES_MISSING

# Of one batch: what takes longer hangs.
REQUEST_SECONDS: Final = 600.0
# Between two requests to a server that went away.
PAUSE_SECONDS: Final = 0.2
_BY_TRITON = {"BOOL": "bool", "BYTES": "string", "FP16": "float16", "FP32": "float32", "FP64": "float64",
              **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}}
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, kw_only=True)
class Served:
    """What the server says of the model. ``batch`` is the largest it takes, 0 for one that takes calls as they are.
    ``missing``: NaN, and null in JSON, is a value that is missing."""

    model: str
    interface: Interface
    batch: int
    instances: int
    missing: bool = False


async def served(server: Server, model: str) -> Served:
    """Raises :class:`UserError` ``ModelNotServed``."""
    about, config = await server.described(model)
    if not about or not config:
        raise UserError("ModelNotServed", f"the server at {server.address.http} serves no model {model!r}",
                        field="--model", value=model, remedy="name one that it has loaded")
    batch = int(config.get("max_batch_size", 0))
    groups = config.get("instance_group", [])
    return Served(model=model, batch=batch, interface=_interface(about, batched=batch > 0),
                  instances=max(1, sum(int(group.get("count", 1)) for group in groups)),
                  missing=TAKES_MISSING in config.get("parameters", {}))


def _interface(about: dict[str, Any], *, batched: bool) -> Interface:
    inputs, outputs = (tuple(_tensor(one, batched=batched) for one in about[side]) for side in ("inputs", "outputs"))
    return Interface(inputs=inputs, outputs=outputs)


def _tensor(entry: dict[str, Any], *, batched: bool) -> TensorSpec:
    dtype = _BY_TRITON.get(entry["datatype"], "")
    if dtype not in DTYPES:
        raise UserError("ModelNotServed", f"tensor {entry['name']!r} is {entry['datatype']}, which NumPy does not have",
                        field="--model", value=entry["datatype"], remedy="serve an engine with other types")
    sizes = [int(size) for size in entry["shape"]]
    shape = tuple("size" if size < 0 else size for size in sizes)
    return TensorSpec(name=entry["name"], dtype=dtype, shape=(BATCH, *shape[1:]) if batched else shape)


class Asker:
    """``server`` is waited for where it goes away; ``on_the_way`` is how many requests it has at once."""

    def __init__(self, server: Server, channels: Channels, about: Served, on_the_way: int) -> None:
        self._server, self._channels, self._about = server, channels, about
        self._free = asyncio.Semaphore(on_the_way)

    def checked(self, samples: Samples, first: int) -> Sequence[Row]:
        """Rows as the model takes them; ``first`` is the number of the first. Raises :class:`UserError`
        ``BatchInputInvalid``."""
        found = check_against(samples, self._about.interface, INPUT, first=first,
                              missing=self._about.missing)
        if found.texts:
            raise INPUT.invalid("the file holds texts, and the engine takes tokens", "text",
                                "build it with an input that is a text, so that it has its tokenizer, or give tokens")
        if len(found) != len(samples):
            raise INPUT.invalid("the model takes a fixed number of rows at once", len(samples),
                                "let each row be one whole call, with all of its dimensions")
        return found.rows

    async def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """One for each row, in their order. Raises :class:`BuilderError`."""
        found: list[Answer | None] = [None] * len(rows)

        async def ask(places: list[int]) -> None:
            async with self._free:
                for place, answer in zip(places, await self._batch([rows[place] for place in places]), strict=True):
                    found[place] = answer

        try:
            async with asyncio.TaskGroup() as tasks:
                for places in self._batches(rows):
                    tasks.create_task(ask(places))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group
        return [one for one in found if one is not None]

    def _batches(self, rows: Sequence[Row]) -> Iterator[list[int]]:
        """Places of rows that go together: full batches, of what has the same shapes."""
        alike: dict[object, list[int]] = {}
        for place, row in enumerate(rows):
            alike.setdefault(shapes(row) if self._about.batch else place, []).append(place)
        most = max(1, self._about.batch)
        for places in alike.values():
            yield from (places[start:start + most] for start in range(0, len(places), most))

    async def _batch(self, rows: list[Row]) -> list[Answer]:
        whole = not self._about.batch
        request = encode(self._about.model, rows[0] if whole else stacked(rows), batch=len(rows))
        outputs = _decoded(await self._call(request.payload))
        if whole:
            return [outputs]
        if wrong := [name for name, array in outputs.items() if array.shape[:1] != (len(rows),)]:
            raise BuilderError("BatchAnswerInvalid", f"{len(rows)} rows were asked, and output {wrong[0]!r} has shape "
                               f"{list(outputs[wrong[0]].shape)}")
        return [{name: array[index] for name, array in outputs.items()} for index in range(len(rows))]

    async def _call(self, payload: bytes) -> bytes:
        """Again and again while the server comes and goes: gRPC looks for it after pauses of its own."""
        deadline = time.monotonic() + self._server.ready_seconds
        while True:
            try:
                return await self._channels.call(payload, REQUEST_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.INVALID_ARGUMENT:
                    raise INPUT.invalid(f"the server refuses rows: {error.details()}", self._about.model,
                                        "give rows in the shapes that the model takes") from error
                if error.code() not in _AWAY or time.monotonic() > deadline:
                    raise TransientError("BatchRequestFailed",
                                         f"the server answered {error.code().name}: {error.details()}",
                                         remedy="read the log of the server") from error
            await asyncio.sleep(PAUSE_SECONDS)
            await self._server.until_ready()


def _decoded(payload: bytes) -> dict[str, Array]:
    message = service_pb2.ModelInferResponse.FromString(payload)
    return {entry.name: _array(entry, raw)
            for entry, raw in zip(message.outputs, message.raw_output_contents, strict=True)}


def _array(entry: Any, raw: bytes) -> Array:
    shape = tuple(entry.shape)
    if entry.datatype == "BYTES":
        return np.asarray(deserialize_bytes_tensor(raw)).reshape(shape)
    return np.frombuffer(raw, triton_to_np_dtype(entry.datatype)).reshape(shape)

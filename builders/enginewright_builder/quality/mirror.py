"""Live requests that were sampled, asked once more of the candidate of a rollout, and both answers scored.

A name says where to: of a headless Service that the operator makes for as long as an analysis lasts, beside the object,
and that leads to the candidate's ready replicas. It is part of the pod, so that no one can redirect requests
by asking for it, and absolute, so that only the cluster's own domain is asked for it. While it leads nowhere nothing is
sent. Of a candidate with a response cache the mirror asks the engine behind it. It keeps a number and a sum of each
request.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Mapping
from http import client
from typing import Any, Final

import numpy as np

from enginewright_builder.contract import COMPUTED, Interface
from enginewright_builder.quality.trace import Traced
from enginewright_builder.quality.window import Window
from enginewright_builder.shapes import takes_batches
from enginewright_builder.tensors import Array, Tensors
from enginewright_builder.wire import from_wire, to_wire

ANSWER_SECONDS: Final = 2.0
# Of one turn of the monitor, for all that is sent on: a candidate that is slow is asked less.
TURN_SECONDS: Final = 2.0
MOST_BYTES: Final = 16 << 20
HEADER: Final = "Inference-Header-Content-Length"
_NAMES: Final[Mapping[str, str]] = {
    "bool": "BOOL", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint16": "UINT16", "uint32": "UINT32",
    "uint64": "UINT64", "float32": "FP32", "float64": "FP64",
    "int8": "INT8", "uint8": "UINT8",
}
_TYPES: Final[Mapping[str, str]] = {kind: name for name, kind in _NAMES.items()}


class NoAnswerError(Exception):
    """The candidate did not answer, or nothing that can be read."""


def addresses(host: str, port: int) -> frozenset[str]:
    """None where no replica is behind the name, or no such name is known."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(str(entry[4][0]) for entry in found)


class Mirror:
    """``host``, an absolute name, leads to the candidate's replicas, which serve ``model``, of this ``interface``, at
    ``port``; ``own`` is this replica's address: where the name leads here, this is the candidate, and nothing is sent.

    ``mirrored`` answers of the candidate's replicas at ``targets`` had scores that add up to ``agreed``. Both begin
    again where the name leads to no replica that it led to before: that is another candidate."""

    def __init__(self, host: str, model: str, window: Window, *, interface: Interface, port: int, own: str,
                 resolve: Callable[[str, int], frozenset[str]] = addresses,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host, self._port, self._own = host, port, own
        self._outputs, self._batched = interface.outputs, takes_batches(interface)
        # The engine behind a cache first. A candidate without a cache has no such model.
        self._names = (f"{model}{COMPUTED}", model)
        self._name: str | None = None
        self._window, self._resolve, self._clock = window, resolve, clock
        self._until: float | None = None
        self._next = 0
        self.targets: frozenset[str] = frozenset()
        self.mirrored, self.agreed = 0, 0.0

    def turn(self) -> None:
        """A new turn of the monitor begins. Which replicas to ask in it is looked up when there is something to ask."""
        self._until = None

    def _look_up(self) -> float:
        """The end of the turn's time."""
        found = self._resolve(self._host, self._port)
        found = frozenset() if self._own in found else found
        if not found & self.targets:
            self.mirrored, self.agreed, self._name = 0, 0.0, None
        self.targets = found
        return self._clock() + TURN_SECONDS

    def send(self, traced: Traced) -> None:
        """One that is not answered, or without a number to compare, does not count: failures are counted elsewhere. Of
        an error nothing is said, for it may quote values."""
        if self._until is None:
            self._until = self._look_up()
        if not self.targets or self._clock() >= self._until:
            return
        ends = sorted(self.targets)
        self._next += 1
        try:
            answer = self._ask(ends[self._next % len(ends)], traced.inputs)
            score = self._window.score(traced.outputs, answer)
        except Exception:  # a user's metric may raise anything
            return
        if score is not None and math.isfinite(score):
            self.mirrored += 1
            self.agreed += score

    def _ask(self, address: str, inputs: Tensors) -> Tensors:
        """By the name under which this candidate computes each answer, which its first answer tells."""
        head, body = _request(to_wire(inputs, batched=self._batched))
        for name in (self._name,) if self._name else self._names:
            status, answered, json_bytes = self._post(address, name, head, body)
            if status != client.NOT_FOUND:
                break
        if status != client.OK:
            raise NoAnswerError
        self._name = name
        return from_wire(_answer(answered, json_bytes), self._outputs, batched=self._batched)

    def _post(self, address: str, model: str, head: bytes, body: bytes) -> tuple[int, bytes, str | None]:
        """Status, body, and how much of it is JSON. Raises :class:`NoAnswerError`."""
        connection = client.HTTPConnection(address, self._port, timeout=ANSWER_SECONDS)
        try:
            connection.request("POST", f"/v2/models/{model}/infer", head + body, {HEADER: str(len(head))})
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_BYTES), answer.getheader(HEADER)
        except (OSError, client.HTTPException) as error:
            raise NoAnswerError from error
        finally:
            connection.close()


def _request(inputs: Tensors) -> tuple[bytes, bytes]:
    """JSON, and the tensors' bytes behind it: Triton's binary tensor data extension."""
    entries, parts = [], []
    for name, array in inputs.items():
        part = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        entries.append({"name": name, "shape": list(array.shape), "datatype": _NAMES[array.dtype.name],
                        "parameters": {"binary_data_size": len(part)}})
        parts.append(part)
    head = json.dumps({"inputs": entries, "parameters": {"binary_data_output": True}}).encode()
    return head, b"".join(parts)


def _answer(body: bytes, json_bytes: str | None) -> Tensors:
    """Raises :class:`NoAnswerError`."""
    try:
        place = int(json_bytes) if json_bytes is not None else len(body)
        found: dict[str, Array] = {}
        for output in json.loads(body[:place])["outputs"]:
            size = int(output["parameters"]["binary_data_size"])
            found[output["name"]] = _array(output, body[place : place + size])
            place += size
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswerError from error
    return found


def _array(output: Mapping[str, Any], raw: bytes) -> Array:
    kind = np.dtype(_TYPES[output["datatype"]]).newbyteorder("<")
    return np.frombuffer(raw, kind).reshape([int(size) for size in output["shape"]])

"""State of each sequence, between its requests: what Triton's implicit state is for backends that have it.

Copied beside ``model.py``; it may import only the standard library and NumPy. ``engines.json`` has as ``sequences``::

    {"state": [{"input": "h", "output": "hn", "dtype": "float32", "shape": [1, 1, 64]}], "most": 256, "idle": 1.0}

A sequence begins with the numbers of ``"begin"``, in their order, or with zeros where a state has none, at a request
that has the START flag. Triton's sequence batcher sends all requests of a
sequence to one instance of the model, one at a time, and refuses those of a sequence that it does not know; so this
process has the state. Requests of several sequences may come in one call: where the model takes batches they run as
one, and the state of each has a batch of 1 in front. Triton does not tell that a sequence was idle for too long: such a
one is dropped here when it is older than Triton keeps any (``idle`` seconds and :data:`SLACK`), and at any time the
latest ``most`` alone are kept.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
# Of Triton's requests.
START, END = 1, 2
# Seconds. Triton counts a sequence as idle from when a request came, this process from when the one before was
# answered: between the two lies the time in the queue.
SLACK = 60.0


class Sequences:
    """The newest state of each sequence that this instance of the model has."""

    def __init__(self, described: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.outputs = {entry["input"]: entry["output"] for entry in described["state"]}
        self._begin = {entry["input"]: _begun(entry) for entry in described["state"]}
        self._most, self._seconds, self._clock = described["most"], described["idle"] + SLACK, clock
        self._kept: OrderedDict[int | str, tuple[float, Arrays]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def state(self, request: Any) -> Arrays:
        """What the engine takes beside the request's own inputs. Raises ``ValueError`` for a sequence that began
        elsewhere, or was dropped."""
        if request.flags() & START:
            return dict(self._begin)
        if (kept := self._kept.get(request.correlation_id())) is None:
            raise ValueError(f"sequence {request.correlation_id()} has no state in this replica: it was idle for too "
                             "long. Begin it again, with the START flag on its first request")
        return dict(kept[1])

    def keep(self, request: Any, answer: Mapping[str, Any] | None) -> None:
        """The state in ``answer``, unless the sequence ends. None: there is no answer, and a sequence that goes on has
        the state that it had before."""
        sequence = request.correlation_id()
        if request.flags() & END:
            self._kept.pop(sequence, None)
        elif answer is not None:
            state = {name: _own(answer[output]) for name, output in self.outputs.items()}
            self._kept[sequence] = (self._clock(), state)
            self._kept.move_to_end(sequence)
        self._drop()

    def _drop(self) -> None:
        """The oldest stand in front."""
        begun = self._clock() - self._seconds
        while self._kept and (len(self._kept) > self._most or next(iter(self._kept.values()))[0] < begun):
            self._kept.popitem(last=False)


def _own(array: NDArray[Any]) -> NDArray[Any]:
    """A part of what several sequences were answered would hold the memory of the whole."""
    return array if array.base is None else array.copy()


def _begun(entry: Mapping[str, Any]) -> NDArray[Any]:
    made: NDArray[Any] = np.array(entry.get("begin", 0)).astype(entry["dtype"])
    made = made.reshape(entry["shape"]) if "begin" in entry else np.full(entry["shape"], made)
    made.flags.writeable = False  # every sequence begins with it
    return made

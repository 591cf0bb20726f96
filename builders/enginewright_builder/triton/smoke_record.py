"""Recorded inputs and the source model's answers, published beside an engine: what its replicas are tried with.

A few samples are kept, and sent as a batch of one and as the largest batch that fits, round and round: so the file
stays small whatever the batch. How far an engine may be off is not chosen but measured, by the same arithmetic that
judges it in the pod (:mod:`enginewright_builder.pod.smoke`): as far as it was off on these very samples through a real
tritonserver when it was proven, and a slack for what differs from run to run. It is the relative error whatever the
gate's metric is, which may be blind to size, or run only where the builder does.

An engine that is wrong at these batches must not make its own wrongness the measure. So where the gate compared it at
another batch, the build runs the same samples in that batch, and publishes no engine that is far further off as served.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from enginewright_builder.contract import canonical
from enginewright_builder.errors import UserError
from enginewright_builder.names import have_guards
from enginewright_builder.pod import smoke
from enginewright_builder.tensors import Array, Steps, Tensors, whole_call

VERSION = 1
MAX_SAMPLES = 8
# Inputs and answers that are kept: of several samples, and of one alone. In the file they are a third larger.
SEVERAL_BYTES, ALONE_BYTES = 2 << 20, 6 << 20
# Inputs and answers of the largest request: it is held in memory beside a server that has its own limit.
REQUEST_BYTES = 32 << 20
# Of an answer's size, or of a whole-numbered answer's entries: what the proof itself lets a server differ from the
# engine. Where answers differ more than that from run to run, three times as much as they did.
SLACK, RUN_TO_RUN = 0.01, 3.0
# Further off than at the gate's batch by this factor, and by more than this share of an answer's size, is another
# function: kernels for other batches differ by rounding, and ranges of dynamic quantisation by what is in the batch.
FAR, LEAST_FAR = 5.0, 0.1
_SMALLEST = 1e-300


@dataclass(frozen=True, kw_only=True)
class SmokeSamples:
    """``inputs`` and the source model's answers of a few samples, and the batches that they are sent in. ``whole``: the
    model takes no batches, and its one sample is sent without a batch in front; ``stepped``: it is a sequence, of which
    each step is a request. ``gated`` has for each of ``batches`` what the engine that serves it answered to the samples
    in a batch that the gate compared it at; nothing where that is the same."""

    inputs: Tensors
    reference: Tensors
    batches: tuple[int, ...]
    gated: tuple[Tensors, ...] = ()
    whole: bool = False
    stepped: bool = False

    @property
    def count(self) -> int:
        return _rows(self.inputs)

    def request(self, batch: int) -> Tensors:
        if self.whole:
            return Steps(whole_call(self.inputs)) if self.stepped else whole_call(self.inputs)
        return {name: array[np.arange(batch) % self.count] for name, array in self.inputs.items()}

    def expected(self, kept: Array, batch: int) -> Array:
        """``kept`` answers, for a request of ``batch``."""
        repeated: Array = kept[np.arange(batch) % self.count]
        return repeated


def choose(samples: Tensors, reference: Callable[[Tensors], Tensors], max_batch_size: int) -> SmokeSamples | None:
    """The first few of ``samples`` with their answers; None where even one is too large to keep, or is answered by
    something else than numbers and texts."""
    alone = _first(samples, 1)
    answers = reference(alone)
    if any(array.dtype.kind not in "fiubO" for array in answers.values()):
        return None
    largest = max(sum(_size(array[row:row + 1]) for array in samples.values())
                  for row in range(min(MAX_SAMPLES, _rows(samples))))
    each = largest + sum(map(_size, answers.values()))
    if each > ALONE_BYTES:
        return None
    count = max(1, min(MAX_SAMPLES, max_batch_size, _rows(samples), SEVERAL_BYTES // max(1, each)))
    kept = _first(samples, count)
    largest = max(1, min(max_batch_size, REQUEST_BYTES // max(1, each)))
    return SmokeSamples(inputs=kept, reference=reference(kept), batches=tuple(sorted({1, largest})))


def record(samples: SmokeSamples, answers: Sequence[Sequence[Tensors]]) -> str:
    """The file. ``answers`` holds for each batch what the server gave, several times over.

    Raises :class:`UserError` ``ServedAnswersDiffer`` where an answer is NaN, infinite, of another shape, or far further
    off than where the gate looked."""
    outputs = []
    for name, reference in samples.reference.items():
        array = reference.astype(answers[0][0][name].dtype)  # the type that the server answers in
        measured = max(_apart(one[name], samples.expected(array, batch), name)
                       for batch, given in zip(samples.batches, answers, strict=True) for one in given)
        noise = max((_apart(one[name], other[name], name) for given in answers
                     for one, other in combinations(given, 2)), default=0.0)
        _check_gated(samples, name, answers)
        outputs.append({**_tensor(name, array), "measured": measured, "limit": measured + _slack(array, noise)})
    how: dict[str, Any] = {"whole": True} if samples.whole else {}
    if samples.stepped:
        how["steps"] = len(next(iter(samples.inputs.values()))[0])
    return canonical({**how, "version": VERSION, "samples": samples.count, "batches": list(samples.batches),
                      "inputs": [_tensor(name, array) for name, array in samples.inputs.items()], "outputs": outputs})


def _check_gated(samples: SmokeSamples, name: str, answers: Sequence[Sequence[Tensors]]) -> None:
    """Of amounts alone: names that lie close together change places by rounding. Raises as :func:`record` does."""
    if not have_guards(name, samples.reference) or not samples.reference[name].size:
        return
    for batch, gated, given in zip(samples.batches, samples.gated, answers, strict=False):
        if not gated:
            continue
        before = _off(samples, name, batch, samples.expected(gated[name], batch))
        off = max(_off(samples, name, batch, one[name]) for one in given)
        if off > max(LEAST_FAR, FAR * before):
            raise UserError("ServedAnswersDiffer", f"output {name!r} as served in batches of {batch} is off the source "
                            f"model's by {off:.3g} of its size, and by {before:.3g} on the same samples in the batches "
                            "that the gate compared", field="spec.engine", value=f"{off:.3g}",
                            remedy="set another spec.engine.backend or spec.engine.precision, and report it with the "
                                   "build's log")


def _off(samples: SmokeSamples, name: str, batch: int, answer: Array) -> float:
    """Of the answers' size, or of as many of median size where they are next to nothing."""
    reference = samples.reference[name].reshape(samples.count, -1).astype(np.float64)
    known = np.isfinite(reference)
    reference = np.where(known, reference, 0.0)
    sizes, rows = np.linalg.norm(reference, axis=1), np.arange(batch) % samples.count
    gaps = np.where(known[rows], answer.reshape(batch, -1) - reference[rows], 0.0)
    size = max(float(np.linalg.norm(sizes[rows])), math.sqrt(batch) * float(np.median(sizes)), _SMALLEST)
    return float(np.linalg.norm(gaps)) / size


def _slack(reference: Array, noise: float) -> float:
    """Of few whole numbers one may differ: a tie."""
    least = SLACK if reference.dtype.kind == "f" else max(SLACK, 1.0 / max(1, reference[0].size))
    return max(least, RUN_TO_RUN * noise)


def _apart(answer: Array, reference: Array, name: str) -> float:
    off = smoke.distance(str(np_to_triton_dtype(reference.dtype)), _raw(answer), _raw(reference))
    if not math.isfinite(off):
        raise UserError("ServedAnswersDiffer", f"output {name!r} as served is NaN, infinite or of another shape where "
                        f"the source model's is {list(reference.shape)}", field="spec.engine", value=list(answer.shape),
                        remedy="use the server image that belongs to this builder")
    return off


def _tensor(name: str, array: Array) -> dict[str, Any]:
    """``shape`` without the batch."""
    return {"name": name, "datatype": str(np_to_triton_dtype(array.dtype)), "shape": list(array.shape[1:]),
            "data": base64.b64encode(_raw(array)).decode()}


def _size(array: Array) -> int:
    """In bytes. Texts have a length of their own, each."""
    return len(_raw(array)) if array.dtype.kind == "O" else array.nbytes


def _raw(array: Array) -> bytes:
    if array.dtype.kind == "O":
        return bytes(serialize_byte_tensor(array).item())
    return np.ascontiguousarray(array).tobytes()


def _first(samples: Tensors, count: int) -> Tensors:
    return {name: array[:count] for name, array in samples.items()}


def _rows(samples: Tensors) -> int:
    return len(next(iter(samples.values())))

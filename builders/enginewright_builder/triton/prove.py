"""Loads a finished repository in a tritonserver and compares its answers, before it is published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio
import numpy as np
from numpy.typing import NDArray

from enginewright_builder.errors import UserError
from enginewright_builder.ids import are_ids, different_share
from enginewright_builder.load.channels import Channels
from enginewright_builder.load.requests import TruncatedAnswerError, decode, encode, in_sequence, new_sequence
from enginewright_builder.names import missed_share
from enginewright_builder.tensors import Steps, Tensors
from enginewright_builder.triton.client import LOAD_REMEDY, Server

# How often each request whose answers are recorded is asked: enough to see whether they differ from run to run.
REPEATS = 4
# How often a sequence is begun that the server forgets, and what the server says to a step of a forgotten one.
SEQUENCE_ATTEMPTS, START_FLAG = 3, "START flag"
# How long an answer may take: the first is computed while libraries are still being loaded.
ANSWER_SECONDS = 120.0
# What a cosine may lose by sums in another order.
ROUNDING = 1e-5


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request and the answer of the in-process runner to it."""

    inputs: Tensors
    expected: Tensors


@dataclass(frozen=True, kw_only=True)
class Proof:
    """``worst_difference`` is the largest ``max|served − expected| / max|expected|`` over all cases and outputs.

    ``load_seconds`` is the server's start and the load of the model together, warm-up included, as a replica has them
    one after another. ``memory_bytes`` is the resident memory of the server's process tree, or its device memory on a
    GPU, with the model loaded and used; 0 where unknown.
    ``answers`` are those to each of the ``repeated`` requests, :data:`REPEATS` times over.
    """

    load_seconds: float
    memory_bytes: int
    worst_difference: float
    first_inference_ms: float
    server_version: str
    answers: tuple[tuple[Tensors, ...], ...] = ()


async def prove_on(server: Server, model_name: str, cases: Sequence[Case], *, tolerance: float = 0.01,
                   repeated: Sequence[Tensors] = (), mixed: Sequence[Case] = (), loss: float = 0.0) -> Proof:
    """Of a model in the repository of ``server``, which has loaded nothing before. ``mixed`` are single requests of
    different length that are sent at once: what runs together may turn an answer by a cosine of ``1 - loss``.

    Raises :class:`UserError` ``ServerLoadFailed`` (with the tail of Triton's log) when the model does not load, a
    :class:`HungError` when that comes to no end, and ``ServedAnswersDiffer`` when an answer is off by more than
    ``tolerance``."""
    if not cases:
        raise ValueError("a proof needs at least one case")
    loaded = await server.load(model_name)
    worst, first_ms = 0.0, 0.0
    async with Channels(server.grpc_url, count=1) as channels:
        for number, case in enumerate(cases):
            began = time.monotonic()
            served = await _infer(channels, server, model_name, case.inputs)
            first_ms = first_ms or (time.monotonic() - began) * 1e3
            for name in case.expected:
                off = difference_of(name, served, case.expected)
                worst = max(worst, off)
                if not off <= tolerance:
                    raise _differs(model_name, name, number, off, tolerance)
        await _prove_mixed(channels, server, model_name, mixed, loss)
        answers = tuple([tuple([await _infer(channels, server, model_name, inputs)
                                for _ in range(REPEATS)]) for inputs in repeated])
    return Proof(load_seconds=server.start_seconds + loaded, memory_bytes=await server.memory_bytes(),
                 worst_difference=worst, first_inference_ms=first_ms, server_version=server.version, answers=answers)


async def _prove_mixed(channels: Channels, server: Server, model: str, cases: Sequence[Case], loss: float) -> None:
    """All at once and in either order, so that long ones wait for short ones and short ones for long ones. Of all
    numbers of classes those of one answer may differ: ties."""
    for order in (cases, cases[::-1]):
        ties = 0.0
        answers = await asyncio.gather(*(_infer(channels, server, model, case.inputs) for case in order))
        for case, served in zip(order, answers, strict=True):
            for name, expected in case.expected.items():
                alike = similarity_of(name, served, case.expected)
                ties += 1 - alike if are_ids(expected) else 0.0
                if not (alike >= 1 - max(loss, ROUNDING) or (are_ids(expected) and ties <= 1)):
                    raise _turned(model, name, case, alike)


async def _infer(channels: Channels, server: Server, model: str, inputs: Tensors) -> Tensors:
    """Of a sequence the answers to all steps, these in front."""
    try:
        request = encode(model, inputs)
        if request.steps:
            return await _infer_sequence(channels, request.steps)
        return decode(await channels.call(request.payload, ANSWER_SECONDS))
    except grpc.aio.AioRpcError as error:
        raise _unanswered(model, server, error) from None
    except TruncatedAnswerError as error:
        raise UserError("ServedAnswersDiffer", f"{error} as {model!r} is served", field="spec.serving", value=model,
                        remedy="before release 24.11 Triton's Python backend sends arrays of NumPy 2 away empty: use a "
                               "server image with a newer Triton, or with NumPy below 2") from None


async def _infer_sequence(channels: Channels, steps: Sequence[bytes], attempts: int = SEQUENCE_ATTEMPTS) -> Tensors:
    """A sequence that was idle for too long, as a busy machine let this process wait between two steps, is begun
    again."""
    sequence, end = new_sequence(), len(steps) - 1
    try:
        answers = [decode(await channels.call(in_sequence(step, sequence, first=not number, last=number == end),
                                              ANSWER_SECONDS))
                   for number, step in enumerate(steps)]
    except grpc.aio.AioRpcError as error:
        if attempts == 1 or not _forgotten(error):
            raise
        return await _infer_sequence(channels, steps, attempts - 1)
    return {name: np.stack([answer[name] for answer in answers]) for name in answers[0]}


def _forgotten(error: grpc.aio.AioRpcError) -> bool:
    """Triton, or the model's own code, has no state for a step that does not begin its sequence."""
    return START_FLAG in (error.details() or "")


def _unanswered(model: str, server: Server, error: grpc.aio.AioRpcError) -> UserError:
    if _forgotten(error):
        return UserError(
            "ServerLoadFailed", f"model {model!r} forgets a sequence before its last step, {SEQUENCE_ATTEMPTS} times "
                                f"of {SEQUENCE_ATTEMPTS}: {error.details()}",
            field="spec.interface.sequenceBatching.maxSequenceIdleMicroseconds", value=model,
            remedy="write more than one step of the model takes, or build on a machine that is less busy")
    return UserError("ServerLoadFailed", f"model {model!r} loads but does not answer: {error.code().name}: "
                                         f"{error.details()}. {server.last_words()}",
                     field="spec.serving", value=model, remedy=LOAD_REMEDY)


def difference_of(name: str, served: Tensors, expected: Tensors) -> float:
    """:func:`difference` of one output; of the best few classes, and of detections, the share that is not found."""
    missed = missed_share(name, expected, served)
    return difference(served.get(name), expected[name]) if missed is None else missed


def similarity_of(name: str, served: Tensors, expected: Tensors) -> float:
    """:func:`similarity` of one output; of the best few classes, and of detections, the share that is found."""
    missed = missed_share(name, expected, served)
    return similarity(served.get(name), expected[name]) if missed is None else 1.0 - missed


def difference(served: NDArray[Any] | None, expected: NDArray[Any]) -> float:
    """``max|served − expected| / max|expected|``; infinite for a missing output, another size, or NaN in one place
    only. Of numbers of classes the share that differs."""
    if served is None or served.size != expected.size:
        return float("inf")
    if are_ids(expected):
        return different_share(expected, served)
    if not expected.size:
        return 0.0
    left = served.reshape(expected.shape).astype(np.float64)
    right = expected.astype(np.float64)
    if not np.array_equal(np.isfinite(left), np.isfinite(right)):
        return float("inf")
    finite = np.isfinite(right)
    gap = float(np.max(np.abs(left - right), where=finite, initial=0.0))
    scale = float(np.max(np.abs(right), where=finite, initial=0.0))
    return gap / scale if scale else gap


def similarity(served: NDArray[Any] | None, expected: NDArray[Any]) -> float:
    """The cosine of the angle between two answers, 1 where both are zero; below any bound for a missing output, another
    size, or NaN in one place only. Of numbers of classes the share that is equal."""
    if served is None or served.size != expected.size:
        return float("-inf")
    if are_ids(expected):
        return 1.0 - different_share(expected, served)
    left, right = (array.reshape(-1).astype(np.float64) for array in (served, expected))
    finite = np.isfinite(right)
    if not np.array_equal(np.isfinite(left), finite):
        return float("-inf")
    left, right = left[finite], right[finite]
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / size if size else float(np.array_equal(left, right))


def _turned(model: str, output: str, case: Case, alike: float) -> UserError:
    if isinstance(case.inputs, Steps):
        return UserError("ServedAnswersDiffer", f"output {output!r} of {model!r} over a sequence that is served beside "
                         f"others agrees by {alike:.5f} with the engine's answers to the sequence alone: its state was "
                         "lost, or is another's", field="spec.interface.sequenceBatching", value=f"{alike:.5f}",
                         remedy="use the server image that belongs to this builder")
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in case.inputs.items())
    return UserError("ServedAnswersDiffer", f"output {output!r} of {model!r} as served beside requests of other "
                     f"lengths agrees by {alike:.5f} with the engine's answer to the request alone ({shapes})",
                     field="spec.interface.padding", value=f"{alike:.5f}",
                     remedy="name the input that makes the model ignore padding, or set spec.engine.maxBatchSize to 1")


def _differs(model: str, output: str, case: int, off: float, tolerance: float) -> UserError:
    return UserError("ServedAnswersDiffer",
                     f"output {output!r} of {model!r} as served differs from the engine's own answer to request {case} "
                     f"by {off:.3g} of its largest value; at most {tolerance:g} is allowed",
                     field="spec.engine", value=f"{off:.3g}",
                     remedy="the server runs this engine with another runtime version or device: use the server image "
                            "that belongs to this builder")

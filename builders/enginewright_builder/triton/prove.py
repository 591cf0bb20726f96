"""Loads a finished repository once in a fresh tritonserver and compares its answers, before it is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginewright_builder.engines.base import Tensors


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request and the answer of the in-process runner to it."""

    inputs: Tensors
    expected: Tensors


@dataclass(frozen=True, kw_only=True)
class Proof:
    """``worst_difference`` is the largest ``max|served − expected| / max|expected|`` over all cases and outputs.

    ``load_seconds`` counts from the start of the server process to model ready, warm-up included. ``memory_bytes`` is the
    resident memory of the server's process tree, or its device memory on a GPU, with the model loaded and used.
    """

    load_seconds: float
    memory_bytes: int
    worst_difference: float
    first_inference_ms: float
    server_version: str


def prove(repository: Path, model_name: str, cases: Sequence[Case], *, tolerance: float = 0.01,
          deadline_seconds: float = 120.0) -> Proof:
    """Raises :class:`UserError` ``ServerLoadFailed`` (with the tail of Triton's log) when the server does not get ready in
    time, and ``ServedAnswersDiffer`` when an answer is off by more than ``tolerance``."""
    raise NotImplementedError

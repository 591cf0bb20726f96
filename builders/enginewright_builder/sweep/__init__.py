"""Chooses batching and instance count on a real tritonserver: few measurements, each kept as evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from enginewright_builder.contract import BatchingRequest, InstancesRequest, ObjectiveRequest
from enginewright_builder.engines.base import Artifact, Tensors
from enginewright_builder.sweep.result import Layers, Point, ServicePoint, SweepResult

__all__ = ["Layers", "Point", "ServicePoint", "SweepResult", "sweep"]


def sweep(artifact: Artifact, model_name: str, inputs: Sequence[Tensors], workspace: Path, *, max_batch_size: int,
          objective: ObjectiveRequest, batching: BatchingRequest, instances: InstancesRequest,
          budget_seconds: float = 90.0, max_measurements: int = 12, cores: int = 0, gpus: tuple[int, ...] = (),
          progress: Callable[[float, str], None] = lambda fraction, detail: None) -> SweepResult:
    """``inputs`` are evaluation-like requests, each with its batch in front (of at most ``max_batch_size``).

    Raises :class:`UserError` ``ServerLoadFailed``; :class:`TransientError` ``ServerMissing`` when there is no tritonserver
    on this machine.
    """
    raise NotImplementedError

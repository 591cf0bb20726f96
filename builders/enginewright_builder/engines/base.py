"""The one interface behind which every engine (ONNX Runtime, TensorRT, PyTorch) stands.

A new engine is a new module that implements :class:`Engine` and is named in ``registry.py``; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from enginewright_builder.contract import DeviceRequest, Interface, RuntimeRequest

Array = npt.NDArray[Any]
# Named arrays with the batch in front: ``{"input_ids": int64[batch, sequence], …}``.
Tensors = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """The source model as checked ONNX, the common ground of all engines.

    ``interface`` has the batch dimension first in every shape, as the free dimension ``batch``.
    """

    path: Path
    interface: Interface
    opset: int


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of a precision ladder. ``unavailable`` says why it cannot be built here, empty if it can."""

    backend: str
    precision: str
    unavailable: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What a rung may use. ``calibration`` holds batches of real inputs, apart from the evaluation data; empty if
    none."""

    device: DeviceRequest
    runtime: RuntimeRequest
    max_batch_size: int
    calibration: Sequence[Tensors]
    workspace: Path
    progress: Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A built engine: what goes into the Triton version folder and how Triton runs it.

    ``files`` maps names inside the version folder (``1/``) to where they are now. ``triton_backend`` is ``python``,
    ``onnxruntime`` or ``tensorrt``; ``parameters`` become ``config.pbtxt`` parameters.
    """

    rung: Rung
    files: Mapping[str, Path]
    triton_backend: str
    interface: Interface
    runtime_version: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())


class Runner(Protocol):
    """A loaded engine in this process, to measure accuracy and bare latency. Call it with one batch."""

    def __call__(self, inputs: Tensors) -> Tensors: ...

    def close(self) -> None: ...


class Engine(Protocol):
    """A backend. Raises :class:`enginewright_builder.errors.BuilderError` with a reason for what the user can mend."""

    name: str

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        """The ladder for this device, most precise first; one rung if ``precision`` is not ``auto``."""
        ...

    def build(self, rung: Rung, model: ExportedModel, context: BuildContext) -> Artifact: ...

    def load(self, artifact: Artifact) -> Runner: ...

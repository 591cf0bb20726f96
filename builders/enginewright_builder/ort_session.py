"""ONNX Runtime as this builder uses it: quiet, without telemetry, on the CPUs it may have."""

from __future__ import annotations

import os

# ONNX Runtime 1.31 persists a telemetry identifier unless told not to, and reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from pathlib import Path

import onnxruntime as ort

from enginewright_builder.engines.base import Array, Tensors
from enginewright_builder.system import available_cpus

ort.disable_telemetry_events()

_ERRORS_ONLY = 3


def version() -> str:
    return str(ort.__version__)


def providers(accelerator: str) -> list[str]:
    """The device's provider where this build of ONNX Runtime has it, then the CPU's."""
    wanted = ["CUDAExecutionProvider", "CPUExecutionProvider"] if accelerator == "gpu" else ["CPUExecutionProvider"]
    return [name for name in wanted if name in ort.get_available_providers()]


class OrtRunner:
    """A loaded ONNX model; call it with one batch of named arrays."""

    def __init__(self, path: Path, *, accelerator: str = "cpu") -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = available_cpus()
        options.log_severity_level = _ERRORS_ONLY
        # Its threads would otherwise spin on after a run, at the cost of whoever is measured next.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self._session = ort.InferenceSession(str(path), options, providers=providers(accelerator))
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def __call__(self, inputs: Tensors) -> Tensors:
        values: list[Array] = self._session.run(None, {name: inputs[name] for name in self._inputs})
        return dict(zip(self._outputs, values, strict=True))

    def close(self) -> None:
        del self._session

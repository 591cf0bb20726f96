"""Runs ONNX with ONNX Runtime: in the builder, to measure it, and inside Triton's Python backend, to serve it.

Copied beside ``model.py`` into the version folder; it may import only the standard library, NumPy and ONNX Runtime.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Before the import: ONNX Runtime otherwise tries to persist a telemetry identifier, on a root that is read-only.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

ort.disable_telemetry_events()

Array = NDArray[Any]
CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_ERRORS_ONLY = "3"


class Session:
    """The first of ``files`` that is ONNX, on CUDA device ``device``, or on the CPU if that is negative.

    ``parameters``: ``threads`` of this session (default: ONNX Runtime's own choice), ``log_severity_level``, any
    ``session.*`` entry of ONNX Runtime's session configuration, and any ``cuda.*`` option of its CUDA provider.
    ``buckets`` mean nothing here: nothing is captured.
    """

    takes_members = False

    def __init__(self, folder: Path, files: Sequence[str], *, device: int = 0, buckets: Sequence[int] = (),
                 parameters: Mapping[str, str] | None = None) -> None:
        settings = dict(parameters or {})
        main = next(name for name in files if name.endswith(".onnx"))
        self._device = device
        self._session = ort.InferenceSession(str(Path(folder) / main), session_options(settings),
                                             providers=providers(device, settings))
        if device >= 0:
            # One provider that fails to load is otherwise left out quietly, and the CPU serves.
            self._session.disable_fallback()
        self.input_names = [value.name for value in self._session.get_inputs()]
        self.output_names = [value.name for value in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        values = self._session.run(self.output_names, {name: _texts(inputs[name]) for name in self.input_names})
        return dict(zip(self.output_names, values, strict=True))

    def bind(self, inputs: Mapping[str, Array]) -> Callable[[], object]:
        """On a GPU inputs are copied there now, and outputs stay there. Texts never lie there."""
        if self._device < 0 or any(array.dtype == np.object_ for array in inputs.values()):
            return lambda: self.run(inputs)
        binding = self._session.io_binding()
        held = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(inputs[name]), "cuda", self._device)
                for name in self.input_names}
        for name, value in held.items():
            binding.bind_ortvalue_input(name, value)
        for name in self.output_names:
            binding.bind_output(name, "cuda", self._device)

        def call() -> object:
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            return held  # kept alive as long as the call is

        return call

    def close(self) -> None:
        if hasattr(self, "_session"):
            del self._session


def session_options(settings: Mapping[str, str]) -> ort.SessionOptions:
    options = ort.SessionOptions()
    if threads := int(settings.get("threads", "0")):
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    options.log_severity_level = int(settings.get("log_severity_level", _ERRORS_ONLY))
    for key, value in settings.items():
        if key.startswith("session."):
            options.add_session_config_entry(key, value)
    return options


def providers(device: int, settings: Mapping[str, str]) -> list[Any]:
    """Raises ``RuntimeError`` where a GPU is asked for and this ONNX Runtime has none: the CPU would answer, slowly."""
    if device < 0:
        return [CPU]
    if CUDA not in ort.get_available_providers():
        raise RuntimeError(f"this ONNX Runtime {ort.__version__} has no {CUDA}")
    cuda = {key.removeprefix("cuda."): value for key, value in settings.items() if key.startswith("cuda.")}
    return [(CUDA, {"device_id": str(device), **cuda}), CPU]


def _texts(array: Array) -> Array:
    """Triton sends strings as bytes, ONNX Runtime takes ``str``."""
    if array.dtype != np.object_:
        return array
    decoded = [item.decode() if isinstance(item, bytes) else item for item in array.ravel()]
    return np.array(decoded, dtype=np.object_).reshape(array.shape)

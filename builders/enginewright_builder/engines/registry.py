"""Which engines there are. A new one is a module that implements ``Engine`` and a line in :func:`all_engines`."""

from __future__ import annotations

from collections.abc import Sequence

from enginewright_builder.contract import DeviceRequest
from enginewright_builder.engines.base import Engine
from enginewright_builder.errors import UserError

BACKENDS = ("auto", "tensorrt", "onnxruntime", "torch")
# Products read weights in blocks of so many bits, and compute in more. Only where asked for: auto leaves them out.
WEIGHT_ONLY = ("int8-weight-only", "int4-weight-only")
PRECISIONS = ("auto", "fp32", "tf32", "fp16", "bf16", "int8", "fp8", *WEIGHT_ONLY)
# What each kind of accelerator can compute in faster than in FP32, and is built for.
DEVICE_PRECISIONS = {"cpu": ("fp32", "int8", *WEIGHT_ONLY),
                     "gpu": ("fp32", "tf32", "fp16", "bf16", "int8", "fp8", *WEIGHT_ONLY)}
# Engines that compile the source itself, and need no ONNX of it.
WITHOUT_GRAPH = ("torch",)
# What a backend has no rung for, whatever the device.
_NOT_OF = {"torch": WEIGHT_ONLY, "tensorrt": ("int8-weight-only",)}


def all_engines() -> Sequence[Engine]:
    # Imported here, so that the checks below cost nothing.
    from enginewright_builder.engines.onnxruntime import OnnxRuntimeEngine
    from enginewright_builder.engines.tensorrt import TensorRtEngine
    from enginewright_builder.engines.torch_aoti import TorchEngine

    return (TensorRtEngine(), TorchEngine(), OnnxRuntimeEngine())


def check_choice(backend: str, precision: str, device: DeviceRequest) -> None:
    """Raises :class:`UserError` ``BackendUnavailable`` or ``PrecisionUnsupported``. Needs no device and no engine."""
    if backend not in BACKENDS:
        raise UserError("BackendUnavailable", f"{backend!r} is not a backend", field="spec.engine.backend",
                        value=backend,
                        remedy=f"write one of {', '.join(BACKENDS)}")
    if backend == "tensorrt" and device.accelerator == "cpu":
        raise UserError("BackendUnavailable", "TensorRT runs on NVIDIA GPUs only", field="spec.engine.backend",
                        value=backend, remedy="write auto or onnxruntime, or set spec.placement.accelerator to gpu")
    if precision not in PRECISIONS:
        raise UserError("PrecisionUnsupported", f"{precision!r} is not a precision", field="spec.engine.precision",
                        value=precision, remedy=f"write one of {', '.join(PRECISIONS)}")
    able = DEVICE_PRECISIONS.get(device.accelerator, ())
    if precision != "auto" and precision not in able:
        raise UserError("PrecisionUnsupported", f"{precision} does nothing for inference on {device.accelerator}",
                        field="spec.engine.precision", value=precision, remedy=f"write auto or {', '.join(able)}")
    if precision in _NOT_OF.get(backend, ()):
        raise UserError("PrecisionUnsupported", f"{backend} builds no {precision}", field="spec.engine.precision",
                        value=precision, remedy="set spec.engine.backend to auto or onnxruntime, or write auto")


def engines_for(backend: str, engines: Sequence[Engine]) -> Sequence[Engine]:
    """The engines that compete. Raises :class:`UserError` ``BackendUnavailable`` when the one asked for is not here."""
    chosen = [engine for engine in engines if backend in ("auto", engine.name)]
    if not chosen:
        raise UserError("BackendUnavailable", f"this builder image has no {backend} engine",
                        field="spec.engine.backend",
                        value=backend, remedy=f"write auto or {', '.join(engine.name for engine in engines)}, or use a "
                                              f"builder image with {backend}")
    return chosen

"""What TensorRT and which GPU this process has, and which precisions they are good for."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from enginewright_builder.engines.base import BuildContext, not_served
from enginewright_builder.pod import device
from enginewright_builder.shapes import takes_batches

# The Job sees its GPU, or slice, as the first one.
DEVICE = 0
# From which compute capability on the tensor cores compute in it (TensorRT's support matrix, hardware and precision).
_NEEDS = {"fp32": (7, 5), "tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 5), "fp8": (8, 9), "int8": (7, 5),
          "int4-weight-only": (8, 0)}


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """``memory_bytes`` is all of the device, or slice; ``free_bytes`` what no process holds now."""

    product: str
    capability: tuple[int, int]
    memory_bytes: int
    free_bytes: int

    @property
    def capability_text(self) -> str:
        return ".".join(map(str, self.capability))


class MissingError(Exception):
    """There is no TensorRT or no GPU here; the message says what is missing."""


def tensorrt() -> Any:
    """The module. Raises :class:`MissingError`."""
    try:
        return importlib.import_module("tensorrt")
    except (ImportError, OSError) as error:
        raise MissingError(f"this builder image has no TensorRT ({error}): use a builder image for GPUs") from error


def gpu() -> Gpu:
    """Raises :class:`MissingError`."""
    try:
        importlib.import_module("cuda.bindings.runtime")
    except (ImportError, OSError) as error:
        raise MissingError(f"this builder image lacks cuda-bindings ({error}): use one for GPUs") from error
    found = device.devices()
    free = device.free_bytes((DEVICE,)) if found else None
    if free is None:
        raise MissingError(f"no GPU answers here; {device.driver()}")
    return Gpu(product=found[DEVICE].name, capability=found[DEVICE].capability_parts or (0, 0),
               memory_bytes=found[DEVICE].memory_bytes, free_bytes=free)


def lacking(precision: str, device: Gpu) -> str:
    """Why ``device`` cannot compute in ``precision``, empty if it can."""
    needed = _NEEDS[precision]
    if device.capability >= needed:
        return ""
    return (f"{precision} needs compute capability {needed[0]}.{needed[1]}, and {device.product} has "
            f"{device.capability_text}")


def unservable(context: BuildContext) -> str:
    """Why the server image could not run an engine, empty if it can."""
    if context.source is not None and not takes_batches(context.source.interface):
        return "a model that takes no batches is served by ONNX Runtime alone"
    if context.source is not None and context.source.interface.sequence_batching:
        return "a model whose state the server keeps is served by ONNX Runtime alone"
    runtime = context.runtime
    if "tensorrt" in runtime.backends or "tensorrt" in runtime.python_runtimes:
        return ""
    return not_served(context, "neither Triton's tensorrt backend nor TensorRT for its Python backend, or another "
                      "TensorRT than this builder", "TensorRT")

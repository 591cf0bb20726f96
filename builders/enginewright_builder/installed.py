"""The packages here that make, judge and serve an engine, with their versions."""

from __future__ import annotations

import contextlib
from importlib import metadata

# Names of distributions; those of TensorRT and ONNX Runtime have CUDA's version or the kind of device in them.
PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "tensorrt",
            *(f"tensorrt-cu{major}" for major in (13, 12)), "nvidia-modelopt", "nvidia-pytriton", "numpy",
            "enginewright")


def versions() -> dict[str, str]:
    """By the name of each that is installed."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found

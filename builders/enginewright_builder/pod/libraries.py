"""Versions of TensorRT and of CUDA's runtime that this container has, of Python packages and of libraries that the
loader finds. Standard library only, and of this package the device alone."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from importlib import metadata

from enginewright_builder.pod.device import cuda_version

_TENSORRT = tuple(f"libnvinfer.so.{major}" for major in range(12, 7, -1))
_TENSORRT_PACKAGES = (
    "tensorrt", *(f"tensorrt-cu{major}{part}" for major in (13, 12, 11) for part in ("", "-bindings")))
_CUDA = tuple(f"libcudart.so.{major}" for major in (13, 12, 11))
_CUDA_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")


def tensorrt_versions() -> list[str]:
    """Of the libraries that a server's own backend loads and of Python packages, whichever are here."""
    return list(dict.fromkeys([*linked_tensorrt(), *_installed(_TENSORRT_PACKAGES)]))


def linked_tensorrt() -> Iterator[str]:
    """Versions of TensorRT's own libraries."""
    for name in _TENSORRT:
        with contextlib.suppress(OSError, AttributeError):
            # Major · 10000 + minor · 100 + patch since TensorRT 10, · 1000 for the major before (NvInferVersion.h).
            number = int(ctypes.CDLL(name).getInferLibVersion())
            scale = 10_000 if number >= 100_000 else 1000
            yield f"{number // scale}.{number % scale // 100}.{number % 100}"


def cuda_runtimes() -> list[str]:
    return list(dict.fromkeys([*_installed(_CUDA_PACKAGES), *_linked_cuda()]))


def _linked_cuda() -> Iterator[str]:
    for name in _CUDA:
        with contextlib.suppress(OSError, AttributeError):
            number = ctypes.c_int()
            if not ctypes.CDLL(name).cudaRuntimeGetVersion(ctypes.byref(number)):
                yield cuda_version(number.value)


def _installed(packages: tuple[str, ...]) -> Iterator[str]:
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield metadata.version(name)

"""What a container has to build or serve engines with: GPUs, driver, libraries with versions, Triton's backends.

Standard library, ``pod.device`` and ``pod.libraries`` alone, and no large library is imported, so that any image's own
``python3`` can run it with these files in a folder ``enginewright_builder``::

    python3 -m enginewright_builder.examine [FILE]
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from enginewright_builder.pod import device
from enginewright_builder.pod.device import Device
from enginewright_builder.pod.libraries import linked_tensorrt

# Files of a node's driver, which no image has.
_DRIVER_FILES = re.compile(r"lib(cuda|nvidia-\S+)\.so")
# Name here, packages that may bring it, files below it that load other libraries when they are used.
_LIBRARIES = (
    ("TensorRT's Python bindings", ("tensorrt", "tensorrt-cu13-bindings", "tensorrt-cu12-bindings"),
     "tensorrt_bindings/tensorrt.so"),
    ("ONNX Runtime", ("onnxruntime-gpu", "onnxruntime"), "onnxruntime/capi/libonnxruntime_providers_*.so"),
    ("PyTorch", ("torch",), "torch/lib/libtorch_cuda.so"),
    ("PyTorch's GPU compiler", ("triton",), ""),
    ("ModelOpt", ("nvidia-modelopt",), ""),
    ("transformers", ("transformers",), ""),
    ("ONNX", ("onnx",), ""),
    ("CUDA's Python bindings", ("cuda-bindings",), ""),
    ("NVML's Python bindings", ("nvidia-ml-py",), ""),
    ("NumPy", ("numpy",), ""),
    ("Tokenizers", ("tokenizers",), ""),
    ("vLLM", ("vllm",), ""),
)
# Of an image that has CUDA as Python packages, which set no variable.
_CUDA_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
# NVIDIA's libraries that let an older driver run a newer CUDA.
_CUDA_COMPAT = Path("/usr/local/cuda/compat")


@dataclass(frozen=True, kw_only=True)
class Library:
    """``version`` is empty where it is not installed. ``lacks`` are files that its parts need and do not find here,
    apart from the driver's."""

    name: str
    version: str
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """``driver`` and ``cuda`` are the node's driver and the newest CUDA that it runs. ``backends`` and ``caches`` are
    Triton's.
    ``cuda_version`` is the image's own CUDA, ``cuda_asked`` what it asks of a driver, as NVIDIA's container runtime
    reads it, and ``cuda_compat`` says that it brings what lets an older driver run it."""

    devices: tuple[Device, ...]
    driver: str
    cuda: str
    architecture: str
    python: str
    libraries: tuple[Library, ...]
    compiler: str
    tritonserver: str
    backends: tuple[str, ...]
    cuda_version: str = ""
    cuda_asked: str = ""
    cuda_compat: bool = False
    caches: tuple[str, ...] = ()


def examine() -> Facts:
    devices, driver = device.devices(), device.driver()
    server, root = _triton()
    return Facts(devices=tuple(devices), driver=driver.version, cuda=driver.cuda if devices else "",
                 architecture=platform.machine(),
                 python=platform.python_version(), libraries=tuple(_libraries()), compiler=_compiler(),
                 tritonserver=server, backends=_parts(root, "backends/*/libtriton_*.so"),
                 cuda_version=os.environ.get("CUDA_VERSION") or next(filter(None, map(_version, _CUDA_PACKAGES)), ""),
                 cuda_asked=os.environ.get("NVIDIA_REQUIRE_CUDA", ""), cuda_compat=_CUDA_COMPAT.is_dir(),
                 caches=_parts(root, "caches/*/libtritoncache_*.so"))


def _libraries() -> Iterator[Library]:
    native = next(linked_tensorrt(), "")
    yield Library(name="TensorRT", version=native)
    yield Library(name="TensorRT's kernels to build with", version=native if _builds(native) else "")
    for name, packages, parts in _LIBRARIES:
        version = next(filter(None, map(_version, packages)), "")
        yield Library(name=name, version=version, lacks=tuple(_lacking(parts)) if version and parts else ())


def _builds(version: str) -> bool:
    """Whether TensorRT's builder finds the library that it loads when it is made; serving needs none."""
    try:
        return bool(version and ctypes.CDLL(f"libnvinfer_builder_resource.so.{version}"))
    except OSError:
        return False


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _lacking(parts: str) -> Iterator[str]:
    """What the loader does not find for the files ``parts`` below the packages, each once."""
    files = {path for folder in sys.path if folder for path in Path(folder).glob(parts)}
    if not files or not shutil.which("ldd"):
        return
    output = subprocess.run(["ldd", *map(str, sorted(files))], capture_output=True, text=True, check=False).stdout
    absent = re.findall(r"^\s+(\S+) => not found$", output, re.MULTILINE)
    yield from (name for name in dict.fromkeys(absent) if not _DRIVER_FILES.match(name))


def _compiler() -> str:
    """Path and version of the C++ compiler; empty if there is none."""
    path = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")
    if path is None:
        return ""
    version = subprocess.run([path, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True, check=False)
    return f"{path} {version.stdout.strip()}"


def _triton() -> tuple[str, Path | None]:
    """The server's version and its folder: NVIDIA's image, or the wheel that carries a server; None without one."""
    root = Path("/opt/tritonserver")
    if (root / "backends").is_dir():
        version = root / "TRITON_VERSION"
        return version.read_text().strip() if version.is_file() else "", root
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        return "", None
    wheel = Path(next(iter(spec.submodule_search_locations))) / "tritonserver"
    return f"nvidia-pytriton {_version('nvidia-pytriton')}", wheel


def _parts(root: Path | None, libraries: str) -> tuple[str, ...]:
    """Folders with such a library in them."""
    return tuple(sorted(path.parent.name for path in root.glob(libraries))) if root else ()


def main(arguments: Sequence[str]) -> int:
    """Prints what is here as JSON, or writes it into the file that is named. Raises :class:`OSError`."""
    found = json.dumps(dataclasses.asdict(examine()), indent=2)
    if arguments:
        Path(arguments[0]).write_text(found, encoding="utf-8")
    else:
        print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

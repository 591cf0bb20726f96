"""``torch.export`` and AOTInductor: from a source model to a ``.pt2`` package and what its session has to know."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from enginewright_builder.contract import Interface, TensorSpec
from enginewright_builder.models.base import TorchProgram
from enginewright_builder.shapes import size_range
from enginewright_builder.system import available_cpus, cpu_flags

PACKAGE_FILE, DESCRIPTION_FILE = "model.pt2", "session.json"
# Else a compiled package calls kernels of a CPU past the profiler.
_MARKS = {"cpp.enable_kernel_profile": True}
# Below the workspace: what the compiler keeps between compilations.
_CACHE = "inductor"
# Instructions that every server processor of the last ten years has, rather than the build node's own (level 3 of the
# x86-64 psABI): replicas may run on another node. Matrix products go to libraries that choose by the processor.
_X86_LEVEL, _X86_FLAGS, _X86_VECTOR_BITS = "x86-64-v3", ("avx2", "bmi2", "fma"), 256
# Where a release of PyTorch takes no level, the package needs those of these that the build node has.
_NATIVE_FLAGS = ("avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
                 "avx512_fp16", "amx_tile", "avx_vnni")


def compiler() -> str:
    """Path of the C++ compiler, which AOTInductor needs for GPUs as well; empty if there is none."""
    return shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++") or ""


def compile_program(program: TorchProgram, folder: Path, workspace: Path, *, tf32: bool, marked: bool = False) -> Path:
    """Writes ``folder/model.pt2``. ``marked``: its code tells PyTorch's profiler of each kernel on a CPU. Raises
    whatever ``torch.export`` and the compiler raise."""
    import torch

    from enginewright_builder.engines.torch_layout import arranged
    from enginewright_builder.models.torch_base import quiet
    from enginewright_builder.models.torch_precision import tf32 as products

    on_gpu = any(argument.is_cuda for argument in program.args)
    path = folder / PACKAGE_FILE
    with quiet(), torch.no_grad(), products(tf32), _toolchain(workspace, on_gpu=on_gpu):
        exported, layout = arranged(program)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(path),
                                                 inductor_configs={**_options(on_gpu, marked=marked), **layout})
    return path


def describe(folder: Path, interface: Interface, *, batch: int, tf32: bool) -> Path:
    """Writes ``folder/session.json``, which ``aoti_session.Session`` reads."""
    path = folder / DESCRIPTION_FILE
    described = {"inputs": [_tensor(spec) for spec in interface.inputs],
                 "outputs": [_tensor(spec) for spec in interface.outputs],
                 "batch": batch, "tf32": tf32, "cpu_flags": _needed_flags()}
    path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return path


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    ranges = [size_range(size) for size in spec.shape]
    return {"name": spec.name, "dtype": spec.dtype, "shape": [low if low == high else None for low, high in ranges]}


def _options(on_gpu: bool, *, marked: bool) -> dict[str, Any]:
    # A package has two C++ files, so headers compiled ahead never pay. Kernels are not timed against each other
    # (max_autotune): on an H200 that took five times as long and made them slower (ADR 0006).
    options: dict[str, Any] = {"compile_threads": available_cpus(), "cpp_cache_precompile_headers": False}
    if not on_gpu and _has("aot_inductor.precompile_headers"):
        # The same for packages. A build for CPUs compiles two of them at most; one for GPUs a dozen.
        options |= {"aot_inductor.precompile_headers": False}
    if _can_set_level():
        # Without the last one the compiler tries every newer instruction set, a minute each, to use none of them.
        options |= {"cpp.march": _X86_LEVEL, "cpp.simdlen": _X86_VECTOR_BITS, "cpp.vec_isa_ok": True}
    return {**options, **(_MARKS if marked else {})}


def _needed_flags() -> list[str]:
    if platform.machine() != "x86_64":
        return []
    return list(_X86_FLAGS) if _can_set_level() else [flag for flag in _NATIVE_FLAGS if flag in cpu_flags()]


def _can_set_level() -> bool:
    return platform.machine() == "x86_64" and _has("cpp.march")


def _has(setting: str) -> bool:
    """Whether this release of PyTorch has it: 2.11 takes no ``cpp.march``, 2.15 does."""
    import torch._inductor.config as inductor

    section, _, name = setting.partition(".")
    return hasattr(getattr(inductor, section), name)


@contextlib.contextmanager
def _toolchain(workspace: Path, *, on_gpu: bool) -> Iterator[None]:
    """Where the compiler caches, and on a GPU where it finds CUDA's headers and driver."""
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(workspace / _CACHE)}
    if on_gpu:
        settings |= _cuda_paths(workspace)
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _cuda_paths(workspace: Path) -> dict[str, str]:
    """PyTorch's own wheels bring CUDA's headers, but no toolkit folder that its compiler would look in; and the driver
    is often mounted as ``libcuda.so.1`` only, which a linker does not find."""
    import torch
    from torch.utils import cpp_extension

    settings: dict[str, str] = {}
    if cpp_extension.CUDA_HOME is None:
        packages = Path(torch.__file__).parent.parent / "nvidia"
        headers = sorted(packages.glob("*/include/cuda.h"))
        if headers:
            cpp_extension.CUDA_HOME = settings["CUDA_HOME"] = str(headers[-1].parent.parent)
    torch.cuda.init()  # type: ignore[no-untyped-call]
    mapped = (line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libcuda.so" in line)
    if driver := next(mapped, ""):
        folder = workspace / "driver"
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / "libcuda.so"
        ours = link.with_name(f"{link.name}.{os.getpid()}")  # another compiler may be at work in this workspace
        ours.symlink_to(driver)
        os.replace(ours, link)
        settings["LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("LIBRARY_PATH", ""))))
    return settings

"""What a container has is found out with the standard library alone, without a GPU as with one."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from enginewright_builder import ask, examine
from enginewright_builder.pod.device import Device
from support.cuda_driver import CUDA, NVML, TENSORRT, TOTAL_BYTES, FakeDriver, NoDriver, SlicedGpu, StoppedDriver


class Server(FakeDriver):
    files = (CUDA, NVML, TENSORRT)


class NoLibraries(FakeDriver):
    files = (CUDA,)


H200 = Device(name="NVIDIA H200", mig_profile="", capability="9.0", memory_bytes=TOTAL_BYTES)
SLICE = Device(name="NVIDIA H200 MIG 1g.18gb", mig_profile="1g.18gb", capability="9.0", memory_bytes=TOTAL_BYTES)


@pytest.mark.parametrize(("machine", "devices", "driver", "cuda", "tensorrt", "kernels"), [
    (FakeDriver, (H200,), "580.95.05", "13.1", "10.6.0", "10.6.0"),
    (SlicedGpu, (SLICE,), "580.95.05", "13.1", "10.6.0", "10.6.0"),
    (Server, (H200,), "580.95.05", "13.1", "10.6.0", ""),
    (NoLibraries, (H200,), "", "13.1", "", ""),
    (StoppedDriver, (), "580.95.05", "", "10.6.0", "10.6.0"),
    (NoDriver, (), "", "", "", ""),
])
def test_devices_driver_and_tensorrt(
    machine: type[FakeDriver], devices: tuple[Device, ...], driver: str, cuda: str, tensorrt: str, kernels: str,
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", machine)
    facts = examine.examine()
    versions = {library.name: library.version for library in facts.libraries}
    assert (facts.devices, facts.driver, facts.cuda) == (devices, driver, cuda)
    assert (versions["TensorRT"], versions["TensorRT's kernels to build with"]) == (tensorrt, kernels)


@pytest.mark.parametrize(("told", "lacks"), [
    ("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n", ()),
    ("\tlibcublas.so.13 => not found\n\tlibcuda.so.1 => not found\n\tlibnvidia-ml.so.1 => not found\n",
     ("libcublas.so.13",)),
    ("a:\n\tlibcurand.so.10 => not found\nb:\n\tlibcurand.so.10 => not found\n\tlibcudnn.so.9 => not found\n",
     ("libcurand.so.10", "libcudnn.so.9")),
])
def test_a_library_that_does_not_find_another_is_named_unless_the_driver_brings_it(
    told: str, lacks: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capi = tmp_path / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (capi / "libonnxruntime_providers_cuda.so").touch()
    (tmp_path / "told").write_text(told)
    (tmp_path / "ldd").write_text(f"#!/bin/sh\ncat {tmp_path}/told\n")
    (tmp_path / "ldd").chmod(0o755)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = {library.name: library for library in examine.examine().libraries}
    assert found["ONNX Runtime"].lacks == lacks


def test_any_python_runs_it_without_a_package(tmp_path: Path) -> None:
    ask.leave(tmp_path)
    ran = subprocess.run([sys.executable, "-S", "-m", "enginewright_builder.examine"], cwd=tmp_path, timeout=240,
                         capture_output=True, text=True, check=True)
    facts = json.loads(ran.stdout)
    installed = {one["name"] for one in facts["libraries"] if one["version"]}
    assert installed <= {"TensorRT", "TensorRT's kernels to build with"}  # a machine may have these for all programs
    assert facts["backends"] == []

"""A replica whose TensorRT or GPU is not its engine's refuses it before a server loads it; no other replica does."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from enginewright_builder import contract, fits, verify
from enginewright_builder.contract import DeviceRequest, EngineSummary, Outcome
from enginewright_builder.evidence.content import device_name
from enginewright_builder.store import publish

FINGERPRINT = "a" * 64
ENGINE = EngineSummary(
    backend="tensorrt", precision="fp16", triton_backend="python", size_bytes=1, speedup=2.0, p50_ms=1.0, p95_ms=1.0,
    p99_ms=1.0, throughput=1.0, accuracy=1.0, accuracy_low=1.0, device="NVIDIA H200", device_class="NVIDIA-H200",
    runtime_version="tensorrt 10.6.0", load_seconds=1.0)


def test_program_and_operator_speak_of_the_same_failures() -> None:
    assert contract.MISFITS == (fits.VERSION, fits.DEVICE)
    assert fits.EXIT_MISFIT == contract.EXIT_USER


@pytest.mark.parametrize(("expected", "versions", "devices", "why"), [
    ({"tensorrt": "10.6.0", "device": "NVIDIA H200"}, ["10.6.0"], ["NVIDIA H200"], ""),
    ({"tensorrt": "10.6.0"}, ["10.6.0.26"], [], ""),
    ({"tensorrt": "11.4.0.12"}, ["11.4.0"], [], ""),
    ({"tensorrt": "10.6.0"}, ["10.5.0", "10.6.0"], [], ""),
    ({"tensorrt": "10.6.0"}, [], [], ""),
    ({"tensorrt": "10.6.0"}, ["10.5.0"], [], "TensorRTVersionMismatch: the engine was built with TensorRT 10.6.0, and "
                                             "this server has 10.5.0"),
    ({"tensorrt": "10.6.0"}, ["11.6.0", "10.6.1"], [], "TensorRTVersionMismatch: "),
    ({"tensorrt": "", "device": ""}, ["10.5.0"], ["NVIDIA H200"], ""),
    ({"device": "NVIDIA-H200"}, [], ["NVIDIA H200"], ""),
    ({"device": "NVIDIA H100 80GB HBM3 1g.10gb"}, [], ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"], ""),
    ({"device": "NVIDIA A100-SXM4-80GB 1g.10gb+me"}, [], ["NVIDIA A100-SXM4-80GB MIG 1g.10gb+me"], ""),
    ({"device": "GPU"}, [], ["NVIDIA H200"], ""),
    ({"device": "NVIDIA H200"}, [], [], ""),
    ({"device": "NVIDIA H200"}, [], ["NVIDIA H100 80GB HBM3"], "DeviceMismatch: the engine was built and proven on "
                                                               "NVIDIA H200, and this replica has NVIDIA H100 80GB"),
    ({"device": "NVIDIA A100-SXM4-40GB"}, [], ["NVIDIA A100-SXM4-80GB"], "DeviceMismatch: "),
    ({"device": "NVIDIA H200"}, [], ["NVIDIA H200", "NVIDIA L4"], "DeviceMismatch: "),
])
def test_what_is_refused(expected: dict[str, str], versions: list[str], devices: list[str], why: str) -> None:
    told = fits.misfit(expected, versions, devices)
    assert told.startswith(why)
    assert bool(told) is bool(why)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What the verify container leaves of an engine with a TensorRT plan."""
    return leave(tmp_path, ENGINE)


def leave(folder: Path, engine: EngineSummary) -> Path:
    (folder / "staging").mkdir()
    (folder / "staging" / "model.plan").write_bytes(b"plan")
    (folder / "store").mkdir()
    publish(folder / "staging", folder / "store", FINGERPRINT,
            outcome=Outcome(kind="build", ok=True, fingerprint=FINGERPRINT, engine=engine))
    target = folder / "smoke-test"
    target.mkdir()
    assert verify.main([str(folder / "store" / FINGERPRINT), "--smoke-test", str(target)]) == 0
    return target


def ask(left: Path, packages: Path) -> subprocess.CompletedProcess[str]:
    """As the init container does, by a Python that has nothing but ``packages``."""
    log = left.parent / "termination-log"
    log.touch()
    return subprocess.run([sys.executable, "-S", str(left / "fits.py"), str(left / "fits.json")], capture_output=True,
                          text=True, timeout=60, check=False,
                          env={"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "TERMINATION_LOG": str(log)})


def tensorrt(version: str, folder: Path) -> Path:
    info = folder / "packages" / f"tensorrt-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt\nVersion: {version}\n")
    return info.parent


def test_a_server_of_another_tensorrt_version_ends_before_it_loads(left: Path, tmp_path: Path) -> None:
    done = ask(left, tensorrt("10.5.0", tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert (tmp_path / "termination-log").read_text().startswith("TensorRTVersionMismatch: the engine was built with "
                                                                 "TensorRT 10.6.0, and this server has 10.5.0")


def test_a_server_of_the_same_version_goes_on(left: Path, tmp_path: Path) -> None:
    done = ask(left, tensorrt("10.6.0", tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("fits: TensorRT 10.6.0")


def test_what_cannot_be_told_stops_nobody(left: Path, tmp_path: Path) -> None:
    assert ask(left, tmp_path).returncode == 0
    (left / "fits.json").write_text("{")
    assert ask(left, tmp_path).returncode == 0
    (left / "fits.json").unlink()
    assert ask(left, tmp_path).returncode == 0


@pytest.mark.parametrize(("engine", "needed"), [
    (ENGINE, {"tensorrt": "10.6.0", "device": "NVIDIA H200"}),
    (replace(ENGINE, runtime_version="torch 2.15.0, tensorrt 11.4.0.12"),
     {"tensorrt": "11.4.0.12", "device": "NVIDIA H200"}),
    (replace(ENGINE, runtime_version="onnxruntime 1.31.1"), {"tensorrt": "", "device": "NVIDIA H200"}),
    (replace(ENGINE, device="NVIDIA-H200"), {"tensorrt": "10.6.0", "device": ""}),
    (replace(ENGINE, device="Intel Xeon Platinum", device_class="cpu", runtime_version="onnxruntime 1.31.1"), {}),
])
def test_what_an_engine_needs_is_read_from_its_manifest(engine: EngineSummary, needed: dict[str, str]) -> None:
    manifest = contract.Manifest(fingerprint=FINGERPRINT, created="", files={},
                                 outcome=Outcome(kind="build", ok=True, engine=engine))
    assert verify.needs(manifest) == needed


class Driver:
    """libcuda of a machine with one GPU, and libnvinfer of TensorRT 10.6.0."""

    def __init__(self, name: str) -> None:
        if name not in ("libcuda.so.1", "libnvinfer.so.10"):
            raise OSError(name)

    def cuInit(self, flags: int) -> int:  # noqa: N802  (the driver's own name)
        return 0

    def cuDeviceGetCount(self, count: ctypes._CArgObject) -> int:  # noqa: N802
        count._obj.value = 1  # type: ignore[attr-defined]
        return 0

    def cuDeviceGet(self, device: ctypes._CArgObject, ordinal: int) -> int:  # noqa: N802
        device._obj.value = ordinal  # type: ignore[attr-defined]
        return 0

    def cuDeviceGetName(self, name: ctypes.Array[ctypes.c_char], size: int, device: ctypes.c_int) -> int:  # noqa: N802
        name.value = b"NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        return 0

    def getInferLibVersion(self) -> int:  # noqa: N802
        return 100_600


def test_the_driver_and_the_library_are_asked_without_any_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert fits.devices() == ["NVIDIA H100 80GB HBM3 MIG 1g.10gb"]
    assert fits.tensorrt_versions()[0] == "10.6.0"
    slice_ = DeviceRequest(accelerator="gpu", products=("asked",), mig_profile="1g.10gb")
    assert device_name(slice_) == "NVIDIA H100 80GB HBM3 1g.10gb"


def test_without_a_driver_the_device_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "devices", list)
    assert device_name(DeviceRequest(accelerator="gpu", products=("NVIDIA-H200",))) == "NVIDIA-H200"
    assert device_name(DeviceRequest(accelerator="gpu")) == "GPU"

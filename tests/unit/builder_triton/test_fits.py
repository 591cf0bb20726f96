"""A replica whose TensorRT or GPU is not its engine's refuses it before a server loads it; no other replica does."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from enginewright_builder import contract, own_device, verify
from enginewright_builder.contract import DeviceRequest, EngineSummary, Outcome
from enginewright_builder.engine_store.folder import publish
from enginewright_builder.errors import UserError
from enginewright_builder.evidence.content import device_name
from enginewright_builder.pod import fits, libraries
from enginewright_builder.pod.device import Device, Driver, profile_of
from support.cuda_driver import FakeDriver, NoDriver, OldDriver, SlicedGpu

FINGERPRINT = "a" * 64
ENGINE = EngineSummary(
    backend="tensorrt", precision="fp16", triton_backend="python", size_bytes=1, speedup=2.0, p50_ms=1.0, p95_ms=1.0,
    p99_ms=1.0, throughput=1.0, accuracy=1.0, accuracy_low=1.0, device="NVIDIA H200", device_class="NVIDIA-H200",
    runtime_version="tensorrt 10.6.0", load_seconds=1.0)

H200 = {"device": "NVIDIA H200", "profile": "whole", "memory_bytes": 0}


def test_program_and_operator_speak_of_the_same_failures() -> None:
    assert contract.MISFITS == (fits.VERSION, fits.DEVICE, fits.DRIVER)
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
    ({"profile": "whole"}, [], ["NVIDIA H200"], ""),
    ({"profile": "whole"}, [], ["NVIDIA H200 MIG 1g.18gb"],
     "DeviceMismatch: the engine was built and proven on a whole GPU, and this replica has MIG profile 1g.18gb of "
     "NVIDIA H200"),
    ({"profile": "1g.18gb"}, [], ["NVIDIA H200 MIG 1g.18gb"], ""),
    ({"profile": "1g.18gb+me"}, [], ["NVIDIA H200 MIG 1g.18gb"], ""),
    ({"profile": "1g.18gb"}, [], ["NVIDIA H200 MIG 1g.18gb+me"], ""),
    ({"profile": "1g.18gb"}, [], ["NVIDIA H200 MIG 1g.35gb"],
     "DeviceMismatch: the engine was built and proven on MIG profile 1g.18gb, and this replica has MIG profile 1g.35"),
    ({"profile": "1g.18gb"}, [], ["NVIDIA H200"],
     "DeviceMismatch: the engine was built and proven on MIG profile 1g.18gb, and this replica has a whole GPU"),
    ({"profile": "1g.18gb"}, [], [], ""),
    ({"profile": ""}, [], ["NVIDIA H200 MIG 1g.18gb"], ""),
])
def test_what_is_refused(expected: dict[str, str], versions: list[str], devices: list[str], why: str) -> None:
    told = fits.misfit(expected, versions, [Device(name, profile_of(name)) for name in devices])
    assert told.startswith(why)
    assert bool(told) is bool(why)


@pytest.mark.parametrize(("needed", "there", "fits_in"), [
    (10 << 30, 16 << 30, True), (17 << 30, 16 << 30, False), (17 << 30, 0, True), (0, 16 << 30, True),
])
def test_a_device_with_less_memory_than_the_engine_takes_is_refused(needed: int, there: int, fits_in: bool) -> None:
    told = fits.misfit({"memory_bytes": needed}, (), [Device("NVIDIA H200 MIG 1g.18gb", "1g.18gb", memory_bytes=there)])
    assert (told == "") is fits_in
    if told:
        assert "took 17.0 GiB" in told
        assert "this replica has NVIDIA H200, MIG profile 1g.18gb, 16.0 GiB" in told


@pytest.mark.parametrize(("cuda", "runtimes", "old"), [
    ("13.0", ["13.0.96"], False), ("13.1", ["12.6.77"], False), ("12.4", ["12.9.79"], False),
    ("12.8", ["13.0.96"], True), ("12.8", ["13.0.96", "12.6"], False), ("11.8", ["13.0", "12.6"], True),
    ("", ["13.0"], False), ("12.8", [], False),
])
def test_a_driver_that_runs_no_cuda_of_the_image_is_too_old(cuda: str, runtimes: list[str], old: bool) -> None:
    told = fits.too_old(Driver("570.86.10", cuda), runtimes)
    assert bool(told) is old
    if old:
        assert told.startswith(f"DriverTooOld: this image has CUDA {', '.join(runtimes)}, and the node has driver 570")
        assert f"use an image for CUDA {cuda.partition('.')[0]}" in told


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
    """As the init container does, by a Python that has nothing but ``packages``, and that does not look for modules
    beside a program."""
    log = left.parent / "termination-log"
    log.touch()
    return subprocess.run([sys.executable, "-S", str(left / "fits.py"), str(left / "fits.json")], capture_output=True,
                          text=True, timeout=240, check=False,
                          env={"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "PYTHONSAFEPATH": "1",
                               "TERMINATION_LOG": str(log)})


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
    (ENGINE, {"tensorrt": "10.6.0", **H200}),
    (replace(ENGINE, runtime_version="torch 2.15.0, tensorrt 11.4.0.12"), {"tensorrt": "11.4.0.12", **H200}),
    (replace(ENGINE, runtime_version="onnxruntime 1.31.1"), {"tensorrt": "", **H200}),
    (replace(ENGINE, device="NVIDIA-H200"), {"tensorrt": "10.6.0", "device": "", "profile": "", "memory_bytes": 0}),
    (replace(ENGINE, device="NVIDIA H200 1g.18gb", device_class="NVIDIA-H200/1g.18gb", memory_bytes=3 << 30),
     {"tensorrt": "10.6.0", "device": "NVIDIA H200 1g.18gb", "profile": "1g.18gb", "memory_bytes": 3 << 30}),
    (replace(ENGINE, device_count=2, memory_bytes=3 << 30), {"tensorrt": "10.6.0", **H200}),
    (replace(ENGINE, device="Intel Xeon Platinum", device_class="cpu", runtime_version="onnxruntime 1.31.1"), {}),
])
def test_what_an_engine_needs_is_read_from_its_manifest(engine: EngineSummary, needed: dict[str, object]) -> None:
    manifest = contract.Manifest(fingerprint=FINGERPRINT, created="", files={},
                                 outcome=Outcome(kind="build", ok=True, engine=engine))
    assert verify.needs(manifest) == needed


ON_SLICE = "NVIDIA H200, MIG profile 1g.18gb, 16.0 GiB; driver 580.95.05 for CUDA up to 13.1"


def test_the_driver_and_the_library_are_asked_without_any_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", SlicedGpu)
    assert libraries.tensorrt_versions()[0] == "10.6.0"
    slice_ = DeviceRequest(accelerator="gpu", products=("asked",), mig_profile="1g.18gb")
    assert device_name(slice_) == "NVIDIA H200 1g.18gb"


@pytest.mark.parametrize(("profile", "status", "begins"), [
    ("1g.18gb", 0, f"fits: TensorRT not asked; this replica runs on {ON_SLICE}"),
    ("2g.20gb", 2, "DeviceMismatch: the engine was built and proven on MIG profile 2g.20gb"),
    ("whole", 2, "DeviceMismatch: the engine was built and proven on a whole GPU"),
])
def test_each_replica_says_on_what_it_runs(profile: str, status: int, begins: str, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", SlicedGpu)
    monkeypatch.setattr(libraries, "cuda_runtimes", list)
    monkeypatch.setenv("TERMINATION_LOG", str(tmp_path / "log"))
    (tmp_path / "fits.json").write_text(f'{{"profile": "{profile}"}}')
    assert fits.main([str(tmp_path / "fits.json")]) == status
    line = (tmp_path / "log").read_text()
    assert line.startswith(begins)
    assert ON_SLICE in line


@pytest.mark.parametrize(("driver", "asked", "reason"), [
    (SlicedGpu, DeviceRequest(accelerator="gpu", products=("NVIDIA-H200",), mig_profile="1g.18gb"), ""),
    (SlicedGpu, DeviceRequest(accelerator="gpu", mig_profile="1g.18gb"), ""),
    (SlicedGpu, DeviceRequest(accelerator="cpu"), ""),
    (SlicedGpu, DeviceRequest(accelerator="gpu", mig_profile="1g.20gb"), "DeviceMismatch"),
    (SlicedGpu, DeviceRequest(accelerator="gpu"), "DeviceMismatch"),
    (FakeDriver, DeviceRequest(accelerator="gpu"), ""),
    (FakeDriver, DeviceRequest(accelerator="gpu", products=("NVIDIA-H100",)), "DeviceMismatch"),
    (FakeDriver, DeviceRequest(accelerator="gpu", mig_profile="1g.18gb"), "DeviceMismatch"),
    (OldDriver, DeviceRequest(accelerator="gpu", mig_profile="1g.18gb"), "DriverTooOld"),
])
def test_a_build_says_on_what_it_runs_and_refuses_what_was_not_asked_for(
    driver: type[FakeDriver], asked: DeviceRequest, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", driver)
    monkeypatch.setattr(libraries, "cuda_runtimes", lambda: ["13.0.96"])
    notes: list[str] = []
    if reason:
        with pytest.raises(UserError) as caught:
            own_device.check(asked, notes.append)
        assert caught.value.reason == reason
        assert caught.value.remedy
    else:
        own_device.check(asked, notes.append)
    assert bool(notes) is (asked.accelerator == "gpu")
    if driver is SlicedGpu and notes:
        assert notes == [f"this build runs on {ON_SLICE}"]


def test_without_a_driver_the_device_is_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", NoDriver)
    assert device_name(DeviceRequest(accelerator="gpu", products=("NVIDIA-H200",))) == "NVIDIA-H200"
    assert device_name(DeviceRequest(accelerator="gpu")) == "GPU"

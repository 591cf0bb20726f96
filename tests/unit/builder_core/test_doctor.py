"""``enginewright-build doctor``: what can be built here, and why the rest cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from enginewright_builder import doctor as module
from enginewright_builder.contract import EXIT_OK, EXIT_USER
from enginewright_builder.doctor import Verdict, doctor, text, verdicts
from enginewright_builder.engines.base import BuildContext, Rung
from enginewright_builder.engines.registry import all_engines
from enginewright_builder.examine import Facts, Library
from enginewright_builder.pod.device import Device

BARE = Facts(devices=(), driver="", cuda="", architecture="x86_64", python="3.11.2", libraries=(), compiler="",
             tritonserver="", backends=())
H200 = Device(name="NVIDIA H200", mig_profile="", capability="9.0", memory_bytes=141 << 30)
SLICE = Device(name="NVIDIA H200 MIG 1g.18gb", mig_profile="1g.18gb", capability="9.0", memory_bytes=17 << 30)


class Engine:
    """Answers ``able`` for each accelerator: precision to the reason why it cannot be built."""

    name = "one"

    def __init__(self, **able: dict[str, str]) -> None:
        self._able = able

    def rungs(self, precision: str, context: BuildContext) -> Sequence[Rung]:
        assert precision == "auto"
        return [Rung(backend=self.name, precision=name, unavailable=reason)
                for name, reason in self._able.get(context.device.accelerator, {}).items()]

    specialised = build = load = None


def told(facts: Facts, **able: dict[str, str]) -> list[tuple[str, str, str]]:
    return [(one.accelerator, one.precision, one.why_not) for one in verdicts(facts, [Engine(**able)])]  # type: ignore[list-item]


def facts_with(*devices: Device) -> Facts:
    return Facts(devices=devices, driver="580.95.05", cuda="13.0", architecture="x86_64", python="3.11.2",
                 libraries=(Library(name="TensorRT", version="10.6.0"), Library(name="ModelOpt", version=""),
                            Library(name="ONNX Runtime", version="1.30.0", lacks=("libcublas.so.13",))),
                 compiler="/usr/bin/g++ 12.2.0", tritonserver="2.51.0", backends=("python", "tensorrt"))


def test_with_a_gpu_the_engines_reasons_stand() -> None:
    assert told(facts_with(H200), gpu={"fp16": "", "fp8": "too old"}, cpu={"fp32": ""}) == [
        ("gpu", "fp16", ""), ("gpu", "fp8", "too old"), ("cpu", "fp32", "")]


def test_without_a_gpu_nothing_can_be_built_for_one_whatever_the_engine_says() -> None:
    (_, _, able), (_, _, unable), (_, _, on_cpu) = told(BARE, gpu={"fp16": "", "fp8": "no TensorRT"}, cpu={"fp32": ""})
    assert "no GPU answers here" in able
    assert unable == "no TensorRT"
    assert on_cpu == ""


def test_no_engine_finds_fault_with_the_model_the_data_or_the_server_image() -> None:
    """The doctor asks for a model that brings everything, so what an engine refuses is this machine's."""
    reasons = " ".join(one.why_not for one in verdicts(BARE, all_engines()))
    assert [word for word in ("calibration", "source", "server image") if word in reasons] == []


@pytest.mark.parametrize(("facts", "lines"), [
    (BARE, {"GPU": "none", "driver": "none", "Python": "3.11.2 on x86_64", "C++ compiler": "none", "Triton": "none"}),
    (facts_with(H200), {
        "GPU": "NVIDIA H200, 141.0 GiB, compute capability 9.0", "driver": "580.95.05, CUDA up to 13.0",
        "C++ compiler": "/usr/bin/g++ 12.2.0", "Triton": "2.51.0; backends python, tensorrt", "TensorRT": "10.6.0",
        "ModelOpt": "none", "ONNX Runtime": "1.30.0, but it does not find libcublas.so.13"}),
    (facts_with(SLICE), {
        "GPU": "NVIDIA H200 MIG 1g.18gb, slice 1g.18gb, 17.0 GiB, compute capability 9.0"}),
], ids=["nothing", "GPU", "slice"])
def test_people_read_a_line_for_each_thing(facts: Facts, lines: dict[str, str]) -> None:
    said = {line[:32].strip(): line[33:] for line in text(facts, ())}
    assert {name: said[name] for name in lines} == lines


def test_people_read_what_can_be_built_first_and_one_line_for_each_reason() -> None:
    found = [Verdict(accelerator="gpu", backend="tensorrt", precision="fp8", why_not="needs compute capability 8.9"),
             Verdict(accelerator="gpu", backend="tensorrt", precision="fp16", why_not=""),
             Verdict(accelerator="gpu", backend="tensorrt", precision="int8", why_not=""),
             Verdict(accelerator="gpu", backend="torch", precision="fp16", why_not="no C++ compiler"),
             Verdict(accelerator="gpu", backend="torch", precision="bf16", why_not="no C++ compiler")]
    said = [line[33:] for line in text(BARE, found) if line.startswith("builds for gpu")]
    assert said == ["yes, tensorrt fp16, int8", "no, tensorrt fp8: needs compute capability 8.9",
                    "no, torch fp16, bf16: no C++ compiler"]


@pytest.mark.parametrize(("able", "status"), [
    ({"cpu": {"fp32": ""}}, EXIT_OK), ({"cpu": {"fp32": "no library"}}, EXIT_USER), ({}, EXIT_USER),
])
def test_the_exit_status_says_whether_anything_can_be_built(
    able: dict[str, dict[str, str]], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "examine", lambda: BARE)
    monkeypatch.setattr(module, "_engines", lambda: [Engine(**able)])
    assert doctor([]) == doctor(["--json"]) == status


def test_this_machine_builds_onnxruntime_for_cpus() -> None:
    builders = str(Path(str(module.__file__)).parents[1])
    ran = subprocess.run([sys.executable, "-m", "enginewright_builder", "doctor", "--json"], check=False, timeout=240,
                         capture_output=True, text=True, env={**os.environ, "PYTHONPATH": builders})
    assert ran.returncode == EXIT_OK, ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout)
    able = {(one["accelerator"], one["backend"], one["precision"]) for one in answer["engines"] if not one["why_not"]}
    assert {("cpu", "onnxruntime", "fp32"), ("cpu", "onnxruntime", "int8-static")} <= able
    asked = {(one["accelerator"], one["backend"]) for one in answer["engines"]}
    assert {("gpu", "tensorrt"), ("gpu", "torch"), ("gpu", "onnxruntime")} <= asked
    versions = {library["name"]: library["version"] for library in answer["libraries"]}
    assert versions["ONNX Runtime"]
    assert versions["PyTorch"]
    assert answer["backends"] == ["python"]

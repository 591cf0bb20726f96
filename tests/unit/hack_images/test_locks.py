"""The images' package lists agree with each other, and the installer leaves out what it is told to."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from images.recipe import ROOT

IMAGES = ROOT / "builders" / "images"
# The CUDA runtime answers "no device" and CUPTI is asked by the profiler; pytriton carries tritonserver.
NVIDIA_ON_A_CPU = {"nvidia-cuda-cupti", "nvidia-cuda-runtime", "nvidia-pytriton"}


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


def left_out(file: str = "cuda-packages.txt") -> set[str]:
    lines = (IMAGES / file).read_text().splitlines()
    return {line for line in lines if not line.startswith("#")}


def test_what_is_left_out_on_a_cpu_is_locked() -> None:
    """By the builder's image, or by vLLM's packages for tests, which have another PyTorch."""
    assert left_out() <= set(locked("builder")) | set(locked("vllm"))


def test_every_nvidia_package_is_either_needed_on_a_cpu_or_left_out() -> None:
    """A new PyTorch may bring a new one: then decide here."""
    nvidia = {name for name in locked("builder") if name.startswith(("nvidia-", "cuda-"))}
    assert nvidia - left_out() == NVIDIA_ON_A_CPU


@pytest.mark.parametrize("kind", ["", "-gpu"])
def test_the_builder_adds_to_the_server_and_changes_nothing_in_it(kind: str) -> None:
    builder, server = locked(f"builder{kind}"), locked(f"server{kind}")
    assert {name: builder.get(name) for name in server} == server


def test_the_gpu_server_leaves_out_only_what_is_locked() -> None:
    assert left_out("gpu-builder-only.txt") <= set(locked("server-gpu"))


def test_tensorrts_libraries_and_bindings_are_of_one_version() -> None:
    """The libraries come with Maven, whose version is TensorRT's and the packager's."""
    coordinate = re.search(r"org\.bytedeco:tensorrt:([0-9.]+)-", (IMAGES / "fetch-tensorrt").read_text())
    assert coordinate
    assert locked("builder-gpu")["tensorrt-cu12-bindings"].startswith(f"{coordinate[1]}.")
    named = re.findall(r"libnvinfer_builder_resource\.so\.([0-9.]+) ", (IMAGES / "Containerfile").read_text())
    assert set(named) == {locked("builder-gpu")["tensorrt-cu12-bindings"]}


def test_what_is_locked_for_gpus_is_what_is_measured_with() -> None:
    """hack/bench carries wheels to the machine that the benchmarks run on; it has PyTorch and transformers itself."""
    bench, images = ROOT / "hack" / "bench", locked("builder-gpu")
    carried = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (bench / "wheels.txt").read_text(), re.MULTILINE))
    carried |= re.findall(r"(onnxruntime-gpu|numpy)==([0-9.]+)", (bench / "carry.sh").read_text())
    common = {name: (version, images[name]) for name, version in carried.items() if name in images}
    assert {"tensorrt-cu12-bindings", "nvidia-modelopt", "onnxruntime-gpu", "numpy"} <= set(common)
    assert {name: versions for name, versions in common.items() if versions[0] != versions[1]} == {}
    assert images["torch"].startswith("2.11.")
    assert images["transformers"].startswith("5.17.")


def test_vllm_for_gpus_is_locked_as_it_is_measured() -> None:
    """hack/bench carries all but what the machine has itself, which is what images for GPUs have."""
    text = (ROOT / "hack" / "bench" / "wheels-llm.txt").read_text()
    carried = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))
    vllm, known = locked("vllm-gpu"), locked("builder-gpu") | carried
    assert {"vllm", "torch", "transformers", "triton"} <= set(vllm)
    assert {name: (version, known[name]) for name, version in vllm.items() if known.get(name, version) != version} == {}
    # Of what was not measured: parts of PyTorch that vLLM asks for, and what FastAPI's command line would take.
    assert set(vllm) - set(known) == {"torchaudio", "torchvision", "fastar"}


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """install-locked beside a stand-in for uv that keeps the list it is given."""
    shutil.copy(IMAGES / "install-locked", tmp_path)
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "$last" {tmp_path}/given\necho "$@" > {tmp_path}/arguments\n')
    uv.chmod(0o755)
    return tmp_path / "install-locked"


LOCK = """# made by uv
one==1 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via x
two==2 \\
    --hash=sha256:bb
    # via one
two-more==3 \\
    --hash=sha256:cc
"""


def test_excluded_stanzas_go_whole_and_the_rest_stays_as_it_was(installer: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "excluded").write_text("# why\ntwo\n")
    subprocess.run([installer, tmp_path / "lock", tmp_path / "excluded"], check=True)
    expected = LOCK.replace("two==2 \\\n    --hash=sha256:bb\n    # via one\n", "")
    assert (tmp_path / "given").read_text() == expected


def test_everything_is_installed_with_hashes_and_without_anything_unlocked(installer: Path, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    subprocess.run([installer, tmp_path / "lock"], check=True)
    assert (tmp_path / "given").read_text() == LOCK
    assert {"--require-hashes", "--no-deps", "--no-build"} <= set((tmp_path / "arguments").read_text().split())

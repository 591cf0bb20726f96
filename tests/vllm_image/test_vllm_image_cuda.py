"""The server image of language models for NVIDIA GPUs has what is locked for it, and what vLLM compiles with. It is
asked as a restricted pod's container, without a network and without a GPU: so it serves nothing here.

``make test-image-vllm ACCELERATOR=cuda`` runs it: it builds an image of 6.4 GB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import enginewright_builder
from cluster.paths import cache_dir
from images.buildah import Buildah
from images.cli import build
from images.recipe import ROOT
from support.restricted import Container, container

IMAGE, ASKED = "server-vllm", "/opt/asked"
# Name in what it has → package of the lock.
LOCKED = {"PyTorch": "torch", "PyTorch's GPU compiler": "triton", "transformers": "transformers", "NumPy": "numpy",
          "CUDA's Python bindings": "cuda-bindings", "Tokenizers": "tokenizers", "vLLM": "vllm"}
# What vLLM's own libraries need and do not find once PyTorch's are loaded.
LACKING = """
import subprocess
from pathlib import Path
packages = Path("/usr/local/lib/python3.11/dist-packages")
for library in sorted((packages / "vllm").rglob("*.so")):
    told = subprocess.run(["ldd", library], capture_output=True, text=True, check=True,
                          env={"LD_LIBRARY_PATH": str(packages / "torch/lib")}).stdout
    print(*(line.split()[0] for line in told.splitlines() if "not found" in line))
"""
# By g++ and PyTorch's headers, and by cc and Python's.
COMPILES = """
import subprocess, sysconfig, torch
compiled = torch.compile(lambda numbers: torch.sin(numbers) + 1, fullgraph=True)
assert torch.allclose(compiled(torch.zeros(8)), torch.ones(8))
source = "#include <Python.h>\\nPyMODINIT_FUNC PyInit_m(void) { return PyModule_Create(0); }\\n"
subprocess.run(["cc", "-xc", "-shared", "-fPIC", "-I" + sysconfig.get_path("include"), "-o", "/tmp/m.so", "-"],
               input=source, text=True, check=True)
print("compiles")
"""
BY_NAME = "import ctypes; print(ctypes.CDLL('libcudart.so.13').cudaRuntimeGetVersion(ctypes.byref(ctypes.c_int())))"

pytestmark = [pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    reference = build([IMAGE], "cuda")[IMAGE]["reference"]
    buildah = Buildah(cache_dir() / "images", print)
    package = Path(next(iter(enginewright_builder.__path__)))
    with (buildah.mounted(reference) as root,
          container(root, tmp_path_factory.mktemp("image") / "bundle", ["sleep", "infinity"],
                    environment=buildah.environment_of(reference),
                    read={f"{ASKED}/enginewright_builder": package}) as running):
        yield running


def test_it_has_what_is_locked(image: Container) -> None:
    facts = json.loads(image.run("env", f"PYTHONPATH={ASKED}", "python3", "-m", "enginewright_builder.examine"))
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / "requirements" / "vllm-gpu.txt").read_text(),
                             re.MULTILINE))
    found = {one["name"]: one["version"] for one in facts["libraries"] if one["version"]}
    assert found == {name: locked[package] for name, package in LOCKED.items()}
    assert {one["name"]: one["lacks"] for one in facts["libraries"] if one["lacks"]} == {}
    assert facts["compiler"]
    assert facts["cuda_version"] == locked["nvidia-cuda-runtime"]


def test_vllms_libraries_lack_the_driver_alone(image: Container) -> None:
    lacking = image.run("python3", "-c", LACKING).splitlines()
    assert len(lacking) > 3
    assert {name for line in lacking for name in line.split()} == {"libcuda.so.1"}


def test_it_compiles_what_vllm_compiles_as_it_starts(image: Container) -> None:
    assert image.run("python3", "-c", COMPILES).strip() == "compiles"


def test_cudas_runtime_is_found_by_its_name(image: Container) -> None:
    """So the prover can say that a node's driver is too old before vLLM starts."""
    assert image.run("python3", "-c", BY_NAME).strip() == "0"


def test_vllm_starts_as_far_as_it_gets_without_a_gpu(image: Container) -> None:
    told = image.run("sh", "-c", "vllm serve /model 2>&1 || true")
    assert "Failed to infer device type" in told

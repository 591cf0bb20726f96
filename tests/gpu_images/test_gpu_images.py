"""The images for NVIDIA GPUs start as restricted pods and have what is locked for them, on a node without a GPU.

``make test-images-gpu`` runs it: it builds and loads two images of several gigabytes, so ``make test`` does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import enginewright_builder
from demo.shell import CLUSTER, IMAGES, ROOT, Kube, run

NAMESPACE = "gpu-images"
ASKED = "/opt/asked"
# What a server image's own Python runs.
ASKING = ("__init__.py", "examine.py", "pod/__init__.py", "pod/device.py", "pod/libraries.py")
# Name in the report → package of the lock.
SERVER = {"TensorRT": "tensorrt-cu12-bindings", "TensorRT's Python bindings": "tensorrt-cu12-bindings",
          "ONNX Runtime": "onnxruntime-gpu", "PyTorch": "torch", "CUDA's Python bindings": "cuda-bindings",
          "NVML's Python bindings": "nvidia-ml-py", "NumPy": "numpy"}
BUILDER = {**SERVER, "TensorRT's kernels to build with": "tensorrt-cu12-bindings", "PyTorch's GPU compiler": "triton",
           "ModelOpt": "nvidia-modelopt", "transformers": "transformers", "ONNX": "onnx"}


def check_server(facts: dict[str, Any]) -> None:
    check_libraries(facts, "server-gpu", SERVER)
    assert facts["compiler"] == ""
    assert facts["backends"] == ["python"]


def check_builder(facts: dict[str, Any]) -> None:
    check_libraries(facts, "builder-gpu", BUILDER)
    assert facts["compiler"]
    assert facts["backends"] == ["python"]
    able = {(one["accelerator"], one["backend"], one["precision"]) for one in facts["engines"] if not one["why_not"]}
    assert ("cpu", "onnxruntime", "fp32") in able
    on_gpu = [one for one in facts["engines"] if one["accelerator"] == "gpu"]
    assert {one["backend"] for one in on_gpu} == {"tensorrt", "torch", "onnxruntime"}
    # What stands in the way is the GPU that this node has not, and nothing of the image.
    assert [one for one in on_gpu if "this builder image" in one["why_not"]] == []


def check_libraries(facts: dict[str, Any], lock: str, wanted: dict[str, str]) -> None:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    locked = dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))
    found = {one["name"]: one["version"] for one in facts["libraries"] if one["version"]}
    assert found == {name: locked[package] for name, package in wanted.items()}
    assert {one["name"]: one["lacks"] for one in facts["libraries"] if one["lacks"]} == {}


@pytest.fixture(scope="module")
def kube() -> Iterator[Kube]:
    """A node with a namespace that takes restricted pods alone. The node is left up."""
    run(CLUSTER, "up", quiet=False, timeout=1800)
    kube = Kube.of_cluster()
    kube.make_namespace(NAMESPACE)
    yield kube
    kube.remove_namespace(NAMESPACE)


@pytest.fixture(scope="module")
def images(kube: Kube) -> dict[str, str]:
    """References of the two images that differ on GPUs; the node has them."""
    command = (IMAGES, "build", "--json", "--accelerator", "cuda", "server", "builder")
    built = json.loads(run(*command, quiet=False, timeout=5400))
    run(CLUSTER, "load-image", *(one["archive"] for one in built.values()), quiet=False, timeout=1800)
    return {name: one["reference"] for name, one in built.items()}


@pytest.mark.timeout(9000)
def test_the_builder_has_all_that_competes_and_says_that_there_is_no_gpu(kube: Kube, images: dict[str, str]) -> None:
    start(kube, "builder", image=images["builder"], args=["doctor", "--json"])
    kube("wait", "-n", NAMESPACE, "pod/builder", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s",
         timeout=330)
    check_builder(json.loads(kube("logs", "-n", NAMESPACE, "builder")))


@pytest.mark.timeout(9000)
def test_the_server_serves_and_has_what_engines_run_in(kube: Kube, images: dict[str, str]) -> None:
    package = Path(next(iter(enginewright_builder.__path__)))
    keys = {name: name.replace("/", ".") for name in ASKING}  # a key of a ConfigMap has no slash
    texts = {key: (package / name).read_text() for name, key in keys.items()}
    asking = {"name": "asking", "items": [{"key": key, "path": name} for name, key in keys.items()]}
    create(kube, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "asking"}, "data": texts})
    start(kube, "server", [{"name": "asking", "configMap": asking}], image=images["server"],
          command=["sh", "-c", "mkdir /tmp/models && exec tritonserver --model-repository=/tmp/models"],
          readinessProbe={"httpGet": {"path": "/v2/health/ready", "port": 8000}},
          volumeMounts=[{"name": "asking", "mountPath": f"{ASKED}/enginewright_builder"}])
    kube("wait", "-n", NAMESPACE, "pod/server", "--for=condition=Ready", "--timeout=300s", timeout=330)
    asked = kube("exec", "-n", NAMESPACE, "server", "--", "env", f"PYTHONPATH={ASKED}", "python3", "-m",
                 "enginewright_builder.examine")
    check_server(json.loads(asked))


def start(kube: Kube, name: str, volumes: list[dict[str, Any]] | None = None, **container: Any) -> None:
    """A pod as the operator makes them: restricted, on a read-only root, with a writable /tmp."""
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}, *container.get("volumeMounts", [])]
    limits = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    create(kube, {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
                                "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": name, "imagePullPolicy": "IfNotPresent", "securityContext": limits, **container}],
            "volumes": [{"name": "tmp", "emptyDir": {}}, *(volumes or [])]}})


def create(kube: Kube, body: dict[str, Any]) -> None:
    kube("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(body))

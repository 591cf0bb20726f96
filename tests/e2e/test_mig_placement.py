"""MIG on the real scheduler: slices patched into the node's status, its labels as GPU feature discovery sets them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from demo.shell import Kube
from support.bench import Bench

SLICE = "nvidia.com/mig-1g.10gb"
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/mig.strategy": "mixed",
          "nvidia.com/mig.config.state": "success", "nvidia.com/mig.capable": "true"}


@pytest.fixture
def mig_node(kube: Kube) -> Iterator[str]:
    """The node's name, while it claims to have two 1g.10gb slices of an H100."""
    name: str = kube.json("get", "node")["items"][0]["metadata"]["name"]
    escaped = SLICE.replace("/", "~1")
    kube("label", "node", name, "--overwrite", *(f"{key}={value}" for key, value in LABELS.items()))
    kube("patch", "node", name, "--subresource=status", "--type=json",
         "-p", json.dumps([{"op": "add", "path": f"/status/capacity/{escaped}", "value": "2"}]))
    try:
        yield name
    finally:
        kube("patch", "node", name, "--subresource=status", "--type=json",
             "-p", json.dumps([{"op": "remove", "path": f"/status/capacity/{escaped}"}]))
        kube("label", "node", name, *(f"{key}-" for key in LABELS))


def _gpu(profile: str) -> dict[str, object]:
    return {"accelerator": "gpu", "gpu": {"products": ["NVIDIA-H100-80GB-HBM3"]},
            "mig": {"profile": profile, "strategy": "mixed"}}


def test_a_build_that_fits_is_placed_and_one_that_does_not_says_what_is_missing(bench: Bench, mig_node: str) -> None:
    bench.apply("fits", engine={"backend": "onnxruntime", "buildBudgetSeconds": 15}, placement=_gpu("1g.10gb"))
    bench.apply("waits", engine={"backend": "onnxruntime", "buildBudgetSeconds": 15}, placement=_gpu("3g.40gb"))
    assert "nvidia.com/mig-3g.40gb" in bench.wait_reason("waits", "EngineBuilt", "Unschedulable")["message"]
    selector = "enginewright.io/model=fits,app.kubernetes.io/component=build"
    bench.kube("wait", "pod", "-n", bench.namespace, "-l", selector, "--for=condition=PodScheduled", "--timeout=60s")
    pod = bench.get("pod", selector)[0]
    assert pod["spec"]["nodeName"] == mig_node
    assert pod["spec"]["containers"][0]["resources"]["limits"][SLICE] == "1"

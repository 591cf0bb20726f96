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
    return {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"},
            "mig": {"profile": profile, "strategy": "mixed"}}


def test_a_build_that_fits_is_placed_and_one_that_does_not_says_what_is_missing(bench: Bench, mig_node: str) -> None:
    bench.apply("fits", engine={"backend": "onnxruntime", "buildBudgetSeconds": 15}, placement=_gpu("1g.10gb"))
    bench.apply("waits", engine={"backend": "onnxruntime", "buildBudgetSeconds": 15}, placement=_gpu("3g.40gb"))
    assert "nvidia.com/mig-3g.40gb" in bench.wait_reason("waits", "EngineBuilt", "Unschedulable")["message"]
    selector = "enginewright.io/model=fits,app.kubernetes.io/component=build"
    pod = bench.placed(selector)[0]
    assert pod["spec"]["nodeName"] == mig_node
    steps = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    build = next(one for one in steps if one["name"] == "build")
    assert build["resources"]["limits"][SLICE] == "1"


def _device(name: str, profile: str) -> dict[str, object]:
    return {"name": name, "attributes": {"type": {"string": "mig"}, "profile": {"string": profile},
                                         "productName": {"string": "NVIDIA H100 80GB HBM3"}},
            "capacity": {"memory": {"value": "9984Mi"}}}


@pytest.fixture
def mig_devices(kube: Kube) -> Iterator[None]:
    """One 1g.10gb slice as NVIDIA's DRA driver publishes it. There is no such driver here: pods are placed, not run."""
    node = kube.json("get", "node")["items"][0]["metadata"]["name"]
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig.nvidia.com"},
                    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com' && "
                                                    "device.attributes['gpu.nvidia.com'].type == 'mig'"}}]}}
    devices = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "e2e-mig"},
               "spec": {"driver": "gpu.nvidia.com", "nodeName": node,
                        "devices": [_device("gpu-0-mig-1g10gb", "1g.10gb")],
                        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}}
    for manifest in (device_class, devices):
        kube("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        yield
    finally:
        kube("delete", "resourceslice/e2e-mig", "deviceclass/mig.nvidia.com")


def test_dynamic_resource_allocation_finds_the_slice_by_its_profile(bench: Bench, mig_devices: None) -> None:
    placement = {"accelerator": "gpu", "gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "nodeSelector": {},
                 "mig": {"profile": "1g.10gb", "dra": {"deviceClassName": "mig.nvidia.com"}}}
    bench.apply("claims", engine={"backend": "onnxruntime", "buildBudgetSeconds": 15}, placement=placement)
    selector = "enginewright.io/model=claims,app.kubernetes.io/component=build"
    bench.wait_reason("claims", "SourceResolved", "Resolved")
    bench.placed(selector)
    allocated = bench.get("resourceclaim")[0]["status"]["allocation"]["devices"]["results"]
    assert [found["device"] for found in allocated] == ["gpu-0-mig-1g10gb"]

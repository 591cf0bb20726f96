"""The device of a build's pod on a real kubelet: the build has it, then the server beside the prover, and the prover
has none, with one device on the node (docs/adr/0029). The device is a fake device plugin's; who gets it, the
kubelet's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from demo.shell import Kube
from enginewright.core.config import OperatorConfig
from support.children import children_of
from support.device_plugin import GIVEN, devices

JSON = dict[str, Any]
SPEC: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"gpu": {"product": "NVIDIA-H200"}}}
# Not a GPU's name, which the operator's planner would count.
OURS, RESOURCE, DEVICE = "nvidia.com/gpu", "enginewright.test/gpu", "device-0"
SAYS = f"printf %s \"${{{GIVEN}:-none}}\" > /dev/termination-log"
# The kubelet stops it as soon as the prover has ended. On a busy machine that may be before its first word: the signal
# does nothing then, and the grace period is for that word.
STAYS = f"{SAYS}; trap 'exit 0' TERM; sleep 600 & wait"


def pod_of_the_build(image: str) -> JSON:
    """The operator's own, of which each container says what it was given instead of doing its work."""
    built = children_of("m", SPEC, OperatorConfig()).all()["build_job"]
    pod: JSON = built["spec"]["template"]["spec"]
    return {"restartPolicy": "Never", "automountServiceAccountToken": False, "securityContext": pod["securityContext"],
            "terminationGracePeriodSeconds": 30,
            "initContainers": [saying(one, image) for one in pod["initContainers"]],
            "containers": [saying(one, image) for one in pod["containers"]]}


def saying(container: JSON, image: str) -> JSON:
    stays = container.get("restartPolicy") == "Always"
    amount = container["resources"].get("limits", {}).get(OURS)
    wanted = {RESOURCE: amount} if amount else {}
    return {"name": container["name"], "image": image, "imagePullPolicy": "Never",
            "securityContext": container["securityContext"],
            "command": ["/bin/sh", "-c", STAYS if stays else SAYS],
            "resources": {"limits": wanted, "requests": {**wanted, "cpu": "10m"}},
            **({"restartPolicy": "Always"} if stays else {})}


@pytest.fixture
def namespace(kube: Kube) -> Iterator[str]:
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kube.make_namespace(name)
    yield name
    kube.remove_namespace(name)


def test_one_device_serves_the_build_and_then_the_server(kube: Kube, images: dict[str, str], namespace: str) -> None:
    spec = pod_of_the_build(images["builder"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "build", "namespace": namespace}, "spec": spec}
    asked = {one["name"]: one["resources"]["limits"] for one in (*spec["initContainers"], *spec["containers"])}
    assert asked == {"build": {RESOURCE: "1"}, "server": {RESOURCE: "1"}, "prove": {}}
    with devices(RESOURCE, [DEVICE]):
        kube("apply", "-f", "-", stdin=json.dumps(pod))
        kube("wait", "pod/build", "-n", namespace, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=400s",
             timeout=430)
        status = kube.json("get", "pod", "build", "-n", namespace)["status"]
    said = {one["name"]: one["state"]["terminated"]["message"]
            for one in (*status["initContainerStatuses"], *status["containerStatuses"])}
    assert said == {"build": DEVICE, "server": DEVICE, "prove": "none"}

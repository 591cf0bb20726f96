"""What stands in the way of replicas that no node can take: from nodes and pods of a real apiserver. The test binds the
pods; there is no scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from enginewright.clients.errors import RefusedError
from enginewright.clients.kube import MERGE, KubeClient
from enginewright.clients.resources import NODE, POD
from enginewright.core.placement import MIG_STATE_LABEL
from enginewright.runtime import Operator
from support import nodes
from support.apiserver import Models, eventually, model
from support.fake_kubelet import FakeKubelet, beats
from support.fleets import H100
from support.operators import embedded

SLICE = {"nvidia.com/mig-1g.10gb": 1}
PLACEMENT = {"accelerator": "gpu", "gpu": {"product": H100}, "mig": {"profile": "3g.40gb"}}


@pytest.fixture
async def fleet(kube: KubeClient, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """Two nodes of one GPU each, cut into 1g.10gb, with one and two slices in use; a pod of another namespace has one
    of them."""
    first, second = f"a-{namespace}", f"b-{namespace}"
    made = [(namespace, f"p-{namespace}", first), (namespace, f"q-{namespace}", second),
            ("default", f"r-{namespace}", second)]
    for name in (first, second):
        await _node(kube, name)
    for where, name, on in made:
        await eventually(partial(_pod, kube, where, name, on))
    # The planner leaves a node that the controllers take for lost out of what it says.
    beating = asyncio.create_task(beats(kube, first, second), name="heartbeats")
    try:
        yield first, second
    finally:
        beating.cancel()
        await asyncio.wait({beating})
        for where, name, _ in made:
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            await kube._json("delete", POD, POD.path(where, name), body=body)
        for name in (first, second):
            await kube._json("delete", NODE, NODE.path(None, name))


async def _node(kube: KubeClient, name: str) -> None:
    body = nodes.node(name, H100, count=1, **{"mig-1g.10gb": 7})
    body["metadata"]["labels"][MIG_STATE_LABEL] = "success"
    status = body.pop("status")
    capacity = {**status["allocatable"], "pods": "100", "memory": "64Gi"}
    status |= {"allocatable": capacity, "capacity": capacity}
    await kube._json("create", NODE, NODE.path(None), body=body)

    async def takes_pods() -> bool:
        """The apiserver taints a new node until it is seen to be ready."""
        await kube._json("patch", NODE, NODE.path(None, name, "status"), body={"status": status}, content_type=MERGE)
        found = await kube._json("get", NODE, NODE.path(None, name))
        return not found["spec"].get("taints")

    await eventually(takes_pods)


async def _pod(kube: KubeClient, namespace: str, name: str, on: str) -> bool:
    body = nodes.pod(name, on, SLICE)
    del body["metadata"]["namespace"], body["status"]
    body["spec"]["containers"][0]["image"] = "x"
    try:
        await kube._json("create", POD, POD.path(namespace), body=body)
    except RefusedError:  # the namespace has no service account yet
        return False
    return True


async def test_the_condition_says_that_only_fragmentation_stands_in_the_way(
    operator_kubeconfig: Path, kube: KubeClient, namespace: str, models: Models, kubelet: FakeKubelet,
    fleet: tuple[str, str],
) -> None:
    first, second = fleet
    kubelet.script.server = "unschedulable"
    async with embedded(operator_kubeconfig, namespace) as operator:
        await models.create(model(placement=PLACEMENT))
        said = (await models.wait("RolloutComplete", "False", "Unschedulable"))["message"]
        assert "0/2 nodes are available: 2 Insufficient nvidia.com/mig-3g.40gb." in said
        assert said.endswith(
            f"Only fragmentation stands in the way: free are 6 × 1g.10gb on node {first} and 5 × 1g.10gb on node "
            f"{second}. Moving p-{namespace} from node {first} to {second} would free a GPU that can be cut for it on "
            f"{first}.")
        assert (await models.condition("Ready"))["message"] == said
        kubelet.script.server = "succeed"
        await models.wait("Ready", "True", "Serving")
        calls = _calls(operator)
    assert ("list", "nodes", "200") in calls
    assert "403" not in {code for _, _, code in calls}


def _calls(operator: Operator) -> set[tuple[str, str, str]]:
    """Verb, resource and status."""
    return {(sample.labels["verb"], sample.labels["resource"], sample.labels["code"])
            for metric in operator.metrics.api_seconds.collect() for sample in metric.samples}

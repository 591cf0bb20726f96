"""The operator killed with SIGKILL at the worst moments: no second build, no failed request, and it carries on."""

from __future__ import annotations

import pytest

from demo.__main__ import SYSTEM_NAMESPACE
from support.bench import Bench

ROLLOUT = {"strategy": "BlueGreen", "analysis": {"seconds": 5}}
SCALED = {"minReplicas": 1, "maxReplicas": 2, "targetQueueDepth": 1,
          "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}}


def kill_operator(bench: Bench) -> None:
    """SIGKILL: a grace period of nought. Waits until its successor is ready."""
    selector = "app.kubernetes.io/name=enginewright,app.kubernetes.io/component=operator"
    bench.kube("delete", "pod", "-n", SYSTEM_NAMESPACE, "-l", selector, "--force", "--grace-period=0", "--wait=false")
    bench.kube("rollout", "status", "deployment/enginewright", "-n", SYSTEM_NAMESPACE, "--timeout=240s")


def builds(bench: Bench) -> set[str]:
    return {job["metadata"]["uid"] for job in bench.get("job", "app.kubernetes.io/component=build")}


def test_killed_during_the_build(bench: Bench) -> None:
    bench.apply("tiny")
    bench.wait_reason("tiny", "EngineBuilt", "Building")
    before = builds(bench)
    kill_operator(bench)
    bench.wait("tiny", "condition=Ready")
    assert builds(bench) == before
    assert len(before) == 1


@pytest.mark.parametrize("moment", ["rollout", "scale-up"])
def test_killed_under_load(stocked_bench: Bench, moment: str) -> None:
    bench = stocked_bench
    bench.apply("tiny", autoscaling=SCALED, rollout=ROLLOUT)
    bench.wait("tiny", "condition=Ready")
    how = ("--closed", "32") if moment == "scale-up" else ("--rate", "20")
    with bench.loaded("tiny", *how, least=100):
        if moment == "scale-up":
            bench.wait("tiny", "jsonpath={.status.autoscaling.desiredReplicas}=2")
            kill_operator(bench)
            bench.wait("tiny", "jsonpath={.status.readyReplicas}=2")
        else:
            other = {"uri": "pvc://models/other.onnx"}
            bench.apply("tiny", source=other, autoscaling=SCALED, rollout=ROLLOUT)
            bench.wait("tiny", "jsonpath={.status.conditions[?(@.type=='RolloutComplete')].status}=False")
            kill_operator(bench)
        bench.wait("tiny", "condition=Ready")

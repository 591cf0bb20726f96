"""One model over several classes of devices on a real node: one Service, one revision, and a class that leaves."""

from __future__ import annotations

from typing import Any

from support.bench import Bench

FLEET = "enginewright.io/fleet=tiny"
ROLLOUT = {"analysis": {"seconds": 5}}


def over(*names: str) -> dict[str, Any]:
    """Classes of this node: only their names tell them apart."""
    return {"classes": [{"name": name, "accelerator": "cpu"} for name in names]}


def fingerprints(bench: Bench) -> dict[str, str]:
    """Of the engine that serves each class."""
    return {model["metadata"]["name"]: model["status"]["fingerprint"] for model in bench.get("om", FLEET)}


def test_all_classes_answer_promote_together_and_one_leaves(stocked_bench: Bench) -> None:
    bench = stocked_bench
    bench.apply("tiny", placement=over("a", "b", "c"), rollout=ROLLOUT)
    bench.wait("tiny", "condition=Ready")
    before = fingerprints(bench)
    assert sorted(before) == ["tiny-a", "tiny-b", "tiny-c"]
    with bench.loaded("tiny", least=500):
        other = {"uri": "pvc://models/other.onnx"}
        bench.apply("tiny", source=other, placement=over("a", "b", "c"), rollout=ROLLOUT)
        bench.wait("tiny", "jsonpath={.status.conditions[?(@.type=='RolloutComplete')].status}=False")
        bench.wait("tiny", "condition=Ready")
        after = fingerprints(bench)
        assert len(set(after.values())) == 1
        assert set(after.values()).isdisjoint(before.values())
        bench.apply("tiny", source=other, placement=over("a", "b"), rollout=ROLLOUT)
        bench.kube("wait", "om/tiny-c", "-n", bench.namespace, "--for=delete", "--timeout=240s")
        bench.wait("tiny", "condition=Ready")
    served = {pod["metadata"]["labels"]["enginewright.io/model"] for pod in bench.get("pod", FLEET)}
    assert {"tiny-a", "tiny-b"} <= served

"""Objects with old names of fields in a real apiserver: nothing of them is lost, ``enginewright migrate`` rewrites
them, and old names are added to none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from enginewright.cli import main
from enginewright.core import labels
from enginewright.core.spec import parse_spec
from support.kubectl import Kubectl

OLD: dict[str, Any] = {
    "source": {"uri": "s3://models/minilm", "credentialsFrom": {"name": "models"},
               "signature": {"keyFrom": {"kind": "Secret", "name": "keys", "key": "a.pub"}}},
    "accuracy": {"tolerance": 0.02},
    "placement": {"gpu": {"products": ["NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"]}, "mig": {"profile": "auto"}},
    "rollout": {"analysisSeconds": 10},
    "autoscaling": {"maxReplicas": 3, "scaleDownStabilizationSeconds": 5,
                    "scaleUpPolicies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
    "batching": {"mode": "fixed", "adaptive": True, "maxQueueDelayMicroseconds": 0},
    "instances": {"mode": "fixed", "count": 2},
    "serving": {"runtime": "triton"},
}


@pytest.fixture
def kubectl(control_plane: Path) -> Kubectl:
    return Kubectl(control_plane)


def model(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": labels.API_VERSION, "kind": labels.KIND, "metadata": {"name": name}, "spec": spec}


def stored(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "om", name, "-o", "json"))["spec"]
    return found


def test_an_old_object_loses_nothing_is_rewritten_and_stays_so(kubectl: Kubectl, control_plane: Path,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    kubectl("create", "-f", "-", stdin=model("old", OLD))
    before = stored(kubectl, "old")
    assert before["accuracy"]["tolerance"] == 0.02
    assert parse_spec(before) == parse_spec(OLD), "what the apiserver fills in changes nothing"
    kubectl("label", "om", "old", "a=b")  # whoever writes it otherwise is not hindered

    asked = ["migrate", "--all", "--namespace", "default", "--kubeconfig", str(control_plane)]
    assert main(asked) == 1
    assert "default/old: spec.accuracy.tolerance is now spec.accuracy.maxLoss" in capsys.readouterr().err
    assert stored(kubectl, "old") == before

    assert main([*asked, "--write"]) == 0
    after = stored(kubectl, "old")
    assert parse_spec(after) == parse_spec(OLD)
    assert (after["accuracy"]["maxLoss"], "tolerance" in after["accuracy"]) == (0.02, False)
    assert main(asked) == 0

    done = kubectl.run("patch", "om", "old", "--type=merge", "-p", '{"spec": {"accuracy": {"tolerance": 0.1}}}')
    assert "spec.accuracy.tolerance is now spec.accuracy.maxLoss; write that" in done.stderr

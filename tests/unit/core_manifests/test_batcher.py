"""Who gets a batcher: memory for two models must be known to be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core.batching import Refusal, SafeSet
from enginewright.core.config import OperatorConfig, Resources
from enginewright.core.manifests import adaptive, deployment
from enginewright.core.observed import EngineRecord
from enginewright.core.reasons import Reason
from support.children import CURVE, ENGINE, Children, children_of

GIB = 1 << 30
SOURCE: dict[str, Any] = {"source": {"uri": "pvc://models/bert"}, "batching": {"adaptive": True}}
H100, H200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200"
SLICE = {"gpu": {"product": H100}, "mig": {"profile": "1g.10gb"}}
LIMITED = {"serving": {"resources": {"limits": {"memory": "2Gi"}}}}
CPU = {"placement": {"accelerator": "cpu"}}


def known(children: Children, gib: float, device: str = "CPU") -> EngineRecord:
    engine = replace(ENGINE, service_curve=CURVE, memory_bytes=round(gib * GIB), device=device)
    return replace(children.record, outcome=replace(children.outcome, engine=engine))


def answer(spec: dict[str, Any], gib: float, device: str = "CPU",
           config: OperatorConfig | None = None) -> Reason | None:
    children = children_of("bert", {**SOURCE, **spec}, config)
    found = adaptive(children.spec, known(children, gib, device), children.placement, children.config)
    assert isinstance(found, SafeSet | Refusal)
    return found.reason if isinstance(found, Refusal) else None


@pytest.mark.parametrize(("spec", "gib", "device", "reason"), [
    ({"placement": SLICE}, 4.8, "NVIDIA H100 80GB HBM3 1g.10gb", None),
    ({"placement": SLICE}, 5.0, "NVIDIA H100 80GB HBM3 1g.10gb", Reason.NO_ROOM_FOR_TWO),
    ({"placement": SLICE}, 0, "NVIDIA H100 80GB HBM3 1g.10gb", Reason.MEMORY_UNKNOWN),
    ({"placement": {"gpu": {"product": H200}}}, 69.0, "NVIDIA H200", None),
    ({"placement": {"gpu": {"product": H200}}}, 71.0, "NVIDIA H200", Reason.NO_ROOM_FOR_TWO),
    ({"placement": {"gpu": {"product": H200, "count": 2}}}, 71.0, "NVIDIA H200", None),  # of both together
    # Whatever GPU there is: the record knows on which it was built, and pods are pinned to that product.
    ({}, 69.0, "NVIDIA H200", None),
    ({}, 71.0, "NVIDIA H200", Reason.NO_ROOM_FOR_TWO),
    ({"placement": {"mig": {"profile": "1g.18gb"}}}, 9.0, "NVIDIA H200 1g.18gb", Reason.NO_ROOM_FOR_TWO),
    ({"placement": {"mig": {"profile": "1g.18gb"}}}, 7.0, "NVIDIA H200 1g.18gb", None),
    ({}, 1.0, "NVIDIA L4", Reason.MEMORY_UNKNOWN),
    (CPU, 100.0, "CPU", None),  # nobody limits it
    ({**CPU, **LIMITED}, 0.9, "CPU", None),
    ({**CPU, **LIMITED}, 1.1, "CPU", Reason.NO_ROOM_FOR_TWO),
    ({**CPU, **LIMITED}, 0, "CPU", Reason.MEMORY_UNKNOWN),
])
def test_room_for_two(spec: dict[str, Any], gib: float, device: str, reason: Reason | None) -> None:
    assert answer(spec, gib, device) == reason


def test_the_limit_of_the_installation_counts() -> None:
    config = OperatorConfig(server_resources=Resources(limits={"memory": "1Gi"}))
    assert answer(CPU, 0.6, config=config) == Reason.NO_ROOM_FOR_TWO


def test_one_who_has_no_room_serves_with_model_control_off() -> None:
    children = children_of("bert", {**SOURCE, **CPU, **LIMITED})
    pods = [deployment(children.owner, children.spec, known(children, gib), children.placement, children.config)[
        "spec"]["template"]["spec"] for gib in (1.1, 0.9)]
    assert [[one["name"] for one in pod["containers"]] for pod in pods] == [["server"], ["server", "batcher"]]
    assert "--model-control-mode=none" in pods[0]["containers"][0]["args"]
    assert "model-control" not in {volume["name"] for volume in pods[0]["volumes"]}


@pytest.mark.parametrize("argument", ["--model-control-mode=poll", "--allow-vertex-ai=true"])
def test_an_argument_of_the_installation_that_takes_model_control_leaves_it_off(argument: str) -> None:
    config = OperatorConfig(server_args=("--log-verbose=1", argument))
    children = children_of("bert", {**SOURCE, **CPU}, config)
    found = adaptive(children.spec, known(children, 0.3), children.placement, config)
    assert isinstance(found, Refusal)
    assert found.reason == Reason.MODEL_CONTROL_TAKEN
    assert f"{argument}, config.serverArgs[1] of the installation" in found.message
    assert "remove it" in found.message
    made = deployment(children.owner, children.spec, known(children, 0.3), children.placement, config)
    (server,) = made["spec"]["template"]["spec"]["containers"]
    assert server["args"][0] == "tritonserver", "no shell, and no key"
    assert "--model-control-mode=none" in server["args"]


def test_no_manifest_holds_a_key() -> None:
    children = children_of("bert", {**SOURCE, **CPU})
    made = deployment(children.owner, children.spec, known(children, 0.3), children.placement, children.config)
    server = made["spec"]["template"]["spec"]["containers"][0]
    assert not [argument for argument in server["args"] if "restricted" in argument and '"$key"' not in argument]
    assert "$(" not in " ".join(server["args"]), "the kubelet would look for a variable"

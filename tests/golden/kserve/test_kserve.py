"""What ``kubectl optimisedmodel export --as kserve`` prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from enginewright.core.config import Images, OperatorConfig
from enginewright.plugin.kserve import exported
from support.children import children_of
from support.goldens import UPDATE

HERE = Path(__file__).parent
CONFIG = OperatorConfig(images=Images(builder="registry.example/builder:1", server="registry.example/server:1",
                                      operator="registry.example/operator:1"))
SOURCE: dict[str, Any] = {"source": {"uri": "pvc://models/all-minilm-l6-v2"}}
CPU: dict[str, Any] = {**SOURCE, "placement": {"accelerator": "cpu"}}
SPECS: dict[str, dict[str, Any]] = {
    "cpu": CPU,
    "added": {
        **CPU,
        "quality": {},
        "store": {"uri": "s3://engines/a", "secretRef": {"name": "engine-bucket"}, "serviceAccountName": "engines"},
        "serving": {"queue": {"maxQueueSize": 256}, "podTemplate": {
            "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/note": "hello"}},
            "spec": {"priorityClassName": "serving", "volumes": [{"name": "logs", "emptyDir": {}}],
                     "containers": [{"name": "server", "volumeMounts": [{"name": "logs", "mountPath": "/logs"}]},
                                    {"name": "shipper", "image": "example/shipper:1"}]}}},
    },
    "dra": {**SOURCE, "placement": {"gpu": {"product": "NVIDIA-H100-80GB-HBM3"}, "mig": {"profile": "3g.40gb",
                                                                                          "dra": {}}}},
}


@pytest.mark.parametrize("name", SPECS)
def test_golden(name: str) -> None:
    golden = HERE / f"{name}.yaml"
    text = exported(children_of("minilm", SPECS[name], CONFIG).all()["deployment"])
    if os.environ.get(UPDATE):
        golden.write_text(text)
    assert text == golden.read_text(), "look at the change, then run: make golden"


def test_no_golden_without_its_case() -> None:
    assert {path.stem for path in HERE.glob("*.yaml")} == set(SPECS)

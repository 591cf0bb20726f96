"""What single values of the chart do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core.config import OperatorConfig
from enginewright.settings import read_settings

Values = dict[str, Any]
Object = dict[str, Any]
Objects = Callable[[Values], dict[str, list[Object]]]
Settings = Callable[[Values], OperatorConfig]


@pytest.fixture
def settings(objects: Objects, tmp_path: Path) -> Settings:
    """What the operator reads of it."""

    def read(values: Values) -> OperatorConfig:
        file = tmp_path / "config.yaml"
        file.write_text(objects(values)["ConfigMap"][0]["data"]["config.yaml"])
        return read_settings(file)

    return read


def pod_of(objects: Objects, values: Values) -> Object:
    (deployment,) = objects(values)["Deployment"]
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def test_openshift_gives_users_and_groups(objects: Objects, settings: Settings) -> None:
    values = {"openshift": {"enabled": True}}
    assert pod_of(objects, values)["securityContext"] == {
        "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert settings(values).openshift
    assert not settings({}).openshift
    assert "openshift" not in yaml.safe_load(objects({})["ConfigMap"][0]["data"]["config.yaml"])

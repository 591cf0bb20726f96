"""Helm, and what it makes of the chart."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries

CHART = Path(__file__).resolve().parents[3] / "charts" / "enginewright"
Object = dict[str, Any]
Template = Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]
Render = Callable[[dict[str, Any]], str]


@pytest.fixture(scope="session")
def helm() -> str:
    return str(binaries.build(binaries.HELM))


@pytest.fixture(scope="session")
def template(helm: str) -> Template:
    """``helm template`` with values; its exit status is the caller's to look at."""
    command = [helm, "template", "demo", str(CHART), "--namespace", "enginewright-system", "--kube-version", "1.34.4",
               "--values", "-"]

    def run(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        text = yaml.safe_dump(values)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=240, check=False)

    return run


@pytest.fixture(scope="session")
def render(template: Template) -> Render:
    def run(values: dict[str, Any]) -> str:
        done = template(values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def objects(render: Render) -> Callable[[dict[str, Any]], dict[str, list[Object]]]:
    """The chart's objects by kind."""

    def run(values: dict[str, Any]) -> dict[str, list[Object]]:
        found: dict[str, list[Object]] = {}
        for document in yaml.load_all(render(values), yaml.CSafeLoader):
            if document:
                found.setdefault(document["kind"], []).append(document)
        return found

    return run

"""The CRD as a part of a release: Helm upgrades it, adopts an older one, and leaves it when it is told to."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from enginewright.core.spec.crd import NAME
from support.apiserver import eventually
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "enginewright"
TEMPLATE = Path("templates") / "crd.yaml"
FILE = ROOT / "crds" / "enginewright.io_optimisedmodels.yaml"
EXAMPLE = ROOT / "examples" / "cpu.yaml"
SYSTEM = "enginewright-system"
RED = '{"spec": {"source": {"colour": "red"}}}'
Objects = Callable[[dict[str, Any]], dict[str, list[dict[str, Any]]]]


class Release:
    """A release of the chart in a cluster without one, and a user of that cluster."""

    def __init__(self, helm: str, kubeconfig: Path) -> None:
        self.kubectl = Kubectl(kubeconfig)
        self._helm = [helm, f"--kubeconfig={kubeconfig}", "--namespace", SYSTEM]

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*self._helm, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    def __call__(self, *arguments: str | Path) -> None:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr

    async def apply_example(self) -> None:
        """As soon as the apiserver serves the kind, which follows the CRD by a moment."""

        async def applied() -> bool:
            return self.kubectl.run("apply", "-f", str(EXAMPLE)).returncode == 0

        await eventually(applied)

    async def colour_is_served(self) -> None:
        """A field that only the newer CRD has."""

        async def kept() -> bool:
            self.kubectl("patch", "om", "minilm", "--type=merge", "-p", RED)
            return self.kubectl("get", "om", "minilm", "-o", "jsonpath={.spec.source.colour}") == "red"

        await eventually(kept)


@pytest.fixture
def release(helm: str, without_crd: Path) -> Iterator[Release]:
    release = Release(helm, without_crd)
    yield release
    release("uninstall", "enginewright", "--ignore-not-found")


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The chart of a release whose CRD has one field more."""
    chart = shutil.copytree(CHART, tmp_path / "newer")
    text = (chart / TEMPLATE).read_text()
    source = "              source:\n"
    before, found, after = text.partition(source)
    assert found
    field = "                  colour: {type: string}\n                  uri:\n"
    (chart / TEMPLATE).write_text(before + source + after.replace("                  uri:\n", field, 1))
    return chart


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The chart as it was when Helm's own folder held the CRD."""
    chart = shutil.copytree(CHART, tmp_path / "older")
    (chart / TEMPLATE).unlink()
    (chart / "crds").mkdir()
    shutil.copy(FILE, chart / "crds")
    return chart


async def test_an_upgrade_brings_the_crd_along(release: Release, newer: Path) -> None:
    release("install", "enginewright", CHART, "--create-namespace")
    await release.apply_example()
    before = release.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}")
    patched = release.kubectl.run("patch", "om", "minilm", "--type=merge", "-p", RED)
    assert 'unknown field "spec.source.colour"' in patched.stderr
    release("upgrade", "enginewright", newer)
    await release.colour_is_served()
    assert release.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}") == before

    release("uninstall", "enginewright")
    assert release.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}") == before
    release("install", "enginewright", newer)
    assert release.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}") == before


async def test_a_release_from_before_adopts_its_crd(release: Release, older: Path, newer: Path) -> None:
    release("install", "enginewright", older, "--create-namespace")
    await release.apply_example()
    refused = release.run("upgrade", "enginewright", newer)
    assert refused.returncode != 0
    assert "invalid ownership metadata" in refused.stderr
    _adopt(release.kubectl.kubeconfig)
    release("upgrade", "enginewright", newer)
    await release.colour_is_served()


async def test_values_of_a_release_from_before_can_be_reused(release: Release, older: Path, newer: Path) -> None:
    """It had no ``crds``, no ``tracing`` and fewer settings; what it was told stays, and what it was told to
    leave out does not come back."""
    values = yaml.safe_load((older / "values.yaml").read_text())
    for name in ("crds", "tracing", "rbac"):
        del values[name]
    del values["config"]["activatorReplicas"]
    (older / "values.yaml").write_text(yaml.safe_dump(values))
    (older / "values.schema.json").unlink()
    told = "logLevel=DEBUG,resources.limits.memory=null"
    release("install", "enginewright", older, "--create-namespace", "--set", told)
    release("upgrade", "enginewright", newer, "--reuse-values", "--take-ownership")
    await release.apply_example()
    await release.colour_is_served()
    container = release.kubectl("get", "deployment", "enginewright", "-n", SYSTEM, "-o",
                                "jsonpath={.spec.template.spec.containers[0]}")
    assert "--log-level=DEBUG" in json.loads(container)["args"]
    assert "limits" not in json.loads(container)["resources"]


async def test_helm_can_take_it_over_by_itself(release: Release, older: Path, newer: Path) -> None:
    """As the demo does with a cluster that was there before."""
    release("install", "enginewright", older, "--create-namespace")
    await release.apply_example()
    release("upgrade", "--install", "--take-ownership", "enginewright", newer)
    await release.colour_is_served()


def _adopt(kubeconfig: Path) -> None:
    """With the very command of the page."""
    page = (ROOT / "docs" / "install.md").read_text()
    (command,) = re.findall(r"^```sh\n(kubectl patch crd .*?)^```", page, re.MULTILINE | re.DOTALL)
    path = f"{binaries.node_program('kubectl').parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(["bash", "-ec", command], env=environment, capture_output=True, text=True, timeout=240,
                          check=False)
    assert done.returncode == 0, done.stderr


def test_without_keep_an_uninstall_removes_it(release: Release) -> None:
    release("install", "enginewright", CHART, "--create-namespace", "--set", "crds.keep=false")
    release.kubectl("get", "crd", NAME)
    release("uninstall", "enginewright")
    release.kubectl("wait", "--for=delete", f"crd/{NAME}", "--timeout=120s")


def test_the_template_is_the_crd(objects: Objects) -> None:
    (found,) = objects({})["CustomResourceDefinition"]
    assert found["spec"] == yaml.load(FILE.read_text(), yaml.CSafeLoader)["spec"]
    assert found["metadata"]["name"] == NAME
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (free,) = objects({"crds": {"keep": False}})["CustomResourceDefinition"]
    assert "annotations" not in free["metadata"]
    assert "CustomResourceDefinition" not in objects({"crds": {"install": False}})

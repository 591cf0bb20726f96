"""From each release that there was to the chart as it is now. Their charts lie unpacked in releases/; until the first
is out, the chart is upgraded from itself."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from enginewright.core.spec.crd import NAME, crd
from support.apiserver import eventually
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "enginewright"
EXAMPLE = ROOT / "examples" / "cpu.yaml"
RELEASED = sorted((Path(__file__).parent / "releases").glob("*/"))
RELEASES = RELEASED or [CHART]
# The chart from itself has the same defaults, however values are taken over.
WAYS = ["--reuse-values", "--reset-then-reuse-values", "--values"] if RELEASED else ["--values"]
SYSTEM = "enginewright-system"
# What an administrator may have set: of a value, of a list, of a map of keys of their own, and a default taken away.
VALUES = {
    "global": {"imageRegistry": "registry.example.com/team"}, "logLevel": "DEBUG", "replicas": 2,
    "config": {"serverArgs": ["--log-verbose=1"], "jobEnv": {"HTTPS_PROXY": "http://proxy.example:3128"}},
    "resources": {"limits": {"memory": None}}, "podLabels": {"team": "inference"},
}


class Installed:
    """A release of the chart in a cluster without one."""

    def __init__(self, helm: str, kubeconfig: Path, folder: Path) -> None:
        self.kubectl = Kubectl(kubeconfig, SYSTEM)
        self._helm = [helm, f"--kubeconfig={kubeconfig}", "--namespace", SYSTEM]
        self.values = folder / "values.yaml"
        self.values.write_text(yaml.safe_dump(VALUES))

    def __call__(self, *arguments: str | Path) -> str:
        command = [*self._helm, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def apply_example(self) -> str:
        """Its UID. The apiserver serves a kind a moment after it has the definition."""

        async def applied() -> bool:
            return self.kubectl.run("apply", "-f", str(EXAMPLE)).returncode == 0

        await eventually(applied)
        return self.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}{.spec}")

    def container(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.kubectl("get", "deployment", "enginewright", "-o",
                                                           "jsonpath={.spec.template.spec.containers[0]}"))
        return found


@pytest.fixture
def installed(helm: str, without_crd: Path, tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(helm, without_crd, tmp_path)
    yield installed
    installed("uninstall", "enginewright", "--ignore-not-found")


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
async def test_an_upgrade_keeps_objects_values_and_what_pods_are_selected_by(
    installed: Installed, release: Path, how: str
) -> None:
    installed("install", "enginewright", release, "--create-namespace", "--values", installed.values)
    before = await installed.apply_example()
    deployment = json.loads(installed.kubectl("get", "deployment", "enginewright", "-o", "json"))

    installed("upgrade", "enginewright", CHART, how, *([installed.values] if how == "--values" else []))
    after = json.loads(installed.kubectl("get", "deployment", "enginewright", "-o", "json"))
    assert after["metadata"]["uid"] == deployment["metadata"]["uid"], "a selector that changes needs another Deployment"
    assert after["spec"]["selector"] == deployment["spec"]["selector"]
    assert installed.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}{.spec}") == before
    definition = json.loads(installed.kubectl("get", "crd", NAME, "-o", "json"))
    names = {version["name"] for version in definition["spec"]["versions"]}
    assert names == {version["name"] for version in crd()["spec"]["versions"]}

    assert after["spec"]["replicas"] == 2
    assert after["spec"]["template"]["metadata"]["labels"]["team"] == "inference"
    container = installed.container()
    assert str(container["image"]).startswith("registry.example.com/team/enginewright-operator:")
    assert "--log-level=DEBUG" in container["args"]  # type: ignore[operator]
    assert "limits" not in container["resources"]  # type: ignore[operator]
    settings = yaml.safe_load(json.loads(installed.kubectl("get", "configmap", "enginewright", "-o", "json"))
                              ["data"]["config.yaml"])
    assert settings["server_args"] == ["--log-verbose=1"]
    assert settings["job_env"] == {"HTTPS_PROXY": "http://proxy.example:3128"}


async def test_a_rollback_brings_the_release_back(installed: Installed) -> None:
    """Objects stay, though the definition is that of the older release again."""
    newest = RELEASES[-1]
    installed("install", "enginewright", newest, "--create-namespace", "--values", installed.values)
    before = await installed.apply_example()
    image = installed.container()["image"]
    installed("upgrade", "enginewright", CHART, "--values", installed.values, "--set", "images.operator.tag=next")
    assert installed.container()["image"] != image
    installed("rollback", "enginewright", "1")
    assert installed.container()["image"] == image
    assert installed.kubectl("get", "om", "minilm", "-o", "jsonpath={.metadata.uid}{.spec}") == before

"""What tools see that apply what is in git: no drift, and a health that can be waited for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.apiserver import Models, eventually, model
from support.argo import health
from support.fake_kubelet import FakeKubelet
from support.kubectl import Kubectl
from support.operators import Depths, embedded

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "cpu.yaml")
ENVIRONMENTS = ("staging", "production")
SIDES = ("--server-side=false", "--server-side")


def examples() -> dict[str, dict[str, Any]]:
    """Those of the folder, and those that pages show."""
    found = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / "examples").glob("*.yaml")}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)):
            if text.startswith("apiVersion: enginewright.io/"):
                found[f"{page.relative_to(ROOT)}:{number}"] = yaml.safe_load(text)
    return found


def test_the_apiserver_takes_every_example(control_plane: Path) -> None:
    assert Kubectl(control_plane).complaints(examples()) == {}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_apiserver_takes_the_models_of_the_example_repository(control_plane: Path, environment: str) -> None:
    kubectl = Kubectl(control_plane)
    (found,) = yaml.safe_load_all(kubectl("kustomize", str(ROOT / "examples" / "gitops" / "models" / environment)))
    assert found["metadata"].pop("namespace").startswith("models"), "which this cluster does not have"
    assert kubectl.admits(found) == ""


@pytest.mark.parametrize("side", SIDES)
def test_defaults_are_no_drift(control_plane: Path, namespace: str, side: str) -> None:
    kubectl = Kubectl(control_plane, namespace)
    # Several examples have one name.
    named = [{**found, "metadata": {**found["metadata"], "name": f"e{number}"}}
             for number, found in enumerate(examples().values())]
    together = {"apiVersion": "v1", "kind": "List", "items": named}
    kubectl("apply", side, "-f", "-", stdin=together)
    done = kubectl.run("diff", side, "-f", "-", stdin=together)
    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("side", SIDES)
async def test_an_applied_example_does_not_drift(
    control_plane: Path, operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet, side: str
) -> None:
    kubectl = Kubectl(control_plane, namespace)

    def drift() -> str:
        done = kubectl.run("diff", side, "-f", EXAMPLE)
        return done.stdout + done.stderr

    kubectl("apply", side, "-f", EXAMPLE)
    assert drift() == ""
    async with embedded(operator_kubeconfig, namespace, triton=Depths()):
        await models.wait("Ready", "True")
        assert drift() == ""
    kubectl("patch", "om", "minilm", "--type=merge", "-p", '{"spec": {"accuracy": {"maxLoss": 0.1}}}')
    assert "maxLoss" in drift(), "a change by hand is seen"


async def test_the_operator_owns_status_and_nothing_else(
    control_plane: Path, operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    Kubectl(control_plane, namespace)("apply", "-f", "-", stdin=model())
    written = (await models.get())["metadata"]
    async with embedded(operator_kubeconfig, namespace):
        await models.wait("Ready", "True")
    found = await models.get()
    ours = [entry for entry in found["metadata"]["managedFields"] if entry["manager"].startswith("enginewright")]
    assert ours
    assert {entry.get("subresource") for entry in ours} == {"status"}
    assert found["metadata"]["generation"] == written["generation"]
    for field in ("labels", "annotations", "finalizers"):
        assert found["metadata"].get(field) == written.get(field)


async def test_health_from_the_first_moment_on(
    operator_kubeconfig: Path, namespace: str, models: Models, kubelet: FakeKubelet
) -> None:
    """By the script for Argo CD, on what the apiserver and the operator really write."""
    await models.create(model())
    found = await models.get()
    assert found["status"] == {"observedGeneration": -1}, "else kstatus takes it for current"
    assert health(found)[0] == "Progressing"

    async def becomes(status: str, said: str) -> None:
        async def reached() -> bool:
            told = health(await models.get())
            assert told[0] == status, told
            return said in told[1]

        await eventually(reached)

    async def change(**spec: Any) -> None:
        await models.patch({"spec": spec})

    async with embedded(operator_kubeconfig, namespace):
        await becomes("Healthy", "Serving")
        await change(suspend=True)
        await becomes("Suspended", "spec.suspend is true")
        await change(suspend=False, source={"uri": "pvc://nowhere/minilm"})
        await becomes("Degraded", "VolumeMissing")
        await change(source={"uri": "pvc://models/minilm"})
        await becomes("Healthy", "Serving")

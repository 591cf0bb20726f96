"""The Kustomize base: what Helm makes of the chart, and what kubectl makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from enginewright.settings import read_settings
from generated import kustomize
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "gitops" / "platform" / "enginewright"


def built(kubeconfig: Path, directory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind and name."""
    text = Kubectl(kubeconfig)("kustomize", str(directory))
    return {(found["kind"], found["metadata"]["name"]): found for found in yaml.load_all(text, yaml.CSafeLoader)}


def copy(directory: Path) -> Path:
    """The example, where it may be changed, and the base beside it where the example looks for it."""
    for folder in (kustomize.BASE, EXAMPLE):
        shutil.copytree(folder, directory / folder.relative_to(ROOT))
    return directory / EXAMPLE.relative_to(ROOT)


def test_the_base_is_what_helm_makes_of_the_chart(helm: str) -> None:
    files = kustomize.render(Path(helm))
    assert {path: path.read_text() for path in kustomize.BASE.iterdir()} == files, "run: make generate"


def test_nothing_of_helm_is_left() -> None:
    for path in kustomize.BASE.iterdir():
        assert "helm" not in path.read_text().lower().replace("helm upgrade", ""), path.name


def test_the_apiserver_takes_all_of_it(control_plane: Path) -> None:
    kubectl = Kubectl(control_plane, kustomize.NAMESPACE)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kustomize.NAMESPACE}}
    # A dry run makes none for what comes after it.
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=namespace)
    for directory in (kustomize.BASE, EXAMPLE):
        done = kubectl.run("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(directory))
        assert done.returncode == 0, done.stderr
        assert "deployment.apps/enginewright serverside-applied (server dry run)" in done.stdout


def test_an_overlay_says_where_images_are_and_what_the_settings_are(control_plane: Path, tmp_path: Path) -> None:
    overlay = copy(tmp_path)
    found = built(control_plane, overlay)
    settings = read_settings(EXAMPLE / "config.yaml")
    (deployment,) = (item for (kind, _), item in found.items() if kind == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == settings.images.operator

    def config_map(objects: dict[tuple[str, str], Any]) -> str:
        (name,) = (name for kind, name in objects if kind == "ConfigMap")
        (workload,) = (item for (kind, _), item in objects.items() if kind == "Deployment")
        assert workload["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == name
        return name

    before = config_map(found)
    (overlay / "config.yaml").write_text((EXAMPLE / "config.yaml").read_text() + "drain_seconds: 7\n")
    assert config_map(built(control_plane, overlay)) != before, "a change of settings restarts the operator"


def test_another_namespace(control_plane: Path, tmp_path: Path) -> None:
    overlay = copy(tmp_path)
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text().replace("enginewright-system", "ml-platform"))
    found = built(control_plane, overlay)
    text = yaml.safe_dump_all(found.values())
    assert ("Namespace", "ml-platform") in found
    assert "enginewright-system" not in text

"""The chart as a package and as an OCI artefact, and what it makes as one file."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

from generated import kustomize, values
from krew.archive import pack
from release import oci

CONFIG = "application/vnd.cncf.helm.config.v1+json"
CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
# Where no registry is given.
PLACEHOLDER = "registry.example.com/enginewright"
INSTALL_HEAD = """\
# Enginewright {version}: all that the chart makes with its default values, in the namespace enginewright-system.
# Needs Kubernetes 1.30 or newer. kubectl apply --server-side -f install.yaml
# Images come from {registry}. For another registry:
#   sed 's#{registry}#REGISTRY#' install.yaml | kubectl apply --server-side -f -
"""
_REGISTRY = '  imageRegistry: ""\n'
DefaultsText = Callable[[str, str], str]


def with_registry(chart: Path, registry: str, defaults_text: DefaultsText) -> None:
    """Make ``registry`` the default of ``global.imageRegistry``, in all files that say so.

    Raises:
        ValueError: values.yaml has no such line, or the schema would refuse the registry.
    """
    path = chart / "values.yaml"
    text = path.read_text()
    if text.count(_REGISTRY) != 1:
        raise ValueError(f"{path} has no line {_REGISTRY.strip()}")
    if not re.fullmatch(r"[^\s/@\"]+(/[^\s/@\"]+)*", registry):
        raise ValueError(f"REGISTRY={registry} is no registry; write host[:port][/path], without a scheme")
    path.write_text(text.replace(_REGISTRY, f'  imageRegistry: "{registry}"\n'))
    schema = (chart / "values.schema.json").read_text()
    (chart / "files" / "defaults.yaml").write_text(defaults_text(path.read_text(), schema))
    (chart / "README.md").write_text(values.render(path.read_text(), (chart / "Chart.yaml").read_text(), schema))


def repository(chart: Path) -> str:
    """The address of the source's repository: Chart.yaml alone has it."""
    return str(yaml.safe_load((chart / "Chart.yaml").read_text())["sources"][0])


def package(chart: Path, output: Path) -> Path:
    """``helm package`` notes the time; this does not."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    path = output / f"{about['name']}-{about['version']}.tgz"
    path.write_bytes(pack(chart, prefix=Path(about["name"]), left_out=_ignored(chart)))
    return path


def _ignored(chart: Path) -> tuple[str, ...]:
    lines = (chart / ".helmignore").read_text().split()
    return (".helmignore", *lines)


def artefact(packed: Path, chart: Path, archive: Path, created: str) -> str:
    """Write the layout that ``helm push`` would make in a registry to ``archive``; returns the manifest's digest."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    config = oci.Blob.of(CONFIG, oci.dump(about))
    layer = oci.Blob.of(CONTENT, packed.read_bytes())
    described = oci.manifest(config, [layer], {
        "org.opencontainers.image.title": about["name"], "org.opencontainers.image.version": about["version"],
        "org.opencontainers.image.description": about["description"], "org.opencontainers.image.created": created,
    })
    oci.write(archive, described, [config, layer], [{"org.opencontainers.image.ref.name": about["version"]}], {})
    return described.digest


def listing(repository: Path, archive: Path) -> str:
    """Write what Artifact Hub reads of a repository of charts in a registry, beside the chart's own tags."""
    config = oci.Blob.of("application/vnd.cncf.artifacthub.config.v1+yaml", b"{}")
    layer = oci.Blob.of("application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml", repository.read_bytes())
    described = oci.manifest(config, [layer], {})
    oci.write(archive, described, [config, layer], [{"org.opencontainers.image.ref.name": "artifacthub.io"}], {})
    return described.digest


def install_yaml(helm: Path, chart: Path, version: str, registry: str) -> str:
    """Raises ``subprocess.CalledProcessError`` when Helm refuses the chart."""
    command = [str(helm), "template", kustomize.NAME, str(chart), "--namespace", kustomize.NAMESPACE, "--skip-tests",
               "--kube-version", kustomize.KUBERNETES, "--set", f"global.imageRegistry={registry}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    objects = [kustomize.neutral(found) for found in yaml.load_all(text, yaml.CSafeLoader) if found]
    return INSTALL_HEAD.format(version=version, registry=registry) + "---\n" + kustomize.to_yaml(
        [kustomize.namespace(), *objects])


def copy(chart: Path, directory: Path) -> Path:
    return Path(shutil.copytree(chart, directory / chart.name))


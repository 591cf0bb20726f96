"""What `make release` makes of the chart: the same bytes twice; Helm, a registry and an apiserver take them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from generated import kustomize
from release import make, oci, version
from release.__main__ import differences
from support import oci_registry
from support.artifacts import Artifact
from support.kubectl import Kubectl

CHART = make.ROOT / "charts" / "enginewright"
REGISTRY = "registry.example.com:5000/team"
PARTS = frozenset({"images", "plugin"})


def released(output: Path, registry: str = "") -> Path:
    return make.make(make.Options(output=output, registry=registry, dirty=True, without=PARTS))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("release") / "one")


@pytest.fixture(scope="module")
def of_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(tmp_path_factory.mktemp("release") / "two", REGISTRY)


def packed(folder: Path) -> Path:
    (chart,) = folder.glob("enginewright-*.tgz")
    return chart


def templated(helm: str, chart: Path, *options: str) -> str:
    command = [helm, "template", "demo", str(chart), "--namespace", "enginewright-system", "--kube-version", "1.34.4",
               *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


def test_the_same_twice_for_any_user(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    before = os.umask(0o077)
    try:
        assert differences(release, released(tmp_path / "again")) == []
    finally:
        os.umask(before)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert "provenance.json" in differences(release, released(tmp_path / "later"))


def test_every_file_is_in_the_sums_and_in_the_provenance(release: Path) -> None:
    lines = (line.split("  ") for line in (release / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    names = {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    assert sums == {name: hashlib.sha256((release / name).read_bytes()).hexdigest() for name in names}
    statement = json.loads((release / "provenance.json").read_text())
    assert {subject["name"] for subject in statement["subject"]} == names - {"provenance.json"}


def test_every_image_that_is_no_file_of_the_release_has_a_bill_of_its_locks(release: Path) -> None:
    names = {path.name.partition(f"-{version.current()}")[::2] for path in release.glob("*.locks.spdx.json")}
    cpu, cuda = ".locks.spdx.json", "-cuda.locks.spdx.json"
    both = {f"enginewright-{name}" for name in ("server", "builder", "builder-tensorflow", "server-vllm")}
    assert names == {(name, end) for name in both for end in (cpu, cuda)} | {("enginewright-operator", cpu)}
    bill = json.loads((release / f"enginewright-server-vllm-{version.current()}-cuda.locks.spdx.json").read_text())
    lock = "requirements/vllm-gpu.txt"
    digest = hashlib.sha256((make.ROOT / lock).read_bytes()).hexdigest()
    assert bill["packages"][0]["sourceInfo"] == f"Locks: {lock} sha256:{digest}"
    assert "vllm" in {package["name"] for package in bill["packages"]}
    materials = json.loads((release / "provenance.json").read_text())["predicate"]["buildDefinition"]
    assert {"uri": lock, "digest": {"sha256": digest}} in materials["resolvedDependencies"]


def test_the_package_is_the_chart(helm: str, release: Path) -> None:
    assert templated(helm, packed(release)) == templated(helm, CHART)
    done = subprocess.run([helm, "lint", "--strict", "--quiet", str(packed(release))], capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stdout
    with tarfile.open(packed(release)) as archive:
        names = archive.getnames()
    assert {"enginewright/Chart.yaml", "enginewright/values.schema.json", "enginewright/README.md"} <= set(names)
    assert "enginewright/.helmignore" not in names


def test_a_registry_becomes_the_default(helm: str, of_registry: Path) -> None:
    """And no value has to be set."""
    assert templated(helm, packed(of_registry)) == templated(helm, CHART, "--set", f"global.imageRegistry={REGISTRY}")
    with tarfile.open(packed(of_registry)) as archive:
        page = archive.extractfile("enginewright/README.md")
        assert page is not None
        assert f'| `"{REGISTRY}"` |' in page.read().decode()


def test_helm_pulls_the_artefact_as_it_was_packaged(helm: str, release: Path, tmp_path: Path) -> None:
    (archive,) = release.glob("enginewright-chart-*.oci.tar")
    with tarfile.open(archive) as tar:
        (entry,) = oci.read(tar, "index.json")["manifests"]

        def blob(digest: str) -> bytes:
            stream = tar.extractfile(oci.member(digest))
            assert stream is not None
            return stream.read()

        described = json.loads(blob(entry["digest"]))
        wanted = [described["config"]["digest"], *(layer["digest"] for layer in described["layers"])]
        artefact = Artifact(blob(entry["digest"]), {digest: blob(digest) for digest in wanted})
    folder = tmp_path / "registry"
    folder.mkdir()
    tag = entry["annotations"]["org.opencontainers.image.ref.name"]
    with oci_registry.running(folder) as registry:
        registry.push("charts/enginewright", tag, artefact)
        command = [helm, "pull", f"oci://{registry.address}/charts/enginewright", "--version", tag, "--plain-http",
                   "--username", oci_registry.USER, "--password", oci_registry.PASSWORD, "--destination", str(tmp_path)]
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    assert packed(tmp_path).read_bytes() == packed(release).read_bytes()


@pytest.mark.parametrize("wrong", ["https://registry.example.com", "registry.example.com/", 'a"b', "user@host"])
def test_what_is_no_registry_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match="is no registry"):
        released(tmp_path / "release", wrong)
    assert not (tmp_path / "release").exists()


def test_a_folder_of_other_files_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(ValueError, match="no release"):
        released(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_apiserver_takes_install_yaml(of_registry: Path, control_plane: Path) -> None:
    kubectl = Kubectl(control_plane, kustomize.NAMESPACE)
    objects = list(yaml.load_all((of_registry / "install.yaml").read_text(), yaml.CSafeLoader))
    (namespace,) = (found for found in objects if found["kind"] == "Namespace")
    # A dry run makes none for what comes after it.
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=namespace)
    done = kubectl.run("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f",
                       str(of_registry / "install.yaml"))
    assert done.returncode == 0, done.stderr
    (deployment,) = (found for found in objects if found["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{REGISTRY}/enginewright-operator:")
    assert "ValidatingAdmissionPolicy" in {found["kind"] for found in objects}
    assert not any("helm.sh" in json.dumps(found["metadata"]) for found in objects)


def test_artifact_hub_finds_who_owns_the_chart(release: Path) -> None:
    with tarfile.open(release / "artifacthub-repo.oci.tar") as tar:
        (entry,) = oci.read(tar, "index.json")["manifests"]
        described = oci.read(tar, oci.member(entry["digest"]))
        stream = tar.extractfile(oci.member(described["layers"][0]["digest"]))
        assert stream is not None
        text = stream.read().decode()
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "artifacthub.io"
    assert described["layers"][0]["mediaType"] == "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
    assert {"repositoryID", "owners"} <= set(yaml.safe_load(text))

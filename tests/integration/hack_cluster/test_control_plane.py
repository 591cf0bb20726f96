"""The control plane that tests use: real, quick, and gone afterwards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import bare, binaries, process

pytestmark = pytest.mark.integration

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control-plane")


@pytest.fixture(scope="module")
def kubectl(directory: Path) -> Iterator[Kubectl]:
    """kubectl of a control plane that runs for this module."""
    program = binaries.node_program("kubectl")
    with bare.running(directory) as kubeconfig:

        def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
            command = (str(program), f"--kubeconfig={kubeconfig}", *arguments)
            return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

        yield run


def test_it_reports_the_version_that_it_is_built_from(kubectl: Kubectl) -> None:
    assert json.loads(kubectl("version", "-o", "json").stdout)["serverVersion"]["gitVersion"] == "v1.34.4"


def test_dynamic_resource_allocation_is_served(kubectl: Kubectl) -> None:
    assert "resourceclaimtemplates" in kubectl("api-resources", "--api-group=resource.k8s.io").stdout


def test_what_is_not_allowed_is_forbidden(kubectl: Kubectl) -> None:
    refused = kubectl("get", "secrets", "--as=somebody", "--as-group=system:authenticated")
    assert "Forbidden" in refused.stderr


def test_pod_security_is_enforced(kubectl: Kubectl) -> None:
    namespace = {"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    made = kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "Namespace"} | namespace))
    assert made.returncode == 0, made.stderr
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "strict"}}
    kubectl("create", "-f", "-", text=json.dumps(account))
    refused = kubectl("run", "x", "--image=x", "--namespace=strict", "--privileged")
    assert 'violates PodSecurity "restricted:latest"' in refused.stderr


def test_a_second_one_runs_beside_the_first_and_leaves_no_process(kubectl: Kubectl, tmp_path: Path) -> None:
    with bare.running(tmp_path) as second:
        assert len(list(process.strays(tmp_path))) == 2
        made = subprocess.run(
            (binaries.node_program("kubectl"), f"--kubeconfig={second}", "create", "namespace", "second"), check=False
        )
        assert made.returncode == 0
        assert "NotFound" in kubectl("get", "namespace", "second").stderr
    assert list(process.strays(tmp_path)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_with_controllers_owners_children_are_collected(control_plane: Path) -> None:
    """That of most tests, which is made as the others here."""

    def kubectl(*arguments: str) -> str:
        command = (str(binaries.node_program("kubectl")), f"--kubeconfig={control_plane}", *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    kubectl("create", "deployment", "web", "--image=x")
    kubectl("wait", "deployment/web", "--for=condition=Progressing", "--timeout=120s")
    kubectl("wait", "replicaset", "--selector=app=web", "--for=create", "--timeout=120s")
    kubectl("delete", "deployment", "web", "--cascade=background")
    kubectl("wait", "replicaset", "--selector=app=web", "--for=delete", "--timeout=120s")


def test_two_starts_in_one_directory_are_one_control_plane(kubectl: Kubectl, directory: Path) -> None:
    before = {record.pid for record in process.strays(directory)}
    bare.up(directory)
    assert {record.pid for record in process.strays(directory)} == before
    assert kubectl("get", "--raw=/readyz").stdout == "ok"

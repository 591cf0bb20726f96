"""Fixtures: a real control plane (etcd, kube-apiserver, controllers) for the session, and a namespace for each test.

A ``conftest.py`` imports those that its tests use."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import pki
from cluster.bare import running
from cluster.paths import ClusterPaths
from cluster.pki import Certificate
from enginewright.clients.credentials import load_configuration
from enginewright.clients.kube import KubeClient
from enginewright.core.spec.crd import NAME
from support.apiserver import NAMESPACE, Models, grant, install_crd, manifest
from support.fake_kubelet import FakeKubelet
from support.kubectl import Kubectl

TESTS = Path(__file__).parents[2]
CHART_GOLDEN = TESTS / "integration" / "chart" / "golden" / "default.yaml"


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a control plane with the CRD in it."""
    with running(tmp_path_factory.mktemp("control-plane"), controllers=True, lasting=False) as kubeconfig:
        asyncio.run(install_crd(kubeconfig))
        yield kubeconfig


@pytest.fixture(scope="session")
def another_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of one without controllers, in which tests make and change the CRD by themselves."""
    with running(tmp_path_factory.mktemp("another-control-plane"), lasting=False) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def without_crd(another_control_plane: Path) -> Iterator[Path]:
    """The same, without the CRD before and after the test."""
    yield another_control_plane
    Kubectl(another_control_plane)("delete", "crd", NAME, "--ignore-not-found")


@pytest.fixture(scope="session")
def operator_kubeconfig(control_plane: Path) -> Path:
    return asyncio.run(operator_credentials(control_plane))


async def operator_credentials(kubeconfig: Path, *more: dict[str, Any]) -> Path:
    """A kubeconfig that may do what the chart grants, and what the rules ``more`` say; no more than that."""
    paths = ClusterPaths(kubeconfig.parent, kubeconfig.parent / "run", kubeconfig.parent / "logs")
    user = Certificate("operator", "enginewright-operator")
    pki.create(paths.pki, [user])
    await grant(kubeconfig, [*chart_rules(), *more], user.user)
    return pki.write_kubeconfig(paths.config / "operator.kubeconfig", paths.pki, user.name, _server(kubeconfig))


def _server(kubeconfig: Path) -> str:
    return str(json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


# The chart grants this in the operator's own namespace, by a Role.
LEADS: dict[str, Any] = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]}


def chart_rules() -> list[dict[str, Any]]:
    """Of the ClusterRole and of the Role for the Lease, as Helm makes them: the chart's own tests hold the golden file
    against Helm. Here the operator has both in all namespaces."""
    wanted = {("ClusterRole", "demo-enginewright"), ("Role", "demo-enginewright-leader")}
    rendered = [found for found in yaml.load_all(CHART_GOLDEN.read_text(), yaml.CSafeLoader) if found]
    roles = [found for found in rendered if (found["kind"], found["metadata"]["name"]) in wanted]
    assert len(roles) == len(wanted)
    return [rule for role in roles for rule in role["rules"]]


@pytest.fixture
async def kube(control_plane: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient(await load_configuration(str(control_plane))) as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> str:
    """It stays when the test ends: the control plane goes with the session."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    await kube._json("create", NAMESPACE, NAMESPACE.path(None), body=manifest("v1", "Namespace", name))
    return name


@pytest.fixture
async def models(kube: KubeClient, namespace: str) -> Models:
    """With the volumes that models name."""
    found = Models(kube, namespace)
    await found.claims()
    return found


@pytest.fixture
async def kubelet(kube: KubeClient, namespace: str, tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    async with FakeKubelet(kube, namespace, tmp_path).running() as running_kubelet:
        yield running_kubelet

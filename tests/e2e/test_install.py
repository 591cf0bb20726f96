"""The way of someone new with the chart alone, for a cluster or a team: install, serve, understand, upgrade, remove."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from demo import __main__ as demo
from demo.__main__ import ALL_IMAGES, SYSTEM_NAMESPACE
from demo.inference import forwarded
from demo.shell import CLUSTER, IMAGES, MODELS, ROOT, Kube, run
from support.apiserver import eventually
from support.archives import renamed
from support.bench import Bench, Stock
from support.browser import chart, show
from support.janitor import Janitor

CHART = ROOT / "charts" / "enginewright"
CRD = ROOT / "crds" / "enginewright.io_optimisedmodels.yaml"
OURS = "app.kubernetes.io/part-of=enginewright"
SERVERS = "app.kubernetes.io/component=server"
Furnished = Callable[[Stock], AbstractContextManager[Bench]]


@pytest.fixture(scope="module")
def no_operator(kube: Kube, images: dict[str, str], stock: Stock, janitor: Janitor) -> Iterator[None]:
    """The release of the other tests is away, CRD and all, while those of this file run."""
    janitor.finish()
    kube.uninstall("enginewright", SYSTEM_NAMESPACE)
    kube("delete", "crd", MODELS)
    yield
    demo.install(kube, images)


@pytest.fixture
def stocked_bench(furnished: Furnished, stock: Stock, no_operator: None) -> Iterator[Bench]:
    with furnished(stock) as bench:
        yield bench


@pytest.fixture
def for_the_cluster(kube: Kube, images: dict[str, str], no_operator: None) -> Iterator[None]:
    """The chart's release for all namespaces; gone after the test, even one that fails before it removes it."""
    kube.upgrade_install("enginewright", SYSTEM_NAMESPACE, CHART, values(images))
    yield
    kube.uninstall("enginewright", SYSTEM_NAMESPACE)


def values(images: dict[str, str]) -> dict[str, Any]:
    return {"images": {name: {"reference": images[name]} for name in ALL_IMAGES}}


def shell(kube: Kube, *command: str) -> str:
    """What it prints, where ``kubectl`` and ``helm`` are those of the cluster."""
    path = f"{Path(kube.kubectl).parent}:{Path(kube.helm).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": kube.kubeconfig,
                   "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'builders'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plugin(bench: Bench, *arguments: str) -> str:
    return shell(bench.kube, sys.executable, "-m", "enginewright.plugin", *arguments, "-n", bench.namespace)


def left(kube: Kube) -> list[str]:
    """What a cluster has of ours, of any kind, and Helm's records of releases."""
    kinds = kube("api-resources", "--verbs=list", "--output=name").split()
    ours = kube("get", ",".join(kinds), "--all-namespaces", "--selector", OURS, "--output=name", "--ignore-not-found")
    return [*ours.split(), *kube("get", "secret", "--all-namespaces", "--selector=owner=helm", "-o", "name").split()]


def serving(bench: Bench) -> dict[str, Any]:
    """Of each replica what a restart would change."""
    return {pod["metadata"]["uid"]: [status["restartCount"] for status in pod["status"]["containerStatuses"]]
            for pod in bench.get("pod", SERVERS)}


async def refused_calls(kube: Kube, namespace: str) -> list[str]:
    """Calls of the operator that the apiserver did not allow, of all that it made."""
    with forwarded(kube, namespace, "service/enginewright-metrics", 8080) as address:
        async with httpx.AsyncClient() as http:
            text = (await http.get(f"http://{address}/metrics")).text
    calls = re.findall(r"^enginewright_api_request_seconds_count\{.*\}", text, re.MULTILINE)
    assert any('code="20' in call for call in calls)
    return [call for call in calls if 'code="403"' in call]


async def test_install_serve_upgrade_remove(stocked_bench: Bench, for_the_cluster: None, images: dict[str, str],
                                            tmp_path: Path) -> None:
    bench, kube = stocked_bench, stocked_bench.kube
    assert "Phase:          Succeeded" in shell(kube, "helm", "test", "enginewright", "--namespace", SYSTEM_NAMESPACE)
    bench.apply("tiny", replicas=1)
    assert plugin(bench, "watch", "tiny").splitlines()[-1].endswith("tiny serves what its spec asks for.")
    assert "EngineBuilt CacheHit" in plugin(bench, "explain", "tiny")
    plugin(bench, "report", "tiny", "--file", str(tmp_path / "report.html"))
    shown = show(tmp_path / "report.html", tmp_path / "profile")
    assert shown.console == ()
    assert chart(shown, "pareto")
    assert "1 replica as of" in shown.dom

    with bench.loaded("tiny", least=50):
        before = serving(bench)
        assert await refused_calls(kube, SYSTEM_NAMESPACE) == []
        kube.upgrade_install("enginewright", SYSTEM_NAMESPACE, newer(tmp_path), {
            **values({**images, "operator": another_operator(images["operator"], tmp_path)}), "logLevel": "DEBUG"})
        # Only the new operator can do this: it has looked at the object.
        kube("scale", "om/tiny", "-n", bench.namespace, "--replicas=2")
        bench.wait("tiny", "jsonpath={.status.readyReplicas}=2")
    after = serving(bench)
    assert {uid: after.get(uid) for uid in before} == before
    assert len(after) == 2
    assert await refused_calls(kube, SYSTEM_NAMESPACE) == []

    assert left(kube) != []
    page = (ROOT / "docs" / "install.md").read_text()
    (remove,) = re.findall(r"^## Remove\n+```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shell(kube, "bash", "-ec", remove)

    async def nothing() -> bool:
        assert left(kube) == []
        return True

    await eventually(nothing, 600)
    assert {claim["metadata"]["name"] for claim in bench.get("pvc")} == {"models", "enginewright-store"}


async def test_for_one_team_without_cluster_rights(stocked_bench: Bench, images: dict[str, str]) -> None:
    bench, kube = stocked_bench, stocked_bench.kube
    kube("apply", "--server-side", "-f", str(CRD))
    team = {**values(images), "crds": {"install": False}, "watchNamespaces": [bench.namespace]}
    kube.upgrade_install("enginewright", bench.namespace, CHART, team)
    try:
        bench.apply("tiny", replicas=1)
        bench.wait("tiny", "condition=Ready")
        with forwarded(kube, bench.namespace, "service/tiny", 8000) as address:
            async with httpx.AsyncClient() as http:
                assert (await http.get(f"http://{address}/v2/models/tiny/ready")).status_code == 200
        kube("scale", "om/tiny", "-n", bench.namespace, "--replicas=2")
        bench.wait("tiny", "jsonpath={.status.readyReplicas}=2")
        assert await refused_calls(kube, bench.namespace) == []
        for kind in ("clusterrole", "clusterrolebinding"):
            assert kube("get", kind, "--selector", OURS, "--output=name") == ""
        kube("delete", "om", "--all", "-n", bench.namespace)
        kube("wait", "--for=delete", "deployment,service,job,pod", "-n", bench.namespace, "-l",
             "enginewright.io/model=tiny", "--timeout=240s")
    finally:
        kube.uninstall("enginewright", bench.namespace)


def newer(folder: Path) -> Path:
    """The chart of the next release."""
    chart: Path = shutil.copytree(CHART, folder / "newer")
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "0.99.0", "appVersion": "0.99.0"}))
    return chart


def another_operator(reference: str, folder: Path) -> str:
    """The operator's image by another name, as that of another release has."""
    if os.environ.get("CLUSTER") == "existing":
        return reference  # whose registry is not ours to fill
    archive = Path(yaml.safe_load(run(IMAGES, "archives"))["operator"])
    name = "localhost/enginewright-operator:newer"
    run(CLUSTER, "load-image", renamed(archive, reference, name, folder / "operator.tar"))
    return name

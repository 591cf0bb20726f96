"""What Helm makes of the chart: golden files, and a real apiserver that admits every object of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import binaries
from cluster.bare import running
from enginewright.core.config import Images, OperatorConfig
from enginewright.settings import read_settings

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "enginewright"
GOLDEN = Path(__file__).parent / "golden"
EVERYTHING = {
    "images": {"builder": {"digest": f"sha256:{'0' * 64}"}, "server": {"reference": "example.test/triton:26.04-py3"}},
    "imagePullSecrets": ["pull"],
    "watchNamespaces": ["team-a", "team-b"],
    "config": {"serverBackends": ["python", "onnxruntime", "tensorrt"], "serverArgs": ["--log-verbose=1"]},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "control", "operator": "Exists"}],
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"team": "inference"},
    "podLabels": {"team": "inference"},
    "env": [{"name": "NO_COLOR", "value": "1"}],
    "serviceAccount": {"annotations": {"note": "mine"}},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"}}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
}
CASES: dict[str, dict[str, Any]] = {"default": {}, "everything": EVERYTHING}


@pytest.fixture(scope="module")
def helm() -> str:
    return str(binaries.build(binaries.HELM))


def helm_template(helm: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = [helm, "template", "demo", str(CHART), "--namespace", "enginewright-system", "--kube-version", "1.34.4",
               "--values", "-"]
    return subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, timeout=60,
                          check=False)


def rendered(helm: str, values: dict[str, Any]) -> str:
    done = helm_template(helm, values)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_golden(helm: str, case: str) -> None:
    golden = GOLDEN / f"{case}.yaml"
    text = rendered(helm, CASES[case])
    if os.environ.get("ENGINEWRIGHT_UPDATE_GOLDENS"):
        golden.write_text(text)
    assert text == golden.read_text(), "run: make golden, and read the diff"


def test_the_operator_reads_its_settings(helm: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for values in CASES.values():
        file.write_text(objects(rendered(helm, values))["ConfigMap"][0]["data"]["config.yaml"])
        config = read_settings(file)
    assert config.images.builder.endswith("0" * 64)
    assert config.images.server == "example.test/triton:26.04-py3"
    assert config.server_backends == ("python", "onnxruntime", "tensorrt")
    file.write_text(objects(rendered(helm, {}))["ConfigMap"][0]["data"]["config.yaml"])
    images = {name: f"enginewright-{name}:0.1.0" for name in ("builder", "server", "operator")}
    assert read_settings(file) == OperatorConfig(images=Images(**images)), "defaults of chart and operator differ"


def test_lint_finds_nothing(helm: str) -> None:
    done = subprocess.run([helm, "lint", "--strict", "--quiet", str(CHART)], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_changed_setting_restarts_the_operator_and_a_changed_replica_of_it_does_not(helm: str) -> None:
    def checksum(values: dict[str, Any]) -> str:
        pod = objects(rendered(helm, values))["Deployment"][0]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum({"config": {"drainSeconds": 7}}) != checksum({})
    assert checksum({"resources": {"limits": {"memory": "1Gi"}}}) == checksum({})


@pytest.mark.parametrize(("values", "message"), [
    ({"config": {"drainSecond": 7}}, "drainSecond"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
    ({"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}}, "metrics.service.enabled"),
])
def test_bad_values_are_refused_by_name(helm: str, values: dict[str, Any], message: str) -> None:
    done = helm_template(helm, values)
    assert done.returncode != 0
    assert message in done.stderr


def objects(text: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for document in yaml.safe_load_all(text):
        if document:
            found.setdefault(document["kind"], []).append(document)
    return found


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    program = str(binaries.node_program("kubectl"))
    with running(tmp_path_factory.mktemp("control-plane")) as kubeconfig:
        yield [program, f"--kubeconfig={kubeconfig}"]


def test_the_apiserver_admits_all_of_it(helm: str, kubectl: list[str], tmp_path: Path) -> None:
    for namespace in ("enginewright-system", "team-a", "team-b"):
        subprocess.run([*kubectl, "create", "namespace", namespace], check=True, capture_output=True, timeout=60)
    enforced = [*kubectl, "label", "namespace", "enginewright-system", "pod-security.kubernetes.io/enforce=restricted"]
    subprocess.run(enforced, check=True, capture_output=True, timeout=60)
    # No controller makes it here, and a pod needs one.
    account = [*kubectl, "--namespace=enginewright-system", "create", "serviceaccount", "default"]
    subprocess.run(account, check=True, capture_output=True, timeout=60)
    subprocess.run([*kubectl, "apply", "--server-side", "-f", str(CHART / "crds")], check=True, timeout=60)
    for case, values in CASES.items():
        found = objects(rendered(helm, values))
        # No Prometheus operator here, so nobody knows this kind.
        found.pop("ServiceMonitor", None)
        for number, deployment in enumerate(found["Deployment"]):
            # Pod security judges pods; a Deployment that can make none is admitted with a warning.
            template = deployment["spec"]["template"]
            found.setdefault("Pod", []).append({
                "apiVersion": "v1", "kind": "Pod", "spec": {**template["spec"], "serviceAccountName": "default"},
                "metadata": {**template["metadata"], "name": f"probe-{number}", "namespace": "enginewright-system"}})
        file = tmp_path / f"{case}.yaml"
        file.write_text(yaml.safe_dump_all([item for items in found.values() for item in items]))
        apply = [*kubectl, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(file)]
        done = subprocess.run(apply, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr

"""What users add to the chart's objects, its notes, and the pod of `helm test`."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.bare import running
from enginewright.core.config import TrustedCA
from enginewright.settings import read_settings
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "enginewright"
SYSTEM = "enginewright-system"
Values = dict[str, Any]
Object = dict[str, Any]
Objects = Callable[[Values], dict[str, list[Object]]]
Template = Callable[[Values], subprocess.CompletedProcess[str]]


def pod_of(found: dict[str, list[Object]]) -> Object:
    (deployment,) = found["Deployment"]
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def test_arguments_volumes_and_variables_come_after_the_charts_own(objects: Objects) -> None:
    added: dict[str, list[Any]] = {
        "extraArgs": ["--log-level=DEBUG"], "extraEnv": [{"name": "NO_COLOR", "value": "1"}],
        "extraVolumes": [{"name": "cache", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
    plain, pod = pod_of(objects({})), pod_of(objects(added))
    (before,), (container,) = plain["containers"], pod["containers"]
    assert container["args"] == [*before["args"], "--log-level=DEBUG"]
    assert container["env"] == [*before["env"], *added["extraEnv"]]
    assert pod["volumes"] == [*plain["volumes"], *added["extraVolumes"]]
    assert container["volumeMounts"] == [*before["volumeMounts"], *added["extraVolumeMounts"]]


def test_the_name_that_extra_env_had_is_refused_with_its_new_one(template: Template) -> None:
    done = template({"env": [{"name": "NO_COLOR", "value": "1"}]})
    assert done.returncode != 0
    assert "env: is called extraEnv now" in done.stderr
    assert template({"env": []}).returncode == 0, "its default, which --reuse-values brings"


def test_a_companys_authorities_reach_the_operator_and_its_settings(objects: Objects, tmp_path: Path) -> None:
    found = objects({"trustedCA": {"configMap": "company-ca", "key": "bundle.pem"}})
    pod = pod_of(found)
    (container,) = pod["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["SSL_CERT_FILE"] == variables["REQUESTS_CA_BUNDLE"] == "/etc/trusted-ca/bundle.pem"
    assert pod["volumes"][-1] == {"name": "trusted-ca", "configMap": {
        "name": "company-ca", "items": [{"key": "bundle.pem", "path": "bundle.pem"}]}}
    assert container["volumeMounts"][-1]["mountPath"] == "/etc/trusted-ca"
    file = tmp_path / "config.yaml"
    file.write_text(found["ConfigMap"][0]["data"]["config.yaml"])
    assert read_settings(file).trusted_ca == TrustedCA(config_map="company-ca", key="bundle.pem")


def test_further_objects_may_be_text_and_may_hold_templates(objects: Objects) -> None:
    found = objects({"extraObjects": [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "{{ .Release.Name }}-one"}},
        "apiVersion: v1\nkind: Secret\nmetadata: {name: two}\nstringData: {chart: '{{ .Chart.Name }}'}\n"]})
    first, second = found["Secret"]
    assert first["metadata"]["name"] == "demo-one"
    assert second["stringData"] == {"chart": "enginewright"}
    assert "Secret" not in objects({})


def test_relabelings_come_after_the_charts_own(objects: Objects) -> None:
    mine, samples = [{"targetLabel": "cluster", "replacement": "eu"}], [{"action": "labeldrop", "regex": "pod"}]
    added = {"enabled": True, "relabelings": mine, "metricRelabelings": samples}
    found = objects({"metrics": {"podMonitor": added, "serviceMonitor": added}})
    own = objects({"metrics": {"podMonitor": {"enabled": True}}})["PodMonitor"][0]["spec"]["podMetricsEndpoints"]
    for before, endpoint in zip(own, found["PodMonitor"][0]["spec"]["podMetricsEndpoints"], strict=True):
        assert endpoint["relabelings"] == [*before["relabelings"], *mine]
        assert endpoint["metricRelabelings"] == samples
        assert "metricRelabelings" not in before
    (endpoint,) = found["ServiceMonitor"][0]["spec"]["endpoints"]
    assert (endpoint["relabelings"], endpoint["metricRelabelings"]) == (mine, samples)


def test_the_test_pod_is_not_taken_for_the_operators(objects: Objects) -> None:
    found = objects({"networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]}})
    (pod,), (service,), (policy,) = found["Pod"], found["Service"], found["NetworkPolicy"]
    labels = pod["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= labels.items()
    (_, test) = policy["spec"]["ingress"][0]["from"]
    assert test["podSelector"]["matchLabels"].items() <= labels.items()
    assert pod["spec"]["containers"][0]["args"][1] == f"http://{service['metadata']['name']}:8080/metrics"
    assert "Pod" not in objects({"metrics": {"service": {"enabled": False}}})


@contextmanager
def metrics(page: str) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


@pytest.mark.parametrize(("page", "code", "message"), [
    ("enginewright_leader 1.0\nenginewright_crd_missing_fields 0.0\n", 0, "leads"),
    ("enginewright_leader 1.0\nenginewright_crd_missing_fields 3.0\n", 1, "lacks 3 fields"),
])
def test_what_the_test_pod_says(objects: Objects, page: str, code: int, message: str) -> None:
    """Its program as the chart renders it."""
    program = objects({})["Pod"][0]["spec"]["containers"][0]["args"][0]
    with metrics(page) as address:
        done = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True, timeout=240,
                              check=False)
    assert (done.returncode, message in done.stdout + done.stderr) == (code, True), done.stderr


def definition(kind: str) -> Object:
    """One of the Prometheus operator's, in which anything goes."""
    plural, group = f"{kind.lower()}s", "monitoring.coreos.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}}


@pytest.fixture(scope="module")
def notes(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """What `helm install` would say in a real cluster, with options."""
    with running(tmp_path_factory.mktemp("cluster")) as kubeconfig:
        kubectl = Kubectl(kubeconfig, SYSTEM)
        for manifest in ({"kind": "Namespace", "metadata": {"name": SYSTEM}},
                         {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": SYSTEM}},
                         {"kind": "ConfigMap", "metadata": {"name": "there", "namespace": SYSTEM}},
                         {"kind": "Secret", "metadata": {"name": "there", "namespace": SYSTEM}}):
            kubectl("apply", "--server-side", "-f", "-", stdin={"apiVersion": "v1", **manifest})
        for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
            kubectl("apply", "--server-side", "-f", "-", stdin=definition(kind))
        kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")

        def said(*options: str) -> str:
            command = [helm, f"--kubeconfig={kubeconfig}", "--namespace", SYSTEM, "install", "demo", str(CHART),
                       "--dry-run=server", *options]
            done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.partition("\nNOTES:\n")[2]

        yield said


WATCHED = tuple(option for name in ("serviceMonitor", "podMonitor", "prometheusRule")
                for option in ("--set", f"metrics.{name}.enabled=true"))


def test_notes_say_what_is_next_and_nothing_is_missing(notes: Callable[..., str]) -> None:
    text = notes("--set", "global.imageRegistry=registry.example.com", "--set", "trustedCA.configMap=there",
                 "--set", "imagePullSecrets={there}", *WATCHED)
    assert f"helm test demo --namespace {SYSTEM}" in text
    assert "kubectl get om -A -w" in text
    assert "What is missing" not in text


@pytest.mark.parametrize(("options", "said"), [
    (WATCHED, "enginewright-operator:0.1.0, enginewright-builder:0.1.0, enginewright-server:0.1.0 name no registry"),
    (("--set", "trustedCA.configMap=absent"), f"ConfigMap absent of trustedCA is not in namespace {SYSTEM}"),
    (("--set", "imagePullSecrets={there,absent}"), "Secret absent of imagePullSecrets is not in namespace"),
    (("--set", "crds.install=false"), "definition is not part of this release"),
    ((), "--set metrics.podMonitor.enabled=true"),
])
def test_notes_say_what_is_missing(notes: Callable[..., str], options: tuple[str, ...], said: str) -> None:
    text = notes(*options)
    assert said in text.partition("What is missing:")[2]
    assert "{{" not in text


def test_chart_yaml_has_what_listings_show() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {"home", "icon", "sources", "keywords", "maintainers", "kubeVersion", "description"} <= set(about)
    annotations = about["annotations"]
    (definition,) = yaml.safe_load(annotations["artifacthub.io/crds"])
    crd = yaml.load((ROOT / "crds" / "enginewright.io_optimisedmodels.yaml").read_text(), yaml.CSafeLoader)
    assert (definition["kind"], definition["name"]) == (crd["spec"]["names"]["kind"], crd["metadata"]["name"])
    assert definition["version"] in {version["name"] for version in crd["spec"]["versions"]}

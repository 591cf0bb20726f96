"""What Helm makes of the chart: golden files, and a real apiserver that admits every object of it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core.config import DefaultStore, Images, OperatorConfig, Prices
from enginewright.settings import read_settings
from support.kubectl import Kubectl

CHART = Path(__file__).resolve().parents[3] / "charts" / "enginewright"
GOLDEN = Path(__file__).parent / "golden"
EVERYTHING = {
    "images": {"builder": {"digest": f"sha256:{'0' * 64}"}, "server": {"reference": "example.test/triton:26.04-py3"},
               "serverVllm": {"repository": "example.test/vllm", "tag": "1"}},
    "imagePullSecrets": ["pull"],
    "watchNamespaces": ["team-a", "team-b"],
    "replicas": 2,
    "config": {"serverArgs": ["--log-verbose=1"],
               "prices": {"currency": "EUR", "perHour": {"NVIDIA-H100-80GB-HBM3/1g.10gb": 0.6}},
               "jobLabels": {"cost-centre": "42"}, "jobAnnotations": {"sidecar.istio.io/inject": "false"},
               "defaultStore": {"uri": "s3://engines/all", "secretRef": {"name": "engine-bucket"}},
               "jobEnv": {"HTTPS_PROXY": "http://proxy.example:3128"}, "jobPriorityClassName": "batch"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "control", "operator": "Exists"}],
    "priorityClassName": "system-cluster-critical",
    "podAnnotations": {"team": "inference"},
    "podLabels": {"team": "inference"},
    "extraEnv": [{"name": "NO_COLOR", "value": "1"}],
    "extraArgs": ["--log-level=DEBUG"],
    "extraVolumes": [{"name": "cache", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "cache", "mountPath": "/cache"}],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"},
                      "data": {"release": "{{ .Release.Name }}"}},
                     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-text\"}\n"],
    "trustedCA": {"configMap": "company-ca"},
    "serviceAccount": {"annotations": {"note": "mine"}},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "monitoring"},
                                   "relabelings": [{"targetLabel": "cluster", "replacement": "eu-1"}],
                                   "metricRelabelings": [{"action": "labeldrop", "regex": "pod"}]},
                "podMonitor": {"enabled": True, "relabelings": [{"targetLabel": "cluster", "replacement": "eu-1"}],
                               "metricRelabelings": [{"action": "labeldrop", "regex": "instance"}]},
                "prometheusRule": {"enabled": True}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}], "models": {
        "enabled": True, "clientsFrom": [{"podSelector": {}}],
        "replicaEgress": [{"ports": [{"port": 443, "protocol": "TCP"}]}]}},
    "tracing": {"endpoint": "http://collector.observability:4318"},
}
CASES: dict[str, dict[str, Any]] = {"default": {}, "everything": EVERYTHING}
Values = dict[str, Any]
Objects = Callable[[Values], dict[str, list[dict[str, Any]]]]


@pytest.mark.parametrize("case", CASES)
def test_golden(render: Callable[[Values], str], case: str) -> None:
    golden = GOLDEN / f"{case}.yaml"
    text = without_crd(render(CASES[case]))
    if os.environ.get("ENGINEWRIGHT_UPDATE_GOLDENS"):
        golden.write_text(text)
    assert text == golden.read_text(), "run: make golden, and read the diff"


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
STRUCTURES = ("global", "images", "openshift", "crds", "rbac", "config", "serviceAccount", "metrics", "tracing",
              "networkPolicy", "trustedCA")


@pytest.mark.parametrize("without", [
    dict.fromkeys(DEFAULTS),
    {name: dict.fromkeys(DEFAULTS[name]) for name in STRUCTURES},
], ids=["sections", "values"])
def test_a_value_that_is_not_there_is_the_default(render: Callable[[Values], str], without: Values) -> None:
    """As of a release from before that value, with ``helm upgrade --reuse-values``; Helm takes null values away."""
    assert render(without) == render({})


@pytest.mark.parametrize("path", [
    ("resources", "limits", "memory"), ("resources", "limits"), ("config", "buildResources", "limits", "memory"),
    ("config", "buildResources", "limits"), ("config", "qualityResources", "limits", "cpu"),
    ("config", "spotLabels", "karpenter.sh/capacity-type"),
], ids=".".join)
def test_null_takes_a_default_away(objects: Objects, path: tuple[str, ...]) -> None:
    """Out of a map whose keys are the user's own; all else in it stays."""
    *above, name = path
    expected = copy.deepcopy({"resources": DEFAULTS["resources"], "config": DEFAULTS["config"]})
    values: Values = {}
    at, left = values, expected
    for step in above:
        at, left = at.setdefault(step, {}), left[step]
    at[name] = None
    del left[name]

    found = objects(values)
    (container,) = found["Deployment"][0]["spec"]["template"]["spec"]["containers"]
    settings = yaml.safe_load(found["ConfigMap"][0]["data"]["config.yaml"])
    assert container["resources"] == expected["resources"]
    config = expected["config"]
    assert settings["build_resources"] == config["buildResources"]
    assert settings["quality_resources"] == config["qualityResources"]
    assert settings["spot_labels"] == config["spotLabels"]


def test_a_default_does_not_win_over_false_or_nothing(objects: Objects) -> None:
    found = objects({"crds": {"install": False}, "rbac": {"nodes": False}, "config": {"serverArgs": []}})
    assert "CustomResourceDefinition" not in found
    settings = yaml.safe_load(found["ConfigMap"][0]["data"]["config.yaml"])
    assert (settings["observe_nodes"], settings["server_args"]) == (False, [])


def test_no_key_of_the_pod_is_there_twice(render: Callable[[Values], str], objects: Objects) -> None:
    """Kustomize refuses such a file, and so do Argo CD and Flux where it patches what Helm makes. The user's label
    counts, but for those that the Deployment selects by; a changed setting restarts the operator, whatever the
    annotations are."""
    values = {"podLabels": {"app.kubernetes.io/name": "mine", "app.kubernetes.io/part-of": "mine",
                            "team": "inference"},
              "podAnnotations": {"checksum/config": "mine", "team": "inference"}}
    (deployment,) = objects(values)["Deployment"]
    pod = deployment["spec"]["template"]["metadata"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= pod["labels"].items()
    assert (pod["labels"]["app.kubernetes.io/part-of"], pod["labels"]["team"]) == ("mine", "inference")
    assert (len(pod["annotations"]["checksum/config"]), pod["annotations"]["team"]) == (64, "inference")
    (text,) = (part for part in render(values).split("---\n") if "\nkind: Deployment\n" in part)
    for key in ("app.kubernetes.io/name: ", "app.kubernetes.io/part-of: ", "checksum/config: "):
        assert text.split("  template:")[1].split("    spec:")[0].count(key) == 1, key


def without_crd(text: str) -> str:
    """Which test_crd_upgrade.py holds against the models; here it would be most of the text."""
    return "---\n".join(part for part in text.split("---\n") if "\nkind: CustomResourceDefinition\n" not in part)


def test_the_operator_reads_its_settings(objects: Objects, tmp_path: Path) -> None:
    def settings(values: Values) -> OperatorConfig:
        file = tmp_path / "config.yaml"
        file.write_text(objects(values)["ConfigMap"][0]["data"]["config.yaml"])
        return read_settings(file)

    config = settings(EVERYTHING)
    assert config.images.builder.endswith("0" * 64)
    assert config.images.server == "example.test/triton:26.04-py3"
    assert config.server_args == ("--log-verbose=1",)
    assert config.default_store == DefaultStore(uri="s3://engines/all", secret="engine-bucket")
    assert config.prices == Prices(currency="EUR", per_hour={"NVIDIA-H100-80GB-HBM3/1g.10gb": 0.6})
    as_set = {"currency": "EUR", "perHour": {"cpu": "0.1"}}  # helm's --set makes numbers of whole ones alone
    assert settings({"config": {"prices": as_set}}).prices == Prices(currency="EUR", per_hour={"cpu": 0.1})
    images = {name: f"enginewright-{name}:0.1.0" for name in ("builder", "server", "operator")}
    assert config.images.server_vllm == "example.test/vllm:1"
    digest = f"sha256:{'1' * 64}"
    assert settings({"images": {"serverVllm": {"repository": "vllm", "digest": digest}}}).images.server_vllm == (
        f"vllm@{digest}")
    assert settings({}) == OperatorConfig(images=Images(**images)), "defaults of chart and operator differ"


def test_the_operator_reads_the_largest_number_of_each_setting(objects: Objects, tmp_path: Path) -> None:
    """As the schema allows it."""
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
    largest = {name: found["maximum"] for name, found in schema.items() if found.get("type") == "integer"}
    file = tmp_path / "config.yaml"
    file.write_text(objects({"config": largest})["ConfigMap"][0]["data"]["config.yaml"])
    config = read_settings(file)
    assert config.job_pending_limit == largest["jobPendingLimitSeconds"] >= 10**6
    assert set(largest.values()) <= {value for value in vars(config).values() if isinstance(value, int)}


@pytest.mark.parametrize(("values", "may"), [
    ({}, True), ({"rbac": {"nodes": False}}, False), ({"watchNamespaces": ["team-a"]}, False),
])
def test_nodes_are_listed_where_the_operator_may(objects: Objects, values: Values, may: bool) -> None:
    found = objects(values)
    rules = [rule for kind in ("Role", "ClusterRole") for role in found.get(kind, ()) for rule in role["rules"]]
    assert any("nodes" in rule["resources"] for rule in rules) == may
    assert yaml.safe_load(found["ConfigMap"][0]["data"]["config.yaml"])["observe_nodes"] is may


@pytest.mark.parametrize(("endpoint", "port"), [
    ("", None), ("http://collector:4318", 4318), ("https://traces.example.test/otlp", 443),
    ("http://collector", 80), ("http://[fd00::1]:4318/", 4318), ("http://[fd00::1]", 80),
])
def test_traces_find_their_way_out(objects: Objects, endpoint: str, port: int | None) -> None:
    found = objects({"tracing": {"endpoint": endpoint}, "networkPolicy": {"enabled": True}})
    (container,) = found["Deployment"][0]["spec"]["template"]["spec"]["containers"]
    tracing = [variable for variable in container["env"] if variable["name"].startswith("OTEL_")]
    assert tracing == ([{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": endpoint}] if port else [])
    (policy,) = found["NetworkPolicy"]
    anywhere = [rule["ports"] for rule in policy["spec"]["egress"] if "to" not in rule]
    assert ([{"port": port, "protocol": "TCP"}] in anywhere) == bool(port)
    assert len(anywhere) == (3 if port else 2)


def test_lint_finds_nothing(helm: str) -> None:
    command = [helm, "lint", "--strict", "--quiet", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_a_changed_setting_changes_the_checksum(objects: Objects) -> None:
    def checksum(values: Values) -> str:
        return str(objects(values)["Deployment"][0]["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum({"config": {"drainSeconds": 7}}) != checksum({})
    assert checksum({"resources": {"limits": {"memory": "1Gi"}}}) == checksum({})


@pytest.mark.parametrize(("values", "message"), [
    ({"config": {"drainSecond": 7}}, "drainSecond"),
    ({"config": {"prices": {"currency": "EUR", "perHour": {"cpu": -1}}}}, "/config/prices/perHour/cpu"),
    ({"config": {"prices": {"currency": "EUR", "perHour": {"cpu": "ten"}}}}, "/config/prices/perHour/cpu"),
    ({"config": {"defaultStore": {"uri": "engines"}}}, "/config/defaultStore/uri"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
    ({"config": {"serverArgs": ["--log-verbose=1", "--metrics-port=9002"]}}, "is 8002 on each replica"),
    ({"config": {"serverArgs": ["--allow-http=False"]}}, 'config.serverArgs[0]: got "--allow-http=False", is used by'),
    *(({"config": {"qualityResources": {"limits": {"memory": memory}}}},
       f'config.qualityResources.limits.memory: got "{memory}", is less than the monitor needs for any model; '
       'write at least 256Mi') for memory in ("128Mi", "0.2Gi", "0", "256M", "268435455")),
    ({"metrics": {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}}, "metrics.service.enabled"),
    ({"networkPolicy": {"models": {"enabled": True}}}, "networkPolicy.models.namespaces: is empty"),
    ({"admissionPolicy": {"enabled": "yes"}}, "admissionPolicy"),
])
def test_bad_values_are_refused_by_name(
    template: Callable[[Values], subprocess.CompletedProcess[str]], values: Values, message: str
) -> None:
    done = template(values)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(("name", "value"), [
    ("serverBackends", ["python", "tensorrt"]), ("serverPythonRuntimes", ["onnxruntime", "torch"]),
    ("batcherResources", {"limits": {"memory": "1Gi"}}),
])
def test_settings_that_are_gone_say_what_to_do(
    template: Callable[[Values], subprocess.CompletedProcess[str]], name: str, value: Any
) -> None:
    done = template({"config": {name: value}})
    assert done.returncode != 0
    assert f"config.{name}: is {json.dumps(value, separators=(',', ':'))}" in done.stderr
    assert f"--set config.{name}=null" in done.stderr


def test_defaults_of_settings_that_are_gone_come_with_reused_values(render: Callable[[Values], str]) -> None:
    resources = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}
    reused: Values = {"config": {"serverBackends": ["python"], "serverPythonRuntimes": ["onnxruntime"],
                                 "batcherResources": resources}}
    assert render(reused) == render({})


@pytest.mark.parametrize("limits", [
    {"memory": "256Mi"}, {"memory": "0.25Gi"}, {"memory": "268435456"}, {"memory": None}, None,
])
def test_a_monitor_that_can_start_is_taken(objects: Objects, tmp_path: Path, limits: dict[str, Any] | None) -> None:
    """Helm and the operator judge alike."""
    file = tmp_path / "config.yaml"
    found = objects({"config": {"qualityResources": {"limits": limits}}})
    file.write_text(found["ConfigMap"][0]["data"]["config.yaml"])
    read_settings(file)


def manifest(api_version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **more}}


def test_the_apiserver_admits_all_of_it(objects: Objects, control_plane: Path) -> None:
    kubectl = Kubectl(control_plane, "enginewright-system")
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl("apply", "-f", "-", stdin=manifest("v1", "Namespace", "enginewright-system", labels=restricted))
    for name in ("team-a", "team-b"):
        kubectl("apply", "-f", "-", stdin=manifest("v1", "Namespace", name))
    kubectl("apply", "-f", "-", stdin=manifest("v1", "ServiceAccount", "probe"))
    for values in (*CASES.values(), {"openshift": {"enabled": True}}):
        found = objects(values)
        # No Prometheus operator here, so nobody knows its kinds; the CRD is there already.
        for kind in ("CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "PrometheusRule"):
            found.pop(kind, None)
        # Pod security judges pods; a Deployment that can make none would be taken with a warning.
        for pod in found["Pod"]:
            pod["spec"]["serviceAccountName"] = "probe"
        for deployment in found["Deployment"]:
            pod = deployment["spec"]["template"]
            found["Pod"].append({**manifest("v1", "Pod", "probe", **pod["metadata"]),
                                 "spec": {**pod["spec"], "serviceAccountName": "probe"}})
        places: dict[str, dict[str, Any]] = {}
        for number, item in enumerate(item for items in found.values() for item in items):
            place = places.setdefault(item["metadata"].get("namespace", kubectl.namespace), {})
            place[f"{number}: {item['kind']} {item['metadata']['name']}"] = item
        assert [said for where, items in places.items() if (said := Kubectl(control_plane, where).complaints(items))] \
            == []


def test_pod_security_would_object(objects: Objects, control_plane: Path) -> None:
    kubectl = Kubectl(control_plane, "enginewright-restricted")
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl("apply", "-f", "-", stdin=manifest("v1", "Namespace", kubectl.namespace, labels=restricted))
    kubectl("apply", "-f", "-", stdin=manifest("v1", "ServiceAccount", "probe"))
    pod = objects({})["Deployment"][0]["spec"]["template"]
    del pod["spec"]["securityContext"]
    bad = {**manifest("v1", "Pod", "probe", **pod["metadata"]), "spec": {**pod["spec"], "serviceAccountName": "probe"}}
    assert "runAsNonRoot" in kubectl.admits(bad)

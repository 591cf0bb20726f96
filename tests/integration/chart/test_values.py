"""What single values of the chart do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from enginewright.core.config import OperatorConfig
from enginewright.settings import read_settings

Values = dict[str, Any]
Object = dict[str, Any]
Objects = Callable[[Values], dict[str, list[Object]]]
Settings = Callable[[Values], OperatorConfig]


@pytest.fixture
def settings(objects: Objects, tmp_path: Path) -> Settings:
    """What the operator reads of it."""

    def read(values: Values) -> OperatorConfig:
        file = tmp_path / "config.yaml"
        file.write_text(objects(values)["ConfigMap"][0]["data"]["config.yaml"])
        return read_settings(file)

    return read


def pod_of(objects: Objects, values: Values) -> Object:
    (deployment,) = objects(values)["Deployment"]
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def test_openshift_gives_users_and_groups(objects: Objects, settings: Settings) -> None:
    values = {"openshift": {"enabled": True}}
    assert pod_of(objects, values)["securityContext"] == {
        "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert settings(values).openshift
    assert not settings({}).openshift
    assert "openshift" not in yaml.safe_load(objects({})["ConfigMap"][0]["data"]["config.yaml"])


@pytest.mark.parametrize(("image", "expected"), [
    ({}, "mirror.example.test:5000/team/enginewright-builder:0.1.0"),
    ({"repository": "acme/builder", "tag": "7"}, "mirror.example.test:5000/team/acme/builder:7"),
    ({"repository": "ghcr.io/acme/builder", "tag": "7"}, "mirror.example.test:5000/team/acme/builder:7"),
    ({"repository": "localhost/builder", "tag": "7"}, "mirror.example.test:5000/team/builder:7"),
    ({"repository": "registry:5000/builder", "digest": f"sha256:{'0' * 64}"},
     f"mirror.example.test:5000/team/builder@sha256:{'0' * 64}"),
    ({"reference": "ghcr.io/acme/builder:7"}, "ghcr.io/acme/builder:7"),
])
@pytest.mark.parametrize("name", ["operator", "builder", "server"])
def test_one_registry_for_all_images(
    objects: Objects, settings: Settings, name: str, image: Values, expected: str
) -> None:
    values = {"global": {"imageRegistry": "mirror.example.test:5000/team", "storageClass": "a parent chart's"},
              "images": {name: image}}
    expected = expected.replace("enginewright-builder", f"enginewright-{name}")
    assert getattr(settings(values).images, name) == expected
    if name == "operator":
        assert pod_of(objects, values)["containers"][0]["image"] == expected


def test_pull_secrets_are_names_or_as_a_pod_has_them(objects: Objects, settings: Settings) -> None:
    values = {"imagePullSecrets": ["pull", {"name": "other"}, {"name": "pull"}]}
    assert pod_of(objects, values)["imagePullSecrets"] == [{"name": "pull"}, {"name": "other"}]
    assert settings(values).image_pull_secrets == ("pull", "other")


def test_the_longest_name_leaves_room_for_that_of_the_service(objects: Objects) -> None:
    """Of a Service it has at most 63 characters."""
    (service,) = objects({"fullnameOverride": f"{'n' * 54}-{'n' * 8}"})["Service"]
    assert service["metadata"]["name"] == f"{'n' * 54}-metrics"


MONITORED = {"serviceMonitor": {"enabled": True, "labels": {"team": "monitoring"}}, "podMonitor": {"enabled": True},
             "prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}


@pytest.mark.parametrize("more", [
    {"replicas": 2, "watchNamespaces": ["team-a"]}, {"metrics": MONITORED, "networkPolicy": {"enabled": True}},
], ids=["namespaces", "cluster"])
def test_common_labels_are_on_every_object(objects: Objects, more: Values) -> None:
    fixed = {"app.kubernetes.io/name": "enginewright", "app.kubernetes.io/instance": "demo",
             "app.kubernetes.io/component": "operator", "app.kubernetes.io/managed-by": "Helm"}
    asked = {**dict.fromkeys(fixed, "mine"), "app.kubernetes.io/part-of": "platform", "team": "inference"}
    found = objects({"commonLabels": asked, **more})
    for item in (item for items in found.values() for item in items):
        team = "monitoring" if item["kind"] == "ServiceMonitor" else "inference"
        expected = {**fixed, "app.kubernetes.io/part-of": "platform", "team": team}
        if item["kind"] == "Pod":  # of helm test, which is not the operator's
            expected["app.kubernetes.io/component"] = "test"
        assert expected.items() <= item["metadata"]["labels"].items(), item["kind"]
    (deployment,), (plain,) = found["Deployment"], objects(more)["Deployment"]
    assert deployment["spec"]["selector"] == plain["spec"]["selector"]
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "inference"


def test_no_label_of_a_monitor_is_there_twice(render: Callable[[Values], str]) -> None:
    text = render({"commonLabels": {"team": "inference"}, "metrics": MONITORED})
    (monitor,) = (part for part in text.split("---\n") if "\nkind: ServiceMonitor\n" in part)
    assert monitor.count("team: ") == 1


def test_spread_is_the_charts_or_the_users(objects: Objects) -> None:
    zones = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    others = {**zones, "topologyKey": "rack", "labelSelector": {"matchLabels": {"team": "inference"}}}
    found = objects({"replicas": 2, "topologySpreadConstraints": [others, zones]})
    selector = found["Deployment"][0]["spec"]["selector"]
    spread = found["Deployment"][0]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread == [others, {**zones, "labelSelector": selector}]
    (own,) = pod_of(objects, {"replicas": 2})["topologySpreadConstraints"]
    assert own["topologyKey"] == "kubernetes.io/hostname"
    assert "topologySpreadConstraints" not in pod_of(objects, {})
    assert pod_of(objects, {"topologySpreadConstraints": [zones]})["topologySpreadConstraints"] == spread[1:]

"""Replicas as KServe runs them. A real apiserver with KServe's definitions: tests/integration/test_kserve.py."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings

from enginewright.core import labels
from enginewright.plugin.kserve import OF_MONITOR, exported, manifests
from enginewright.plugin.wishes import WishError
from support.children import children_of
from support.kserve import pod_of
from support.specs import Raw, object_names, valid_specs

JSON = dict[str, Any]
BASE: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}}


def deployment_of(name: str = "minilm", **spec: Any) -> JSON:
    found: JSON = children_of(name, {**BASE, **spec}).all()["deployment"]
    return found


def template_of(**spec: Any) -> JSON:
    """``spec`` of a pod template."""
    return deployment_of(serving={"podTemplate": {"spec": spec}})


@given(object_names, valid_specs())
@settings(max_examples=settings().max_examples // 2)
def test_the_pod_is_the_replicas_own(name: str, raw: Raw) -> None:
    deployment = children_of(name, raw).all()["deployment"]
    before = copy.deepcopy(deployment)
    runtime, service = yaml.safe_load_all(exported(deployment))
    assert (runtime, service) == manifests(deployment)
    assert deployment == before
    pod, own = pod_of(runtime, service), copy.deepcopy(deployment["spec"]["template"]["spec"])
    own["containers"] = [one for one in own["containers"] if one["name"] != labels.CONTAINER_QUALITY]
    own["volumes"] = [one for one in own["volumes"] if one["name"] not in OF_MONITOR]
    own["containers"][0]["name"] = "kserve-container"
    (verify,) = (one for one in own["initContainers"] if one["name"] == labels.CONTAINER_VERIFY)
    verify["name"] = "storage-initializer"
    own["topologySpreadConstraints"][0]["labelSelector"] = {
        "matchLabels": {"serving.kserve.io/inferenceservice": f"{name}-kserve"}}
    assert pod == own


@given(object_names, valid_specs())
@settings(max_examples=settings().max_examples // 2)
def test_nothing_of_the_operator_selects_these_pods(name: str, raw: Raw) -> None:
    for manifest in manifests(children_of(name, raw).all()["deployment"]):
        assert "labels" not in manifest["metadata"]
        predictor = manifest["spec"].get("predictor", {})
        assert not [key for key in predictor.get("labels", {}) if key.startswith(("app.kubernetes.io/", labels.GROUP))]
        assert "ownerReferences" not in manifest["metadata"], "it outlives the model"


@pytest.mark.parametrize(("store", "wanted"), [
    ("pvc://engines", "pvc://engines/"), ("pvc://engines/of/us", "pvc://engines/of/us/"),
    ("s3://bucket/engines", "s3://bucket/engines/")])
def test_kserve_reads_where_the_engine_lies(store: str, wanted: str) -> None:
    """Without that, it takes the service for one of many models, and adds its agent to the pod."""
    deployment = deployment_of(store={"uri": store})
    fingerprint = deployment["metadata"]["annotations"][labels.FINGERPRINT_FULL]
    assert manifests(deployment)[1]["spec"]["predictor"]["model"]["storageUri"] == f"{wanted}{fingerprint}"


@pytest.mark.parametrize(("running", "wanted"), [(None, 1), (0, 1), (3, 3)])
def test_as_many_replicas_as_serve_and_one_at_least(running: int | None, wanted: int) -> None:
    deployment = deployment_of()
    deployment["spec"] |= {} if running is None else {"replicas": running}
    predictor = manifests(deployment)[1]["spec"]["predictor"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (wanted, wanted)


def test_what_the_user_adds_comes_along() -> None:
    deployment = deployment_of(serving={"podTemplate": {
        "metadata": {"labels": {"team": "search"}, "annotations": {"example.com/note": "hello"}},
        "spec": {"containers": [{"name": "shipper", "image": "example/shipper:1"}]}}})
    runtime, service = manifests(deployment)
    assert [one["name"] for one in runtime["spec"]["containers"]] == ["kserve-container", "shipper"]
    predictor = service["spec"]["predictor"]
    assert (predictor["labels"], predictor["annotations"]) == ({"team": "search"}, {"example.com/note": "hello"})


def test_the_monitor_stays_and_its_servers_arguments_go_along() -> None:
    deployment = deployment_of(quality={})
    assert "Container quality, which compares live answers for the operator, is left out." in exported(deployment)
    (server,) = manifests(deployment)[0]["spec"]["containers"]
    assert server["args"] == deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "left out" not in exported(deployment_of())
    captures = deployment_of(quality={"capture": {}}, store={"uri": "pvc://store"})
    assert "capture" not in str(manifests(captures)[0]), "the key is the monitor's alone"


def test_of_a_fleets_class_clients_say_the_fleets_name() -> None:
    deployment = deployment_of("minilm-cpu")
    deployment["metadata"]["labels"][labels.FLEET] = "minilm"
    assert "Service minilm-cpu-kserve-predictor, port 80 (HTTP) and 8001 (gRPC), as model minilm." in exported(
        deployment)


def test_a_brace_of_the_users_is_none_of_a_go_template() -> None:
    env = [{"name": "TZ", "value": "{{.Name}}{{{{"}]
    (server,) = manifests(template_of(containers=[{"name": "server", "env": env}]))[0]["spec"]["containers"]
    assert {"name": "TZ", "value": "{{`{{`}}.Name}}{{`{{`}}{{`{{`}}"} in server["env"]


@pytest.mark.parametrize("value", ["1e5", "12345e67", "0o17", "y", "N", "null", "1.5", "0x1f", "~", "on"])
def test_text_is_quoted_that_kubectl_would_take_for_something_else(value: str) -> None:
    deployment = deployment_of(serving={"podTemplate": {"metadata": {"annotations": {"note": value}}}})
    assert f"note: '{value}'\n" in exported(deployment)


def _unverified(deployment: JSON) -> None:
    del deployment["spec"]["template"]["spec"]["initContainers"]


def _of_an_earlier_release(deployment: JSON) -> None:
    (verify,) = deployment["spec"]["template"]["spec"]["initContainers"]
    del verify["args"][verify["args"].index(labels.VERIFY_FROM):]


def _named(name: str) -> Callable[[JSON], None]:
    def change(deployment: JSON) -> None:
        deployment["spec"]["template"]["spec"]["containers"].append({"name": name, "image": "a"})

    return change


def _spread(selector: JSON) -> Callable[[JSON], None]:
    def change(deployment: JSON) -> None:
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]

    return change


def _apart(kind: str) -> Callable[[JSON], None]:
    def change(deployment: JSON) -> None:
        expression = {"key": labels.MODEL, "operator": "In", "values": ["minilm"]}
        deployment["spec"]["template"]["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchExpressions": [expression]}}]}}

    return change


@pytest.mark.parametrize(("change", "said"), [
    (_unverified, "has no container verify"),
    (_of_an_earlier_release, "made by an earlier release"),
    (_named("storage-initializer"), "storage-initializer is a name"),
    (_named("kserve-container"), r"spec\.serving\.podTemplate\.spec\.containers: kserve-container is a name"),
    (_named("transformer-container"), "transformer-container is a name"),
    (_spread({"matchLabels": {labels.MODEL: "minilm"}}), r"Constraints selects pods by enginewright\.io/"),
    (_apart("podAffinity"), r"affinity selects pods by enginewright\.io/model"),
    (_apart("podAntiAffinity"), r"podTemplate\.metadata\.labels"),
])
def test_what_cannot_be_carried_is_refused(change: Callable[[JSON], None], said: str) -> None:
    deployment = deployment_of()
    change(deployment)
    with pytest.raises(WishError, match=said):
        exported(deployment)


def test_spreading_by_a_label_of_the_users_is_carried() -> None:
    deployment = deployment_of()
    _spread({"matchLabels": {"team": "search"}})(deployment)
    (found,) = manifests(deployment)[1]["spec"]["predictor"]["topologySpreadConstraints"]
    assert found["labelSelector"] == {"matchLabels": {"team": "search"}}


def test_the_text_says_what_is_lost() -> None:
    text = exported(deployment_of())
    head = text.partition("---\n")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    for lost in ("does not go back by itself", "does not scale by queue depth", "alarms", "config.collectEngines"):
        assert lost in head
    assert json.dumps(list(yaml.safe_load_all(text)))

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import Images, OperatorConfig, Resources
from enginewright.core.manifests import (
    build_job_name,
    claim_template,
    claim_template_name,
    deployment,
    read_record,
    record_name,
    resolve_job_name,
)
from enginewright.core.manifests.common import Owner, resources
from enginewright.core.manifests.record import record_mark
from enginewright.core.manifests.server import startup_seconds
from enginewright.core.observed import ObjectView
from enginewright.core.placement import Placement
from enginewright.core.spec import ResourcesSpec
from enginewright_builder.contract import ResolvedSource
from support.children import ENGINE, Children, children_of

JSON = dict[str, Any]
BASE: JSON = {"source": {"uri": "pvc://models/a"}, "placement": {"accelerator": "cpu"}}


def job_of(child: str = "build_job", **spec: Any) -> JSON:
    found: JSON = children_of("m", {**BASE, **spec}).all()[child]["spec"]
    return found


def deployment_of(**spec: Any) -> JSON:
    found: JSON = children_of("m", {**BASE, **spec}).all()["deployment"]["spec"]
    return found


def test_names_are_derived_from_content() -> None:
    assert resolve_job_name("m", "0123456789") == "m-resolve-01234567"
    assert build_job_name("m", "fedcba9876543210", 3) == "m-build-fedcba98-3"
    assert record_name("f" * 64, "pvc://a") != record_name("f" * 64, "pvc://b")
    assert record_name("f" * 64, "pvc://a").startswith(f"engine-{'f' * 32}-")


def test_owner_of_a_view() -> None:
    view = ObjectView(name="a", namespace="b", uid="c", generation=1, resource_version="1", deleting=False,
                      annotations={}, spec={}, status={})
    assert Owner.of(view) == Owner(name="a", namespace="b", uid="c")


@pytest.mark.parametrize("change", [
    {"serving": {"resources": {"limits": {"memory": "8Gi"}}}},
    {"serving": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}},
    {"placement": {"accelerator": "cpu", "nodeSelector": {"pool": "b"}}}, {"store": {"uri": "pvc://other"}},
    {"engine": {"precision": "fp32"}}, {"serving": {"image": "other:2"}},
])
def test_what_makes_a_new_revision(change: JSON) -> None:
    assert children_of("m", {**BASE, **change}).revision != children_of("m", BASE).revision


@pytest.mark.parametrize("change", [
    {"replicas": 4}, {"autoscaling": {"maxReplicas": 3}}, {"rollout": {"strategy": "Recreate", "maxSurge": 3}},
    {"engine": {"podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"priorityClassName": "p"}}}},
    {"suspend": True}, {"engine": {"buildBudgetSeconds": 99, "queueName": "q", "resources": {"limits": {"cpu": 4}}}},
])
def test_what_makes_no_new_revision(change: JSON) -> None:
    assert children_of("m", {**BASE, **change}).revision == children_of("m", BASE).revision


def test_an_upgrade_of_the_operator_makes_no_new_revision() -> None:
    upgraded = OperatorConfig(images=Images(operator="operator:2"), drain_seconds=9, server_resources=Resources())
    assert children_of("m", BASE, upgraded).revision == children_of("m", BASE).revision


@pytest.mark.parametrize(("load_seconds", "wanted"), [(0.0, 60), (4.5, 83), (100.0, 560)])
def test_the_start_up_probe_is_sized_to_the_engine(load_seconds: float, wanted: int) -> None:
    children = children_of("m", BASE)
    engine = replace(ENGINE, load_seconds=load_seconds)
    outcome = replace(children.outcome, engine=engine)
    assert startup_seconds(replace(children.record, outcome=outcome)) == wanted


def test_drain_outlasts_connections_of_clients_that_learn_late() -> None:
    config = OperatorConfig()
    (age,) = [float(arg.partition("=")[2]) for arg in config.server_args if "connection-age" in arg]
    spread = 1.1  # gRPC renews connections within a tenth of that age
    assert config.drain_seconds >= 6 + spread * age / 1000


def test_grace_outlasts_drain_and_exit() -> None:
    config = OperatorConfig(drain_seconds=7, exit_timeout=40)
    pod = children_of("m", BASE, config).all()["deployment"]["spec"]["template"]["spec"]
    server = pod["containers"][0]
    assert server["lifecycle"]["preStop"]["sleep"]["seconds"] == 7
    assert "--exit-timeout-secs=40" in server["args"]
    assert pod["terminationGracePeriodSeconds"] > 7 + 40


def test_an_activator_that_ends_outlasts_what_it_holds_and_then_passes_on() -> None:
    config = OperatorConfig(drain_seconds=7, exit_timeout=40)
    spec = {**BASE, "autoscaling": {"minReplicas": 0, "maxReplicas": 2, "holdSeconds": 20}}
    pod = children_of("m", spec, config).all()["activator"]["spec"]["template"]["spec"]
    assert "--exit-seconds=60" in pod["containers"][0]["args"]
    assert pod["terminationGracePeriodSeconds"] > 7 + 60


def test_a_surge_never_takes_capacity_away_and_recreate_takes_it_first() -> None:
    assert deployment_of(rollout={"maxSurge": 3})["strategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 3}}
    assert deployment_of(rollout={"strategy": "Recreate"})["strategy"] == {"type": "Recreate"}


def test_a_build_is_ended_by_its_budget_and_its_wait_is_not() -> None:
    config = OperatorConfig(build_deadline_margin=100, job_backoff_limit=1, job_pending_limit=5000)
    job = children_of("m", {**BASE, "engine": {"buildBudgetSeconds": 300}}, config).all()["build_job"]["spec"]
    assert job["template"]["spec"]["activeDeadlineSeconds"] == 400
    assert job["activeDeadlineSeconds"] == 2 * 400 + 5000


def test_a_queue_of_kueue_starts_the_build() -> None:
    children = children_of("m", {**BASE, "engine": {"queueName": "gpu"}}).all()
    assert children["build_job"]["spec"]["suspend"] is True
    assert children["build_job"]["metadata"]["labels"][labels.KUEUE_QUEUE] == "gpu"
    assert "suspend" not in children["resolve_job"]["spec"]
    assert "suspend" not in job_of()


def test_the_users_errors_end_a_job_and_disruptions_do_not_count() -> None:
    for child, containers in (("resolve_job", ["resolve"]), ("build_job", ["build", "prove"])):
        ignore, *fails = job_of(child)["podFailurePolicy"]["rules"]
        assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        assert {fail["action"] for fail in fails} == {"FailJob"}
        assert [fail["onExitCodes"] for fail in fails] == [
            {"containerName": container, "operator": "In", "values": [2]} for container in containers]


def test_a_resolve_step_needs_no_device_and_tries_the_store() -> None:
    gpu = {"placement": {"gpu": {"product": "NVIDIA-H200"}, "nodeSelector": {"pool": "gpu"}}}
    pod = job_of("resolve_job", **gpu)["template"]["spec"]
    assert not {"nodeSelector", "tolerations", "resourceClaims", "runtimeClassName"} & pod.keys()
    assert "store" in {volume["name"] for volume in pod["volumes"]}


def _limits(default: Resources, **asked: Any) -> JSON:
    return resources(default, ResourcesSpec.model_validate(asked))


def test_resources_are_filled_up_without_contradiction() -> None:
    default = Resources(requests={"cpu": "1", "memory": "4Gi"}, limits={"memory": "16Gi"})
    assert _limits(default) == {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "16Gi"}}
    assert _limits(default, limits={"memory": "1Gi"}) == {
        "requests": {"memory": "1Gi", "cpu": "1"}, "limits": {"memory": "1Gi"}}, "the default request is lowered"
    assert _limits(default, requests={"memory": "32Gi"}) == {
        "requests": {"memory": "32Gi", "cpu": "1"}}, "the default limit does not hold"
    assert _limits(default, requests={"cpu": 2})["requests"]["cpu"] == "2"


def test_nothing_is_claimed_without_dra() -> None:
    children = children_of("m", BASE)
    assert claim_template(children.owner, children.placement) is None
    with pytest.raises(ValueError, match="claims no device"):
        claim_template_name("m", Placement())


def test_another_claim_has_another_template() -> None:
    def claimed(profile: str) -> Children:
        placement = {"gpu": {"product": "NVIDIA-H200"}, "mig": {"profile": profile, "dra": {}}}
        return children_of("m", {**BASE, "placement": placement})

    small, large = claimed("1g.18gb"), claimed("3g.71gb")
    names = {claim_template_name("m", children.placement) for children in (small, large)}
    assert len(names) == 2
    pod = small.all()["deployment"]["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [
        {"name": "accelerator", "resourceClaimTemplateName": claim_template_name("m", small.placement)}]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "accelerator"}]


def test_a_users_node_affinity_and_ours_both_hold() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    zones: JSON = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
                                         for zone in ("a", "b")]}
    affinity = {"nodeAffinity": {required: zones}, "podAffinity": {}}
    children = children_of("m", {**BASE, "placement": {"accelerator": "gpu"},
                                 "serving": {"podTemplate": {"spec": {"affinity": affinity}}}})
    outcome = replace(children.outcome, engine=replace(ENGINE, device="NVIDIA H200"))
    manifest = deployment(children.owner, children.spec, replace(children.record, outcome=outcome),
                          children.placement, children.config)
    pod = manifest["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    assert [[expression["key"] for expression in term["matchExpressions"]] for term in terms] == [
        ["zone", "nvidia.com/gpu.product"]] * 2
    assert "podAffinity" in pod["affinity"]


@pytest.mark.parametrize("broken", [
    {}, {"data": {}}, {"data": {"outcome.json": "{"}}, {"metadata": None, "data": None},
    {"data": {"outcome.json": '{"kind":"build","ok":true,"version":99}'}},
    {"data": {"outcome.json": '{"kind":"build","ok":true,"fingerprint":"f"}'}},
])
def test_what_is_no_record(broken: JSON) -> None:
    assert read_record(broken) is None


def test_a_record_of_another_engine_or_store_is_no_record() -> None:
    record = children_of("m", BASE).all()["engine_record"]
    for key, value in ((labels.FINGERPRINT_FULL, "f" * 64), (labels.STORE_URI, "nfs://host/engines")):
        annotations = {**record["metadata"]["annotations"], key: value}
        assert read_record({**record, "metadata": {**record["metadata"], "annotations": annotations}}) is None


def test_the_hash_of_a_manifest_changes_with_it() -> None:
    def digest(**spec: Any) -> str:
        annotations = children_of("m", {**BASE, **spec}).all()["deployment"]["metadata"]["annotations"]
        return str(annotations[labels.MANIFEST_HASH])

    assert digest() == digest(replicas=2)
    assert digest() != digest(rollout={"maxSurge": 2})


@pytest.mark.parametrize(("quality", "source_mib", "expected"), [
    (False, None, {"sizeLimit": "1070Mi"}), (True, 100, {"sizeLimit": "1370Mi"}),
    (True, None, {}),  # an eviction is worse than no limit
])
def test_room_for_an_engine_that_is_fetched(quality: bool, source_mib: int | None, expected: JSON) -> None:
    spec = {**BASE, "store": {"uri": "s3://engines"}, **({"quality": {}} if quality else {})}
    children = children_of("m", spec)
    source = ResolvedSource(digest=f"sha256:{'0' * 64}", format="onnx", size_bytes=(source_mib or 0) << 20)
    record = replace(children.record, outcome=replace(children.outcome, source=source if source_mib else None))
    made = deployment(children.owner, children.spec, record, children.placement, children.config)
    volumes = {volume["name"]: volume for volume in made["spec"]["template"]["spec"]["volumes"]}
    assert volumes["engine"] == {"name": "engine", "emptyDir": expected}


def test_a_record_of_a_bucket_comes_back() -> None:
    spec = {**BASE, "store": {"uri": "gs://engines/a", "secretRef": {"name": "keys"}}}
    made = children_of("m", spec).all()["engine_record"]
    made["metadata"]["resourceVersion"] = "7"
    record, mark = read_record(made), record_mark(made)
    assert record is not None
    assert (record.store_uri, record.store_claim) == ("gs://engines/a", "")
    assert mark is not None
    assert (mark.claim_uid, mark.access) == ("", (("secret", "keys"),))
    made["metadata"]["annotations"][labels.STORE_ACCESS] = "[]"
    assert record_mark(made) == replace(mark, access=())

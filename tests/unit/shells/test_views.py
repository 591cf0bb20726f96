"""From the apiserver's JSON to the core's views."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from enginewright.core import labels
from enginewright.core.config import DefaultStore
from enginewright.core.observed import EndpointView, PodView
from enginewright.observe.pods import pod_view
from enginewright.observe.views import (
    claim_view,
    deployment_view,
    endpoint_views,
    job_view,
    object_view,
    service_view,
)

CREATED = "2026-11-21T10:00:00Z"
WHEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
META: dict[str, Any] = {"name": "x", "creationTimestamp": CREATED, "uid": "u-1"}


def pod(status: dict[str, Any], **metadata: Any) -> PodView:
    return pod_view({"metadata": {**META, **metadata}, "spec": {}, "status": status})


def container(name: str = "server", **state: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": state.pop("restarts", 0), **state}


def test_a_pod_that_the_apiserver_has_only_just_made() -> None:
    assert pod({}) == PodView(name="x", phase="Pending", created=WHEN)


def test_a_ready_replica() -> None:
    view = pod(
        {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}],
         "containerStatuses": [container(state={"running": {}})]},
        labels={labels.REVISION: "abc"}, deletionTimestamp=CREATED,
    )
    assert (view.ready, view.ip, view.revision, view.deleting) == (True, "10.0.0.7", "abc", True)


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([{"reason": "ContainerCreating"}], "ContainerCreating"),
        ([{"reason": "PodInitializing"}, {"reason": "ImagePullBackOff"}], "ImagePullBackOff"),
        ([{"reason": "ErrImagePull"}, {"reason": "CrashLoopBackOff"}], "ErrImagePull"),
    ],
)
def test_the_first_wait_that_tells_something(containers: list[dict[str, str]], expected: str) -> None:
    statuses = [container(f"c{i}", state={"waiting": waiting}) for i, waiting in enumerate(containers)]
    assert pod({"containerStatuses": statuses}).waiting_reason == expected


@pytest.mark.parametrize(
    ("status", "container_name", "reason", "code"),
    [
        ({"containerStatuses": [container(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})]},
         "server", "OOMKilled", 137),
        ({"containerStatuses": [container(state={"waiting": {"reason": "CrashLoopBackOff"}}, restarts=3,
                                          lastState={"terminated": {"exitCode": 1, "reason": "Error"}})]},
         "server", "Error", 1),
        ({"initContainerStatuses": [container("verify", state={"terminated": {"exitCode": 2, "reason": "Error"}})],
          "containerStatuses": [container(state={"waiting": {"reason": "PodInitializing"}})]}, "verify", "Error", 2),
        ({"initContainerStatuses": [container("verify", state={"terminated": {"exitCode": 0, "reason": "Completed"}})],
          "containerStatuses": [container(state={"running": {}})]}, "", "Completed", 0),
        ({"containerStatuses": [container(state={"running": {}})]}, "", "", None),
    ],
    ids=["out of memory", "crash loop tells its last end", "init container", "clean end is no failure", "running"],
)
def test_termination(status: dict[str, Any], container_name: str, reason: str, code: int | None) -> None:
    view = pod(status)
    assert (view.failed_container, view.terminated_reason, view.exit_code) == (container_name, reason, code)


def test_restarts_of_the_main_container_are_told_from_others() -> None:
    view = pod_view({
        "metadata": META,
        "spec": {"containers": [{"name": "server"}, {"name": "proxy"}]},
        "status": {"initContainerStatuses": [container("verify", restarts=1)],
                   "containerStatuses": [container("proxy", restarts=2), container("server", restarts=4)]},
    })
    assert (view.restarts, view.side_restarts) == (7, 3)


def test_what_an_init_container_failed_of_before_it_ended_well_is_over() -> None:
    """A bucket that did not answer for a while is no reason why the server crashes later, nor a crash of its own."""
    verify = container("verify", restarts=4, state={"terminated": {"exitCode": 0, "reason": "Completed"}},
                       lastState={"terminated": {"exitCode": 3, "message": "StoreUnreachable"}})
    loading = pod({"initContainerStatuses": [verify], "containerStatuses": [container(state={"running": {}})]})
    assert (loading.failed_container, loading.exit_code, loading.restarts) == ("", 0, 0)
    crashing = pod({"initContainerStatuses": [verify], "containerStatuses": [container(
        restarts=3, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": {"exitCode": 1}})]})
    assert (crashing.failed_container, crashing.exit_code, crashing.restarts) == ("server", 1, 3)


def test_an_unschedulable_pod_says_what_the_scheduler_said() -> None:
    said = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb."
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    assert pod({"conditions": [scheduled]}).unschedulable == said
    assert pod({"conditions": [{**scheduled, "reason": "SchedulingGated"}]}).unschedulable == ""


def test_an_unschedulable_pod_says_what_it_asks_of_a_node() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    spec = {"nodeSelector": {"disk": "ssd"},
            "containers": [{"resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}}},
                           {"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}]}
    view = pod_view({"metadata": META, "spec": spec, "status": {"conditions": [scheduled]}})
    assert (view.requests, view.node_selector) == ({"cpu": "750m", "memory": "3Gi"}, {"disk": "ssd"})
    running = pod_view({"metadata": META, "spec": spec, "status": {}})
    assert (running.requests, running.node_selector) == ({}, {})


def test_an_evicted_pod() -> None:
    view = pod({"phase": "Failed", "reason": "Evicted", "message": "node was low on memory",
                "conditions": [{"type": "DisruptionTarget", "status": "True"}]})
    assert (view.reason, view.message, view.disrupted) == ("Evicted", "node was low on memory", True)


def job(*conditions: dict[str, str], **status: Any) -> dict[str, Any]:
    annotations = {labels.FINGERPRINT_FULL: "f" * 64}
    return {"metadata": {**META, "annotations": annotations, "labels": {labels.FINGERPRINT: "f" * 32}},
            "spec": {"suspend": False, "template": {"spec": {"activeDeadlineSeconds": 2700}}},
            "status": {**status, "conditions": list(conditions)}}


def test_jobs() -> None:
    active = job_view(job(active=1), [], None, None)
    assert (active.active, active.succeeded, active.failed, active.created) == (1, False, False, WHEN)
    assert (active.fingerprint, active.deadline) == ("f" * 64, 2700)
    assert job_view(job({"type": "Complete", "status": "True"}), [], None, None).succeeded
    failed = job_view(
        job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}), [], None, None
    )
    assert (failed.failed, failed.failure_reason, failed.failure_message) == (True, "DeadlineExceeded", "too long")


def test_a_job_that_is_about_to_fail_already_tells_why() -> None:
    view = job_view(job({"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"}), [], None, None)
    assert (view.failed, view.failure_reason) == (False, "PodFailurePolicy")


def test_deployments() -> None:
    raw = {
        "metadata": {**META, "generation": 3, "labels": {labels.REVISION: "abc"},
                     "annotations": {labels.FINGERPRINT_FULL: "f" * 64}},
        "spec": {"replicas": 0},
        "status": {"observedGeneration": 2, "replicas": 4, "readyReplicas": 3, "availableReplicas": 2,
                   "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]},
    }
    view = deployment_view(raw)
    assert (view.spec_replicas, view.replicas, view.ready, view.available) == (0, 4, 3, 2)
    assert (view.uid, view.revision, view.fingerprint) == ("u-1", "abc", "f" * 64)
    assert (view.generation, view.observed_generation, view.progress_deadline_exceeded) == (3, 2, True)
    bare = deployment_view({"metadata": META})
    assert (view.refused, bare.refused, bare.pods_manager) == ("", "", "")
    assert bare.spec_replicas == 1


@pytest.mark.parametrize(("status", "refused"), [("True", "exceeded quota: pods"), ("False", "")])
def test_a_deployment_whose_pods_are_refused(status: str, refused: str) -> None:
    told = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": "exceeded quota: pods"}
    assert deployment_view({"metadata": META, "status": {"conditions": [told]}}).refused == refused


@pytest.mark.parametrize(("manager", "template", "told"), [
    ("kubectl-set", {"f:spec": {"f:containers": {}, "f:nodeName": {}}}, "kubectl-set"),
    ("kubectl-rollout", {"f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/restartedAt": {}}}}, ""),
    (labels.FIELD_MANAGER, {"f:spec": {"f:containers": {}, "f:nodeName": {}}}, ""),
])
def test_who_else_has_written_the_pods_of_a_deployment(manager: str, template: dict[str, Any], told: str) -> None:
    ours = {"manager": labels.FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:volumes": {}}}}}}
    other = {"manager": manager, "fieldsV1": {"f:spec": {"f:template": template}}, "time": "2026-11-23T17:52:57Z"}
    assert deployment_view({"metadata": {**META, "managedFields": [ours, other]}}).pods_manager == told


@pytest.mark.parametrize(("container", "digest"), [
    ({"name": labels.CONTAINER_VERIFY, "args": ["/e", "--manifest-digest", "sha256:d", "--more"]}, "sha256:d"),
    ({"name": labels.CONTAINER_VERIFY, "args": ["/e", "--manifest-digest"]}, ""),
    ({"name": labels.CONTAINER_VERIFY}, ""),
    ({"name": "other", "args": ["--manifest-digest", "sha256:d"]}, ""),
])
def test_which_engine_replicas_look_for(container: dict[str, Any], digest: str) -> None:
    spec = {"initContainers": [{"name": "first"}, container]}
    assert pod_view({"metadata": META, "spec": spec, "status": {}}).manifest_digest == digest
    assert deployment_view({"metadata": META, "spec": {"template": {"spec": spec}}}).manifest_digest == digest


def test_services() -> None:
    assert service_view({"metadata": META, "spec": {"selector": {labels.REVISION: "abc"}}}).revision == "abc"
    assert service_view({"metadata": META, "spec": {}}).revision == ""


def endpoint(pod: str, **conditions: bool) -> dict[str, Any]:
    return {"targetRef": {"name": pod}, "conditions": conditions}


def test_endpoints_of_both_families_count_once_and_an_absent_condition_means_ready() -> None:
    slices = [
        {"endpoints": [endpoint("b", ready=True), endpoint("a", ready=False, terminating=True)]},
        {"endpoints": [endpoint("b", ready=False), endpoint("gone")]},
        {},
    ]
    assert endpoint_views(slices, {"a": "r1", "b": "r2"}) == (
        EndpointView(pod="a", revision="r1", ready=False, terminating=True),
        EndpointView(pod="b", revision="r2", ready=True),
        EndpointView(pod="gone", revision="", ready=True),
    )


def test_claims() -> None:
    assert claim_view({"metadata": META, "status": {"phase": "Bound"}}).phase == "Bound"
    assert claim_view({"metadata": META}).phase == "Pending"


def test_the_object_itself() -> None:
    metadata = {**META, "namespace": "ns", "generation": 4, "resourceVersion": "77", "annotations": {"a": "b"}}
    view = object_view({"metadata": metadata, "spec": {"suspend": True}}, DefaultStore())
    assert (view.name, view.namespace, view.uid, view.generation) == ("x", "ns", "u-1", 4)
    assert (view.resource_version, view.deleting) == ("77", False)
    assert (view.annotations, view.spec, view.status) == ({"a": "b"}, {"suspend": True}, {})


def owner(manager: str, replicas: bool = True, time: str = CREATED) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:replicas": {}} if replicas else {"f:template": {}}
    return {"manager": manager, "time": time, "fieldsV1": {"f:spec": fields}}


@pytest.mark.parametrize(
    ("managed", "manager"),
    [
        ([], ""),
        ([owner("enginewright", replicas=False)], ""),
        ([owner("enginewright", replicas=False), owner(labels.FIELD_MANAGER_SCALER)], ""),
        ([owner("kubectl"), owner("enginewright", replicas=False)], "kubectl"),
        ([owner("kubectl", time="2026-11-21T10:00:01Z"), owner("kube-controller-manager")], "kubectl"),
        ([owner("kubectl"), owner(labels.FIELD_MANAGER_SCALER)], ""),  # they agree
        ([{"manager": "kubelet", "fieldsV1": {"f:status": {}}}, {"manager": "odd"}], ""),
    ],
)
def test_who_wrote_replicas_last(managed: list[dict[str, Any]], manager: str) -> None:
    view = deployment_view({"metadata": {**META, "managedFields": managed}, "spec": {"replicas": 3}})
    assert (view.replicas_manager, view.spec_replicas) == (manager, 3)


SHA = "sha256:" + "4c" * 32


@pytest.mark.parametrize(("known", "digest"), [
    (f"registry.example/server@{SHA}", SHA), (SHA, SHA), (f"docker-pullable://server@{SHA}", SHA),
    ("", ""), ("server:1", ""), ("sha256:4c", ""),
])
@pytest.mark.parametrize(("group", "name"), [("containers", "server"), ("initContainers", "server-image")])
def test_which_server_image_a_pod_has(group: str, name: str, known: str, digest: str) -> None:
    """Of a replica, and of a pod that asks; images of other containers are no matter."""
    statuses = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}[group]
    other = {"name": "verify", "image": "operator:1", "imageID": "sha256:" + "0" * 64}
    pod = {"metadata": META, "spec": {group: [other, {"name": name, "image": "server:1"}]},
           "status": {statuses: [other, {"name": name, "image": "?", "imageID": known}]}}
    view = pod_view(pod)
    assert (view.server_image, view.server_digest) == ("server:1", digest)

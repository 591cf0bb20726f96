"""From the apiserver's JSON to the core's views, one function a kind. No calls, no clock."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from enginewright.core import labels
from enginewright.core.config import DefaultStore
from enginewright.core.default_store import with_store
from enginewright.core.internal import has_old_places, joined
from enginewright.core.manifests import caches, monitored, proven_digest
from enginewright.core.observed import (
    ClaimView,
    DeploymentView,
    EndpointView,
    JobView,
    LeaseView,
    ObjectView,
    PodView,
    ServiceView,
    Version,
)
from enginewright.observe.fields import (
    Raw,
    annotations_of,
    condition,
    created,
    entries,
    has_condition,
    is_deleting,
    labels_of,
    moment,
    name_of,
    owner_model,
    section,
    uid_of,
)
from enginewright_builder.contract import Outcome, Progress


def object_view(raw: Raw, store: DefaultStore) -> ObjectView:
    """``store`` stands in its spec where that names none."""
    metadata = section(raw, "metadata")
    return ObjectView(
        name=name_of(raw),
        namespace=str(metadata.get("namespace") or ""),
        uid=uid_of(raw),
        generation=int(metadata.get("generation") or 0),
        resource_version=str(metadata.get("resourceVersion") or ""),
        deleting=is_deleting(raw),
        annotations=annotations_of(raw),
        spec=with_store(section(raw, "spec"), store),
        status=joined(raw.get("status")),
        old_status=has_old_places(raw.get("status")),
        fleet=owner_model(raw),
    )


def job_view(raw: Raw, pods: Iterable[PodView], outcome: Outcome | None, progress: Progress | None) -> JobView:
    failed = condition(raw, "Failed")
    # FailureTarget precedes Failed by as long as the Job's last pods take to end: the verdict is the same.
    verdict = failed if failed.get("status") == "True" else condition(raw, "FailureTarget")
    return JobView(
        name=name_of(raw),
        uid=uid_of(raw),
        created=created(raw),
        step=labels_of(raw).get(labels.STEP, ""),
        suspended=bool(section(raw, "spec").get("suspend")),
        active=int(section(raw, "status").get("active") or 0),
        succeeded=has_condition(raw, "Complete"),
        failed=failed.get("status") == "True",
        failure_reason=str(verdict.get("reason") or ""),
        failure_message=str(verdict.get("message") or ""),
        deadline=int(section(raw, "spec", "template", "spec").get("activeDeadlineSeconds") or 0),
        fingerprint=_fingerprint(raw),
        store_uri=annotations_of(raw).get(labels.STORE_URI, ""),
        manifest_hash=annotations_of(raw).get(labels.MANIFEST_HASH, ""),
        retry=annotations_of(raw).get(labels.RETRY, ""),
        deleting=is_deleting(raw),
        pods=tuple(pods),
        outcome=outcome,
        progress=progress,
        completed=_indexes(section(raw, "status").get("completedIndexes")),
        failed_shards=len(_indexes(section(raw, "status").get("failedIndexes"))),
        started=str(section(raw, "status").get("startTime") or ""),
        ended=str(section(raw, "status").get("completionTime") or ""),
    )


def _indexes(text: object) -> tuple[int, ...]:
    """Of an Indexed Job: ``0,2-4``."""
    found: list[int] = []
    for part in str(text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found += range(int(first), int(last or first) + 1)
    return tuple(found)


def deployment_view(raw: Raw) -> DeploymentView:
    status = section(raw, "status")
    replicas = section(raw, "spec").get("replicas")
    failure = condition(raw, "ReplicaFailure")
    return DeploymentView(
        name=name_of(raw),
        uid=uid_of(raw),
        revision=labels_of(raw).get(labels.REVISION, ""),
        fingerprint=_fingerprint(raw),
        generation=int(section(raw, "metadata").get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        created=created(raw),
        spec_replicas=1 if replicas is None else int(replicas),
        replicas_manager=_replicas_manager(raw),
        replicas=int(status.get("replicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        available=int(status.get("availableReplicas") or 0),
        deleting=is_deleting(raw),
        progress_deadline_exceeded=condition(raw, "Progressing").get("reason") == "ProgressDeadlineExceeded",
        version=version_of(raw).version,
        manifest_digest=proven_digest(section(raw, "spec", "template", "spec")),
        pods_manager=_pods_manager(raw),
        monitored=monitored(section(raw, "spec", "template", "spec")),
        caches=caches(section(raw, "spec", "template", "spec")),
        refused=str(failure.get("message") or "") if failure.get("status") == "True" else "",
    )


def _replicas_manager(raw: Raw) -> str:
    """The last writer of ``spec.replicas``, empty when that was the operator or none. The manager that changes a value
    owns it alone; several own it only while they agree."""
    owners = [entry for entry in entries(raw, "metadata", "managedFields")
              if "f:replicas" in section(entry, "fieldsV1", "f:spec")]
    if any(entry.get("manager") in (labels.FIELD_MANAGER, labels.FIELD_MANAGER_SCALER) for entry in owners):
        return ""
    newest = max(owners, key=lambda entry: str(entry.get("time") or ""), default={})
    return str(newest.get("manager") or "")


def _pods_manager(raw: Raw) -> str:
    """Which other managers have written what pods are made of. Labels and annotations of theirs, such as the one that
    ``kubectl rollout restart`` leaves, are no matter."""
    others = (entry for entry in entries(raw, "metadata", "managedFields")
              if entry.get("manager") != labels.FIELD_MANAGER
              and section(entry, "fieldsV1", "f:spec", "f:template").get("f:spec"))
    return str(max(others, key=lambda entry: str(entry.get("time") or ""), default={}).get("manager") or "")


def service_view(raw: Raw) -> ServiceView:
    selector = section(raw, "spec", "selector")
    return ServiceView(
        name=name_of(raw),
        revision=str(selector.get(labels.REVISION) or ""),
        activator=selector.get(labels.COMPONENT) == labels.COMPONENT_ACTIVATOR,
    )


def version_of(raw: Raw) -> Version:
    return Version(uid_of(raw), str(section(raw, "metadata").get("resourceVersion") or ""))


def endpoint_views(
    slices: Iterable[Raw], revisions: Mapping[str, str], activators: Container[str] = ()
) -> tuple[EndpointView, ...]:
    """``revisions`` maps pods to their revision; ``activators`` names those that hold requests. A pod has one address
    in each family; it counts once, and as ready when any of its addresses is."""
    found: dict[str, EndpointView] = {}
    for piece in slices:
        for endpoint in entries(piece, "endpoints"):
            pod = str(section(endpoint, "targetRef").get("name") or "")
            state = section(endpoint, "conditions")
            before = found.get(pod)
            found[pod] = EndpointView(
                pod=pod,
                revision=revisions.get(pod, ""),
                # Absent means true, says the API.
                ready=state.get("ready") is not False or (before is not None and before.ready),
                terminating=bool(state.get("terminating")),
                activator=pod in activators,
            )
    return tuple(found[pod] for pod in sorted(found))


def claim_view(raw: Raw) -> ClaimView:
    return ClaimView(name=name_of(raw), uid=uid_of(raw), phase=str(section(raw, "status").get("phase") or "Pending"))


def lease_view(raw: Raw, building: bool = False) -> LeaseView:
    spec = section(raw, "spec")
    return LeaseView(
        name=name_of(raw),
        holder=str(spec.get("holderIdentity") or ""),
        renewed=moment(spec.get("renewTime")) or created(raw),
        seconds=float(spec.get("leaseDurationSeconds") or 0),
        version=str(section(raw, "metadata").get("resourceVersion") or ""),
        building=building,
    )


def _fingerprint(raw: Raw) -> str:
    """All 64 digits from the annotation; a label holds only the first."""
    return str(annotations_of(raw).get(labels.FINGERPRINT_FULL) or labels_of(raw).get(labels.FINGERPRINT) or "")

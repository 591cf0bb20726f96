"""From a Pod's JSON to what decisions need of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from enginewright.core import labels
from enginewright.core.asks import in_quantities, requests_of
from enginewright.core.manifests import proven_digest
from enginewright.core.observed import PodView
from enginewright.observe.fields import (
    Raw,
    condition,
    created,
    entries,
    has_condition,
    is_deleting,
    labels_of,
    name_of,
    section,
)

# Waiting is no news while an earlier container runs or the image is on its way.
_ORDINARY_WAITS = frozenset({"", "PodInitializing", "ContainerCreating"})
# Of an image, behind the name of a repository or after a runtime's own words.
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}$")
JOB_NAME = "batch.kubernetes.io/job-name"


def pod_view(raw: Raw) -> PodView:
    statuses = _statuses(raw)
    server = _server_end(raw)
    waiting = _waiting(statuses)
    failed, terminated = _termination(statuses)
    scheduled = condition(raw, "PodScheduled")
    image, digest = _server(raw)
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodView(
        name=name_of(raw),
        phase=phase_of(raw),
        server_end=str(server.get("reason") or ""),
        server_log=str(server.get("message") or ""),
        server_restarts=_restarts(one for one in entries(raw, "status", "initContainerStatuses")
                                  if one.get("name") in _sidecars(raw)),
        revision=labels_of(raw).get(labels.REVISION, ""),
        ready=has_condition(raw, "Ready"),
        deleting=is_deleting(raw),
        ip=str(section(raw, "status").get("podIP") or ""),
        node=str(section(raw, "spec").get("nodeName") or ""),
        created=created(raw),
        reason=str(section(raw, "status").get("reason") or ""),
        message=str(section(raw, "status").get("message") or ""),
        waiting_reason=str(waiting.get("reason") or ""),
        waiting_message=str(waiting.get("message") or ""),
        failed_container=failed,
        terminated_reason=str(terminated.get("reason") or ""),
        terminated_message=str(terminated.get("message") or ""),
        exit_code=terminated.get("exitCode"),
        restarts=_restarts(statuses),
        side_restarts=_restarts(status for status in statuses if status.get("name") != main_container(raw)),
        unschedulable=str(scheduled.get("message") or "Unschedulable") if unschedulable else "",
        requests=in_quantities(requests_of(raw)) if unschedulable else {},
        node_selector=section(raw, "spec", "nodeSelector") if unschedulable else {},
        disrupted=has_condition(raw, "DisruptionTarget"),
        manifest_digest=proven_digest(section(raw, "spec")),
        server_image=image,
        server_digest=digest,
    )


def _server(raw: Raw) -> tuple[str, str]:
    """The image of the server, or of the container that asks what it has, and its digest."""
    names = (labels.CONTAINER_SERVER, labels.CONTAINER_EXAMINE)
    containers = [*entries(raw, "spec", "initContainers"), *entries(raw, "spec", "containers")]
    statuses = [*entries(raw, "status", "initContainerStatuses"), *entries(raw, "status", "containerStatuses")]
    image = next((str(one.get("image") or "") for one in containers if one.get("name") in names), "")
    known = next((str(one.get("imageID") or "") for one in statuses if one.get("name") in names), "")
    found = _DIGEST.search(known)
    return image, found[0] if found else ""


@dataclass(frozen=True)
class LastWords:
    """What a container said when it ended, and whether it ended ``well``: with exit code 0."""

    message: str
    well: bool


def last_words(raw: Raw) -> Iterable[LastWords]:
    """Of the pod's containers that report, the newest attempt of the main container first. One of an image that the
    user chose says nothing that counts."""
    for status in [*entries(raw, "status", "containerStatuses"), *entries(raw, "status", "initContainerStatuses")]:
        if status.get("name") not in labels.REPORTING:
            continue
        for state in ("state", "lastState"):
            terminated = section(status, state, "terminated")
            if message := terminated.get("message"):
                yield LastWords(str(message), _well(terminated))


def has_ended(raw: Raw) -> bool:
    """Whether it is over, for good or bad. A pod of a Job whose containers have all ended well is, a second before the
    kubelet has taken its network away and says so; one with sidecars holds its devices until then."""
    if section(raw, "status").get("phase") in ("Succeeded", "Failed"):
        return True
    statuses = entries(raw, "status", "containerStatuses")
    return bool(statuses) and not _sidecars(raw) and all(_ended_well(one) for one in statuses)


def container_ended_well(raw: Raw, container: str) -> bool:
    """False for one that runs, and for one of which the kubelet never said how it ended."""
    statuses = [*entries(raw, "status", "containerStatuses"), *entries(raw, "status", "initContainerStatuses")]
    return any(status.get("name") == container and _ended_well(status) for status in statuses)


def still_running(pod: PodView) -> PodView:
    """``pod``, which has ended, as it was before."""
    return replace(pod, phase="Running", reason="", message="", failed_container="", terminated_reason="",
                   terminated_message="", exit_code=None, disrupted=False)


def out_of_reach(raw: Raw) -> bool:
    """Whether the pod goes, or its node does not answer. Of such a node Kubernetes says that its pods are not ready,
    and leaves their containers as the kubelet saw them last: ready."""
    lost = is_deleting(raw) or section(raw, "status").get("reason") == "NodeLost"
    sidecars = _sidecars(raw)
    containers = [*entries(raw, "status", "containerStatuses"),
                  *(one for one in entries(raw, "status", "initContainerStatuses") if one.get("name") in sidecars)]
    running = section(raw, "status").get("phase") == "Running" and bool(containers)
    return lost or (running and condition(raw, "Ready").get("status") == "False"
                    and all(status.get("ready") for status in containers))


def main_container(raw: Raw) -> str:
    containers = entries(raw, "spec", "containers")
    return str(containers[0].get("name")) if containers else ""


def phase_of(raw: Raw) -> str:
    """Kubernetes calls a pod pending until its init containers have ended. One that builds in such a container runs,
    unless it waits for something that needs telling."""
    phase = str(section(raw, "status").get("phase") or "Pending")
    if phase != "Pending":
        return phase
    for status in entries(raw, "status", "initContainerStatuses"):
        begun = section(status, "state", "running") or section(status, "state", "terminated")
        if status.get("name") == labels.CONTAINER_BUILD and begun:
            wait = str(_waiting(_statuses(raw)).get("reason") or "")
            return "Running" if wait in _ORDINARY_WAITS else phase
    return phase


def working_container(raw: Raw) -> str:
    """Whose log tells how far the pod is: that of the init container that builds, until it has ended well."""
    for status in entries(raw, "status", "initContainerStatuses"):
        if status.get("name") == labels.CONTAINER_BUILD and (
                section(status, "state", "running") or section(status, "state", "terminated").get("exitCode")):
            return labels.CONTAINER_BUILD
    return main_container(raw)


def _sidecars(raw: Raw) -> frozenset[str]:
    """Init containers that run as long as the pod does."""
    return frozenset(str(one.get("name")) for one in entries(raw, "spec", "initContainers")
                     if one.get("restartPolicy") == "Always")


def _statuses(raw: Raw) -> list[Raw]:
    """Of all containers in their order, without the ends of sidecars: the kubelet ends them with the pod."""
    sidecars = _sidecars(raw)
    before = [_without_ends(one) if one.get("name") in sidecars else _without_history(one)
              for one in entries(raw, "status", "initContainerStatuses")]
    return [*before, *entries(raw, "status", "containerStatuses")]


def _server_end(raw: Raw) -> Raw:
    """How the sidecar that serves ended by itself: it was started again since, or the kernel killed it."""
    for status in entries(raw, "status", "initContainerStatuses"):
        if status.get("name") not in _sidecars(raw):
            continue
        ends = [section(status, state, "terminated") for state in ("lastState", "state")]
        own = [end for end in ends if end and (end is ends[0] or end.get("reason") == "OOMKilled")]
        if own:
            return own[0]
    return {}


def _ended_well(status: Raw) -> bool:
    return _well(section(status, "state", "terminated"))


def _well(terminated: Raw) -> bool:
    return terminated.get("exitCode") == 0


def _without_ends(status: Raw) -> Raw:
    state = {"state": {"waiting": wait}} if (wait := section(status, "state", "waiting")) else {}
    return {"name": status.get("name"), **state}


def _without_history(status: Raw) -> Raw:
    """An init container that has ended well is over: how often it failed before says nothing of what comes after it,
    and the kubelet goes on telling it."""
    over = _ended_well(status)
    return {key: value for key, value in status.items() if key in ("name", "state")} if over else status


def _restarts(statuses: Iterable[Raw]) -> int:
    return sum(int(status.get("restartCount") or 0) for status in statuses)


def _waiting(statuses: Iterable[Raw]) -> Raw:
    """The first container's wait that tells something, else the first one at all."""
    waits = [wait for status in statuses if (wait := section(status, "state", "waiting"))]
    return next((wait for wait in waits if wait.get("reason", "") not in _ORDINARY_WAITS), waits[0] if waits else {})


def _termination(statuses: Iterable[Raw]) -> tuple[str, Raw]:
    """The name of the container that failed, and how; without a failure, an empty name and the last clean end."""
    clean: Raw = {}
    for status in statuses:
        for state in ("state", "lastState"):
            terminated = section(status, state, "terminated")
            if terminated.get("exitCode"):
                return str(status.get("name") or ""), terminated
            clean = terminated or clean
    return "", clean

"""What a Job and its pods tell: why nothing happens yet, why it ended without a result, when another one follows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

from enginewright.core import labels
from enginewright.core.backoff import Backoff
from enginewright.core.commands import kubectl
from enginewright.core.conditions import parse_timestamp, timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.no_node import Asked, no_node
from enginewright.core.observed import JobView, PodView
from enginewright.core.placement import Placement
from enginewright.core.plan import Action, Delete
from enginewright.core.reasons import Reason
from enginewright.core.request import build_key
from enginewright_builder.contract import EXIT_USER, ErrorReport

BACKOFF = Backoff(first=10.0, most=300.0)
# Failures that the same attempt may well repeat (out of memory, a bug) end after so many in a row.
LIMIT = 3
IMAGE_REASONS = frozenset({
    "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
    "ImageInspectError",
})
PENDING_REASONS = frozenset({
    Reason.UNSCHEDULABLE, Reason.IMAGE_PULL_FAILED, Reason.POD_CANNOT_START, Reason.BUILD_PENDING,
    Reason.WAITING_FOR_QUEUE,
})
# So long after a Job its pod is there, unless admission refuses it.
PODLESS_SECONDS = 20.0
# What may come after a failure: wait for a change, wait for a change of the spec (not only of the engine's part of it),
# try again forever, try again a few times.
Retry = Literal["never", "spec", "always", "limited"]
# How CUDA, TensorRT and ONNX Runtime name the device's memory in what the builder reports.
_DEVICE = re.compile(r"cuda|gpu", re.IGNORECASE)
# So often a server is started again before it is given up: each time the kubelet waits twice as long, from 10 s on.
SERVER_RESTARTS = 2
# What the builder says when it is asked to stop, by whatever asks.
_INTERRUPTED = "Interrupted"


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Something that keeps a pod from working, and what to do."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class JobFailure:
    """Why a Job ended without a result. ``device`` says that it was the device's memory that ran out: only the builder
    knows, and a pod that was killed for its own memory left no report."""

    reason: str
    message: str
    retry: Retry
    device: bool = False

    def final(self, failures: int) -> bool:
        """Whether no attempt follows before a user changes something, after so many ``failures`` in a row."""
        return self.retry in ("never", "spec") or (self.retry == "limited" and failures >= LIMIT)


class Remembered(Protocol):
    """What status says of failures: under which retry annotation and which spec they happened."""

    @property
    def retry(self) -> str | None: ...

    @property
    def spec_key(self) -> str | None: ...


def forgiven(ctx: PassContext, failures: Remembered) -> bool:
    """Whether they count no more: by a new retry annotation, or a spec that might cure them."""
    return ctx.retried(failures.retry) or failures.spec_key not in (None, build_key(ctx.spec))


def remaining(last_failure: str | None, failures: int, now: datetime) -> float:
    """Seconds until the next attempt may start; 0 when it may."""
    last = parse_timestamp(last_failure)
    if last is None or failures < 1:
        return 0.0
    return max(0.0, (last + timedelta(seconds=BACKOFF.delay(failures)) - now).total_seconds())


def next_attempt(last_failure: str | None, failures: int) -> str:
    """When, as words that stay the same from pass to pass."""
    last = parse_timestamp(last_failure)
    return f"at {timestamp(last + timedelta(seconds=BACKOFF.delay(failures)))}" if last else "now"


def delete_job(job: JobView, why: str) -> Delete:
    return Delete(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why=why)


def spent(name: str, why: str) -> Delete:
    """The request of a Job that no Job will read again."""
    return Delete(api_version="v1", kind="ConfigMap", name=name, why=why, spent=True)


def taken_away(job: JobView, why: str, what: str) -> tuple[str, tuple[Action, ...]]:
    """A Job in the way of the one that the spec asks for goes, and its request with it: message and actions."""
    actions = (spent(job.name, f"the request of a Job that goes: {why}"), delete_job(job, why))
    return f"Recreating Job {job.name}: {what}.", actions


def renewed(job: JobView) -> tuple[str, tuple[Action, ...]]:
    """As :func:`taken_away`, for one that is :func:`outdated`."""
    return taken_away(job, "its spec changed before it started",
                      "its spec changed before it started")


def outdated(job: JobView, manifest: Mapping[str, Any]) -> bool:
    """Whether it waits to begin as something else than ``manifest``, what would be made now: of less memory, in another
    queue. One that has begun is let finish, for what it makes does not depend on that."""
    begun = job.progress or job.outcome or any(pod.phase != "Pending" for pod in job.pods)
    wanted = manifest["metadata"]["annotations"][labels.MANIFEST_HASH]
    return job.live and not begun and job.manifest_hash not in ("", wanted)


def explain(error: ErrorReport) -> str:
    """The builder's error as a sentence: field, value, remedy."""
    where = f"{error.field}: " if error.field else ""
    value = f" (got {error.value})" if error.value else ""
    remedy = f"; {error.remedy}" if error.remedy else ""
    return f"{where}{error.message}{value}{remedy}."


def pod_trouble(
    pods: Iterable[PodView], images: str, asked_in: Asked, placement: Placement | None = None, room: str = ""
) -> Trouble | None:
    """Why the newest waiting pod does not start, or None when it just takes its time. ``room`` is what more is known of
    those that no node can take."""
    waiting = [pod for pod in pods if pod.phase == "Pending" and not pod.deleting]
    if not waiting:
        return None
    pod = newest(waiting)
    if pod.unschedulable:
        return Trouble(reason=Reason.UNSCHEDULABLE, message=f"{no_node(pod, asked_in, placement)}{room}")
    if pod.waiting_reason in IMAGE_REASONS:
        detail = f" {pod.waiting_message.rstrip('.')}." if pod.waiting_message else ""
        return Trouble(
            reason=Reason.IMAGE_PULL_FAILED,
            message=f"Pod {pod.name} cannot get its image ({pod.waiting_reason}; {images}).{detail} Check the "
            f"image's name and the pull secrets.",
        )
    if pod.waiting_reason.endswith("Error"):
        detail = f": {pod.waiting_message.rstrip('.')}" if pod.waiting_message else ""
        return Trouble(
            reason=Reason.POD_CANNOT_START,
            message=f"Pod {pod.name} cannot start ({pod.waiting_reason}){detail}.{_lacking(pod)}",
        )
    return None


def _lacking(pod: PodView) -> str:
    """Of a Secret or ConfigMap that is not there, which the kubelet goes on looking for."""
    if "not found" not in pod.waiting_message:
        return ""
    return " Create it, and the pod starts; or correct the field of the spec that names it."


def podless(job: JobView, now: datetime, namespace: str, *, queued: bool = False) -> Trouble | None:
    """A Job for which no pod could be made: only its events say why, which the operator may not read. One that a queue
    lets in is older than its first pod may be."""
    if queued or not _awaits_pod(job) or podless_in(job, now) is not None:
        return None
    return Trouble(
        reason=Reason.POD_CANNOT_START,
        message=f"Job {job.name} has no pod: {kubectl(f'describe job {job.name}', namespace)} says why, such as a "
        f"quota, an admission webhook, or a ServiceAccount that is not there.",
    )


def podless_in(job: JobView, now: datetime) -> float | None:
    """Seconds until :func:`podless` is due: no watch tells of a pod that is not made, and every other event before
    then would put off a look at a fixed distance."""
    left = PODLESS_SECONDS - (now - job.created).total_seconds()
    return left if left > 0 and _awaits_pod(job) else None


def _awaits_pod(job: JobView) -> bool:
    return not (job.suspended or job.active or job.pods)


def newest(pods: Iterable[PodView]) -> PodView:
    return max(pods, key=lambda pod: (pod.created or datetime.min.replace(tzinfo=UTC), pod.name))


def pod_end(pods: Iterable[PodView], too_slow: str, namespace: str) -> JobFailure | None:
    """Why the newest pod that ended badly did so, as far as Kubernetes knows."""
    ended = [pod for pod in pods if pod.exit_code not in (None, 0) or pod.reason or pod.disrupted]
    if not ended:
        return None
    pod = newest(ended)
    return _out_of_memory(pod) or _taken_back(pod) or _ended(pod, too_slow, namespace)


def _out_of_memory(pod: PodView) -> JobFailure | None:
    if pod.server_end == "OOMKilled":
        who = f"The server that proves the engine in pod {pod.name}"
    elif pod.terminated_reason == "OOMKilled":
        who = f"Pod {pod.name}"
    else:
        return None
    return _failure(Reason.OUT_OF_MEMORY, "limited", f"{who} ran out of memory; raise "
                    f"spec.engine.resources.limits.memory or lower spec.engine.maxBatchSize.")


def _taken_back(pod: PodView) -> JobFailure | None:
    """By its node, or from it."""
    if pod.reason == "NodeLost":
        return _failure(Reason.NODE_LOST, "always", f"Node {pod.node} of pod {pod.name} is gone.")
    why = f": {pod.message.rstrip('.')}" if pod.message else ""
    if pod.disrupted:
        return _failure(Reason.EVICTED, "always", f"Pod {pod.name} was evicted{why}.")
    if pod.reason == "Evicted":
        # The kubelet has the condition DisruptionTarget for every eviction but that of a pod over its own limits.
        return _failure(Reason.BUILD_FAILED, "limited", f"Pod {pod.name} was evicted for what it stored itself{why}; "
                        f"raise spec.engine.resources.limits.ephemeral-storage.")
    return None


def _ended(pod: PodView, too_slow: str, namespace: str) -> JobFailure:
    if pod.reason == "DeadlineExceeded":
        return _failure(Reason.BUILD_DEADLINE_EXCEEDED, "spec", f"Pod {pod.name} did not finish in time; {too_slow}.")
    log = kubectl(f"logs {pod.name}", namespace)
    if pod.exit_code == EXIT_USER:
        return _failure(Reason.BUILD_FAILED, "never", f"Pod {pod.name} refused its input; {log} says why.")
    return _failure(Reason.BUILD_FAILED, "limited",
                    f"Pod {pod.name} ended with exit code {pod.exit_code}; {log} says why.")


def _failure(reason: str, retry: Retry, message: str) -> JobFailure:
    return JobFailure(reason=reason, retry=retry, message=message)


def _of_the_server(job: JobView) -> PodView | None:
    """The newest pod that ended badly, where its server had ended by itself before."""
    ended = [pod for pod in job.pods if pod.exit_code not in (None, 0)]
    pod = newest(ended) if ended else None
    return pod if pod and pod.server_end else None


def server_gave_up(job: JobView) -> JobFailure | None:
    """That the server of a pod that runs does not stay up: the prover, which sees no container, would wait for it."""
    pods = [pod for pod in job.pods if pod.phase in ("Pending", "Running") and not pod.deleting]
    pod = newest(pods) if pods else None
    if pod is None or not pod.server_end or pod.server_restarts < SERVER_RESTARTS:
        return None
    if pod.server_end == "OOMKilled":
        return _out_of_memory(pod)
    return _failure(
        Reason.SERVER_DID_NOT_START, "spec",
        f"spec.serving.image: the server that proves the engine in pod {pod.name} ends as soon as it is started "
        f"({pod.server_restarts + 1} times); use an image with tritonserver and /bin/sh, for this architecture and "
        f"device.{_last_line(pod)}")


def _last_line(pod: PodView | None) -> str:
    lines = pod.server_log.strip().splitlines() if pod else []
    return f" The server's last line: {lines[-1].strip()[:300]}" if lines else ""


def ran_out(job: JobView, too_slow: str, namespace: str) -> JobFailure | None:
    """That the newest pod that ended was stopped at its own deadline. The builder knows only that it was interrupted;
    whatever else it said is nearer to the cause."""
    if job.outcome and not (job.outcome.error and job.outcome.error.reason == _INTERRUPTED):
        return None
    end = pod_end(job.pods, too_slow, namespace)
    return end if end and end.reason == Reason.BUILD_DEADLINE_EXCEEDED else None


def job_failure(job: JobView, namespace: str, *, never_started: bool, too_slow: str) -> JobFailure:
    """Why a Job has no result. ``never_started`` says that its pod was last seen waiting, ``too_slow`` what to do about
    one that ran out of time."""
    if gave_up := server_gave_up(job):
        return gave_up
    if late := ran_out(job, too_slow, namespace):
        # A pod's deadline counts from when a node took it, also while its image is on its way.
        ran = job.outcome is not None or any(pod.exit_code is not None for pod in job.pods)
        return late if ran or not never_started else _no_start(job)
    error, server = job.outcome.error if job.outcome else None, _of_the_server(job)
    if server and server.server_end == "OOMKilled" and (short := _out_of_memory(server)):
        return short
    if error and error.family == "user":
        return _failure(error.reason, "never", explain(error) + _last_line(server))
    if job.failure_reason == "DeadlineExceeded":
        return _no_start(job) if never_started else _failure(
            Reason.BUILD_DEADLINE_EXCEEDED, "spec", f"Job {job.name} did not finish in time; {too_slow}.")
    if error:
        return _reported(error)
    if end := pod_end(job.pods, too_slow, namespace):
        return end
    message = job.failure_message or "it left no result"
    return _failure(Reason.BUILD_FAILED, "limited", f"Job {job.name} failed: {message}.")


def _no_start(job: JobView) -> JobFailure:
    return _failure(Reason.BUILD_DEADLINE_EXCEEDED, "always", f"Job {job.name} could not start before its deadline.")


def _reported(error: ErrorReport) -> JobFailure:
    again: Retry = "always" if error.family == "transient" and error.reason != Reason.OUT_OF_MEMORY else "limited"
    device = error.reason == Reason.OUT_OF_MEMORY and bool(_DEVICE.search(error.message))
    return JobFailure(reason=error.reason, message=explain(error), retry=again, device=device)

"""Before anything is built: what does the server's image have? Asked by a small Job of the image itself, once for each
image, and remembered in status. The Job needs nothing of the source, so both are looked at at the same time.

Objects of one namespace share the answer: one takes it from another's status, or from another's Job, for which it waits
while that runs. A Job that ends without an answer, or goes with its object, keeps no object waiting: the next object
asks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginewright.core import labels, status
from enginewright.core.conditions import Finding, no, open_question, parse_timestamp, timestamp
from enginewright.core.context import LOOK_AGAIN, PassContext, earliest
from enginewright.core.decide import jobs
from enginewright.core.decide.fit import field
from enginewright.core.decide.jobs import (
    JobFailure,
    Trouble,
    job_failure,
    newest,
    outdated,
    pod_trouble,
    podless,
    podless_in,
)
from enginewright.core.decide.no_node import Asked
from enginewright.core.decide.slice import fingerprints
from enginewright.core.decide.source import known as known_source
from enginewright.core.manifests import ask_job, ask_job_name, ask_key, begun_under, shared_ask_job_name
from enginewright.core.manifests.common import UID
from enginewright.core.observed import Elsewhere, JobView
from enginewright.core.placement import Placement, place
from enginewright.core.plan import Action, Create, Delete
from enginewright.core.reasons import Reason
from enginewright.core.request import build_key, server_image
from enginewright.core.server_image import MACHINES, as_before, runtime_of
from enginewright.core.spec.tasks import generates
from enginewright.core.status import FailureStatus, LibraryStatus, RuntimeStatus, ServerStatus
from enginewright.core.way_back import serves
from enginewright_builder.contract import Facts, ImageFacts, RuntimeRequest, printable

# Of a name that moves from image to image.
MAX_DIGESTS = 8
# Of a container's own message.
WORDS = 600
# What is remembered of failed attempts.
FAILURES = ("failure", "last_failure", "last_failure_time", "attempts", "retry", "spec_key")
# Exit codes of what was killed, for memory or with its node: that says nothing of the image.
KILLED = (137, 143)


@dataclass(frozen=True, kw_only=True)
class ServerResult:
    """``runtime`` is what engines are built for, None while it is not known; ``verdict`` says why not then."""

    memory: ServerStatus | None
    runtime: RuntimeRequest | None = None
    verdict: Finding | None = None
    actions: tuple[Action, ...] = ()
    requeue: float | None = None

    @property
    def asking(self) -> bool:
        """Whether it will be known soon."""
        return self.runtime is None and not (self.memory and self.memory.failure)


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """What an object does not know yet: ``key`` identifies the question, ``job`` is the name of the Job that all share
    who would ask it of the same pod, and ``machine`` the architecture that is to answer, as the image names it."""

    key: str
    job: str
    machine: str


def unanswered(ctx: PassContext) -> Unanswered | None:
    """None where the answer is in status."""
    memory = _asked_for(ctx)
    key = _key(ctx, memory)
    if memory.key == key and memory.runtime:
        return None
    placement = place(ctx.spec, 0, ctx.config)
    architecture = placement.device.architecture if isinstance(placement, Placement) else ""
    return Unanswered(key=key, job=shared_ask_job_name(ctx.spec, ctx.config, key),
                      machine=MACHINES.get(architecture, architecture))


def server_step(ctx: PassContext) -> ServerResult:
    memory = _asked_for(ctx)
    key = _key(ctx, memory)
    before = _runtime(memory) or _before(ctx)
    own, shared = ask_job_name(ctx.obj.name, key), shared_ask_job_name(ctx.spec, ctx.config, key)
    if memory.key == key and memory.runtime:
        result = ServerResult(memory=memory)
    elif answered := _elsewhere(ctx, memory, key, before):
        result = ServerResult(memory=answered)
    else:
        taken = ctx.observed.elsewhere is not None and ctx.observed.elsewhere.job is not None
        name = own if taken or ctx.observed.job(own) else shared
        result = _ask(ctx, name, key, before, _forgive(ctx, memory))
    superseded = tuple(
        _delete(job, "the server image is to be asked something else")
        for job in ctx.observed.jobs
        if job.step == labels.COMPONENT_ASK and job.name not in (own, shared) and not job.deleting
    )
    known = _runtime(result.memory) or before
    return replace(result, runtime=known, actions=superseded + result.actions)


def informed(ctx: PassContext, server: ServerResult) -> PassContext:
    """``ctx`` with what is known of the server image now."""
    return replace(ctx, runtime=server.runtime, asking=server.asking,
                   memory=replace(ctx.memory, server=server.memory))


def _asked_for(ctx: PassContext) -> ServerStatus:
    """What is remembered of the image of today, with the digest that a replica was seen with, should it be another."""
    image, builder = server_image(ctx.spec, ctx.config), ctx.config.images.builder
    memory = ctx.memory.server
    if memory is None or (memory.image, memory.builder_image) != (image, builder):
        return ServerStatus(image=image, builder_image=builder)
    known = {memory.image_id, *(memory.digests or ())}
    seen = sorted({pod.server_digest for pod in ctx.observed.pods
                   if pod.server_image == image and pod.server_digest} - known) if memory.runtime else []
    return memory.model_copy(update={"digests": (*(memory.digests or ()), seen[0])[-MAX_DIGESTS:]}) if seen else memory


def _key(ctx: PassContext, memory: ServerStatus) -> str:
    return ask_key(ctx.spec, ctx.config, (memory.digests or ("",))[-1])


def _elsewhere(ctx: PassContext, memory: ServerStatus, key: str,
               before: RuntimeRequest | None) -> ServerStatus | None:
    """The answer that another object of the namespace has, or its Job."""
    other = ctx.observed.elsewhere
    if other is None:
        return None
    outcome = other.job.outcome if other.job and other.model else None
    if other.job and outcome and outcome.ok and outcome.facts:
        return _answer(ctx, memory, key, other.job, outcome.facts, before)
    found = status.read(ServerStatus, other.server)
    if found is None or (found.key, found.image, found.builder_image) != (key, memory.image, memory.builder_image):
        return None
    runtime = _runtime(found)
    if runtime is None:
        return None
    runtime = as_before(runtime, before)
    return found.model_copy(update={
        **dict.fromkeys(FAILURES), "digests": memory.digests,
        "runtime": RuntimeStatus(backends=runtime.backends, python_runtimes=runtime.python_runtimes)})


def _digest(job: JobView) -> str:
    return next((pod.server_digest for pod in job.pods if pod.server_digest), "")


def _runtime(memory: ServerStatus | None) -> RuntimeRequest | None:
    if memory is None or memory.runtime is None:
        return None
    return RuntimeRequest(server_image=memory.image, backends=memory.runtime.backends,
                          python_runtimes=memory.runtime.python_runtimes)


def _before(ctx: PassContext) -> RuntimeRequest | None:
    """What an engine was built for by an operator that knew of it by settings. That engine goes on serving while the
    image is asked: the fingerprint proves that it is that very engine."""
    wanted, stable = str(ctx.obj.status.get("fingerprint") or ""), serves(ctx.memory.revisions)
    source, image = ctx.memory.source, server_image(ctx.spec, ctx.config)
    target = stable.target if stable else None
    if not wanted or target is None or target.server_image != image or source is None or not source.digest:
        return None
    words = tuple(target.backends.split(", "))
    for cut in range(len(words) + 1):
        runtime = RuntimeRequest(server_image=image, backends=words[:cut], python_runtimes=words[cut:])
        if wanted in fingerprints(replace(ctx, runtime=runtime), known_source(source)):
            return runtime
    return None


def _forgive(ctx: PassContext, memory: ServerStatus) -> ServerStatus:
    """As with the source: a new retry annotation, and a spec that might cure it, forget old errors."""
    if memory.retry in (None, ctx.retry) and memory.spec_key in (None, build_key(ctx.spec)):
        return memory
    return memory.model_copy(update=dict.fromkeys(("failure", "last_failure", "attempts", "retry", "spec_key")))


def _ask(ctx: PassContext, name: str, key: str, before: RuntimeRequest | None, memory: ServerStatus) -> ServerResult:
    job = ctx.observed.job(name)
    last = parse_timestamp(memory.last_failure_time)
    counted = job is not None and last is not None and job.created <= last and not job.live
    if job and not job.deleting and not counted:
        return _watch(ctx, job, key, before, memory)
    if memory.failure:
        return _says(memory, memory.failure.reason, f"{memory.failure.message} {_again(ctx)}")
    return _start(ctx, name, key, job, memory)


def _suspended(ctx: PassContext, memory: ServerStatus, job: JobView | None) -> ServerResult | None:
    """Starts no Job, and stops ``job``, which runs; None where the spec is not suspended."""
    if not ctx.suspended:
        return None
    stop = (_delete(job, "spec.suspend is true"),) if job else ()
    return _says(memory, Reason.SUSPENDED, "spec.suspend is true: the server image is not asked what it has.", stop)


def _start(ctx: PassContext, name: str, key: str, old: JobView | None, memory: ServerStatus) -> ServerResult:
    attempts = memory.attempts or 0
    if suspended := _suspended(ctx, memory, None):
        return suspended
    if wait := jobs.remaining(memory.last_failure_time, attempts, ctx.now):
        why = memory.last_failure.message if memory.last_failure else "The last attempt failed."
        when = jobs.next_attempt(memory.last_failure_time, attempts)
        return _says(memory, Reason.ASKING_SERVER_IMAGE, f"{why} Attempt {attempts + 1} starts {when}.", requeue=wait)
    if old:
        clear = () if old.deleting else (_delete(old, "an earlier attempt, in the way of the next"),)
        return _says(memory, Reason.ASKING_SERVER_IMAGE, _asks(name, memory), clear, requeue=1.0)
    other = ctx.observed.elsewhere
    if other and other.job and other.model and other.job.live:
        return _wait(ctx, other, other.job, memory)
    make = Create(manifest=begun_under(ask_job(ctx.owner, ctx.spec, ctx.config, name), ctx.retry),
                  why="it is not known what the server image has")
    # The Job may turn out to be another object's, which was faster.
    return _says(memory, Reason.ASKING_SERVER_IMAGE, _asks(name, memory), (make,), requeue=LOOK_AGAIN)


def _wait(ctx: PassContext, other: Elsewhere, job: JobView, memory: ServerStatus) -> ServerResult:
    """For a Job of another object, which has a deadline."""
    trouble = _trouble(ctx, job, memory)
    reason, message = (trouble.reason, trouble.message) if trouble else (
        Reason.ASKING_SERVER_IMAGE, _asks(f"{job.name} of {labels.KIND} {other.model}", memory))
    return _says(memory, reason, message, requeue=LOOK_AGAIN)


def _trouble(ctx: PassContext, job: JobView, memory: ServerStatus) -> Trouble | None:
    images = f"server image {memory.image} or builder image {memory.builder_image}"
    return pod_trouble(job.pods, images, Asked.SMALL_JOB) or podless(job, ctx.now, ctx.obj.namespace)


def _asks(name: str, memory: ServerStatus) -> str:
    return f"Job {name} asks server image {memory.image} which backends and libraries it has."


def _watch(ctx: PassContext, job: JobView, key: str, before: RuntimeRequest | None,
           memory: ServerStatus) -> ServerResult:
    outcome = job.outcome
    if outcome and outcome.ok and outcome.facts:
        return ServerResult(memory=_answer(ctx, memory, key, job, outcome.facts, before))
    if not job.live:
        return _count(ctx, job, key, memory)
    if suspended := _suspended(ctx, memory, job):
        return suspended
    if outdated(job, ask_job(ctx.owner, ctx.spec, ctx.config, job.name)):
        return _says(memory, Reason.ASKING_SERVER_IMAGE, f"Recreating Job {job.name}: its spec changed before "
                     "it started.",
                     (_delete(job, "its spec changed before it started"),), requeue=1.0)
    if trouble := _trouble(ctx, job, memory):
        return _says(memory, trouble.reason, trouble.message, requeue=LOOK_AGAIN)
    requeue = None if job.pods else earliest(LOOK_AGAIN, podless_in(job, ctx.now))
    return _says(memory, Reason.ASKING_SERVER_IMAGE, _asks(job.name, memory), requeue=requeue)


def _answer(ctx: PassContext, memory: ServerStatus, key: str, job: JobView, facts: Facts,
            before: RuntimeRequest | None) -> ServerStatus:
    return answer(memory, key, _digest(job), facts, before, generates=generates(ctx.spec))


def answer(memory: ServerStatus, key: str, digest: str, facts: Facts, before: RuntimeRequest | None, *,
           generates: bool = False) -> ServerStatus:
    """What is remembered of the image of ``memory`` when it has answered. ``generates`` says that it is to serve a
    language model."""
    server = facts.server
    runtime = as_before(runtime_of(facts, memory.image, generates=generates), before)
    return ServerStatus(
        image=memory.image, key=key, image_id=digest or None, triton=server.tritonserver or None,
        python=server.python or None, architecture=server.architecture or None, backends=server.backends,
        caches=server.caches, libraries=_libraries(server), cuda=server.cuda or None, drivers=server.drivers or None,
        runtime=RuntimeStatus(backends=runtime.backends, python_runtimes=runtime.python_runtimes),
        builder_image=memory.builder_image,
        builder_libraries=_libraries(facts.builder), digests=memory.digests)


def _again(ctx: PassContext) -> str:
    return f"Change the image, or ask again with {ctx.retry_with}."


def _libraries(facts: ImageFacts) -> tuple[LibraryStatus, ...]:
    return tuple(LibraryStatus(name=name, version=version) for name, version in facts.libraries.items())


def _count(ctx: PassContext, job: JobView, key: str, memory: ServerStatus) -> ServerResult:
    failure = _failure(ctx, job, memory)
    attempts = (memory.attempts or 0) + 1
    final = failure.final(attempts)
    failure_status = FailureStatus(reason=failure.reason, message=failure.message)
    memory = _forgive(ctx, memory.model_copy(update={
        "attempts": attempts, "last_failure_time": timestamp(ctx.now), "last_failure": failure_status,
        "failure": failure_status if final else None, "retry": job.retry, "spec_key": build_key(ctx.spec)}))
    if memory.failure:
        return _says(memory, failure_status.reason, f"{failure_status.message} {_again(ctx)}")
    return _start(ctx, job.name, key, job, memory)


def _failure(ctx: PassContext, job: JobView, memory: ServerStatus) -> JobFailure:
    """What the container of the server's image said in its own words, if it was that one which failed."""
    ended = [pod for pod in job.pods if pod.failed_container == labels.CONTAINER_EXAMINE]
    if not ended or newest(ended).exit_code in KILLED:
        failure = job_failure(job, ctx.obj.namespace, never_started=False,
                              too_slow="check that the server image can be pulled in time")
        late = failure.reason == Reason.BUILD_DEADLINE_EXCEEDED
        return replace(failure, retry="limited") if late else failure
    pod = newest(ended)
    beside = "vLLM" if generates(ctx.spec) else "Triton Inference Server"
    words = printable(" ".join(pod.terminated_message.split()))[-WORDS:]
    return JobFailure(
        reason=Reason.SERVER_IMAGE_UNFIT, retry="never",
        message=f"Server image {memory.image} cannot say what it has: its container ended with exit code "
                f"{pod.exit_code}: {words or 'it said nothing'}. Name in {field(ctx)} an image that starts as user "
                f"{UID} and has python3 (3.10 or newer) beside {beside}.")


def _says(memory: ServerStatus, reason: str, message: str, actions: tuple[Action, ...] = (), *,
          requeue: float | None = None) -> ServerResult:
    make = open_question if reason == Reason.ASKING_SERVER_IMAGE else no
    return ServerResult(memory=memory, verdict=make(reason, message), actions=actions,
                        requeue=requeue)


def _delete(job: JobView, why: str) -> Delete:
    return Delete(api_version="batch/v1", kind="Job", name=job.name, uid=job.uid, why=why)

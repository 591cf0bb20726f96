"""What is remembered of the attempts to build one engine: how many, and whether another one may help."""

from __future__ import annotations

from enginewright.core.conditions import timestamp
from enginewright.core.context import PassContext
from enginewright.core.decide.jobs import PENDING_REASONS, JobFailure, forgiven, next_attempt
from enginewright.core.reasons import Condition, Reason
from enginewright.core.request import build_key
from enginewright.core.status import BuildStatus, FailureStatus

# A node that was taken back says nothing of the build.
DISRUPTIONS = (Reason.EVICTED, Reason.NODE_LOST)


def forgive(ctx: PassContext, memory: BuildStatus) -> BuildStatus:
    """A new retry annotation forgets every failure; a new spec those that another spec might cure although it asks for
    the same engine (more time, more memory), but for what concerns replicas alone. The number of attempts stays, for it
    names Jobs."""
    if not forgiven(ctx, memory):
        return memory
    return memory.model_copy(update=dict.fromkeys(("failure", "failures", "disruptions", "retry", "spec_key")))


def catch_up(ctx: PassContext, memory: BuildStatus) -> BuildStatus:
    """The newest Job that is there is the current attempt, should status have lost count."""
    numbers = [job.name.rpartition("-")[2] for job in ctx.observed.jobs if job.fingerprint == memory.fingerprint]
    newest = max((int(number) for number in numbers if number.isdecimal()), default=0)
    if newest <= (memory.attempts or 0) + 1:
        return memory
    return memory.model_copy(update={"attempts": newest - 1})


def count(ctx: PassContext, memory: BuildStatus, failure: JobFailure, retry: str) -> BuildStatus:
    """One failed attempt more, which began under the annotation ``retry``; what another would only repeat becomes a
    ``failure``, which waits for a change. A user who has set another annotation
    since is answered at once."""
    failures = (memory.failures or 0) + 1
    disruptions = (memory.disruptions or 0) + (failure.reason in DISRUPTIONS)
    final = failure.final(failures - disruptions)
    status = FailureStatus(reason=failure.reason, message=failure.message, device=failure.device or None)
    counted = memory.model_copy(
        update={
            "attempts": (memory.attempts or 0) + 1,
            "failures": failures,
            "disruptions": disruptions or None,
            "last_failure_time": timestamp(ctx.now),
            "last_failure": status,
            "failure": status if final else None,
            "retry": retry,
            "step": None,
            "percent": None,
            # What the builder refused stays refused until the fingerprint changes; any new spec may cure the rest.
            "spec_key": None if failure.retry == "never" else build_key(ctx.spec),
        }
    )
    return forgive(ctx, counted)


def retrying(memory: BuildStatus) -> str:
    failures = memory.failures or 0
    why = f"{memory.last_failure.reason}: {memory.last_failure.message}" if memory.last_failure else (
        "The last build failed.")
    when = next_attempt(memory.last_failure_time, failures)
    return f"{why} Attempt {(memory.attempts or 0) + 1} starts {when}."


def never_started(ctx: PassContext, memory: BuildStatus) -> bool:
    """Whether the pod of the current attempt was last seen waiting."""
    return memory.step is None and ctx.condition(Condition.ENGINE_BUILT).get("reason", "") in PENDING_REASONS

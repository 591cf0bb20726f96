"""Rules of ``spec.serving.queue``: what Triton refuses, and what would reject requests that could be answered."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show
from enginewright.core.spec.queue import QueuePolicySpec, QueueSpec

FIELD = "spec.serving.queue"


def queue_problems(spec: Spec) -> Iterator[Problem]:
    queue = spec.serving.queue
    if queue is None:
        return
    yield from _levels(queue)
    for field, policy in _policies(queue):
        yield from _policy(spec, field, policy)


def _policies(queue: QueueSpec) -> Iterator[tuple[str, QueuePolicySpec]]:
    yield FIELD, queue
    for index, policy in enumerate(queue.priority_queue_policy):
        yield f"{FIELD}.priorityQueuePolicy[{index}]", policy


def _levels(queue: QueueSpec) -> Iterator[Problem]:
    levels, default = queue.priority_levels, queue.default_priority_level
    named = [one.level for one in queue.priority_queue_policy]
    if levels is None:
        for field, value in (("defaultPriorityLevel", default), ("priorityQueuePolicy", named)):
            if value:
                yield _problem(f"{FIELD}.{field}", value, "needs priorityLevels, of which it names one",
                               "add priorityLevels, such as 2, or remove it")
        return
    if default is not None and default > levels:
        yield _problem(f"{FIELD}.defaultPriorityLevel", default, f"is more than priorityLevels {levels}",
                       f"write a level from 1 to {levels}")
    for index, level in enumerate(named):
        if level > levels:
            yield _problem(f"{FIELD}.priorityQueuePolicy[{index}].level", level,
                           f"is more than priorityLevels {levels}", f"write a level from 1 to {levels}")
    if twice := sorted({level for level in named if named.count(level) > 1}):
        yield _problem(f"{FIELD}.priorityQueuePolicy", twice, "repeats a level", "give each level one policy")


def _policy(spec: Spec, field: str, policy: QueuePolicySpec) -> Iterator[Problem]:
    timeout, size, delay = (policy.default_timeout_microseconds, policy.max_queue_size,
                            spec.batching.max_queue_delay_microseconds)
    for name, value, given in (("timeoutAction", policy.timeout_action, policy.timeout_action == "continue"),
                               ("allowTimeoutOverride", True, policy.allow_timeout_override)):
        if given and timeout is None:
            yield _problem(f"{field}.{name}", value, "has no effect without a timeout",
                           "add defaultTimeoutMicroseconds, or remove it")
    if timeout is not None and delay is not None and timeout <= delay:
        yield _problem(f"{field}.defaultTimeoutMicroseconds", timeout,
                       f"is not more than spec.batching.maxQueueDelayMicroseconds {delay}, for which a request waits "
                       f"for others on an idle replica", "raise it, or lower the delay")
    if size is None:
        return
    if too_large := [one for one in spec.batching.preferred_batch_sizes if one > size]:
        yield _problem(f"{field}.maxQueueSize", size, f"is less than spec.batching.preferredBatchSizes {too_large}, "
                       "which would never gather", "raise it, or lower these")
    scaling = spec.autoscaling
    if scaling is not None and scaling.target_queue_depth is not None and size <= scaling.target_queue_depth:
        yield _problem(f"{field}.maxQueueSize", size,
                       f"is not more than spec.autoscaling.targetQueueDepth {scaling.target_queue_depth:g}: the queue "
                       "never gets deep enough to ask for a replica", "raise it, or lower targetQueueDepth")


def _problem(field: str, value: object, message: str, remedy: str) -> Problem:
    return Problem(field=field, value=show(value), message=message, remedy=remedy)

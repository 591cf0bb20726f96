"""What becomes of requests that wait in a replica's queue. Names are Triton's, of ModelDynamicBatching and
ModelQueuePolicy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from enginewright.core.spec.base import SpecModel


class QueuePolicySpec(SpecModel):
    """Of requests that wait in one queue of a replica."""

    max_queue_size: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests that may wait; more are rejected at once, HTTP 503 and gRPC UNAVAILABLE. With priorityLevels each level
    has a queue of its own. Left out: no limit."""
    default_timeout_microseconds: int | None = Field(default=None, ge=1, le=3_600_000_000)
    """How long a request may wait before timeoutAction is taken. Left out: as long as it takes."""
    timeout_action: Literal["reject", "continue"] = "reject"
    """What becomes of a request that has waited for so long: reject answers with HTTP 503 and gRPC UNAVAILABLE;
    continue lets it wait until no request is left that has time."""
    allow_timeout_override: bool = False
    """Let a request bring a shorter timeout of its own, its parameter timeout in microseconds."""


class PriorityQueuePolicySpec(QueuePolicySpec):
    """Of one priority level, in place of the policy for all. What is left out here has no limit."""

    level: int = Field(ge=1, le=1000)
    """The level, 1 the highest priority."""


class QueueSpec(QueuePolicySpec):
    """What becomes of requests that wait in a replica. A change makes a new revision and rebuilds nothing."""

    priority_levels: int | None = Field(default=None, ge=2, le=1000)
    """Levels of priority, 1 the highest. A request names one in its parameter priority, and is computed before all that
    wait at higher numbers. Left out: requests are computed in the order in which they came."""
    default_priority_level: int | None = Field(default=None, ge=1, le=1000)
    """Level of requests that name none. Left out: the lowest priority."""
    priority_queue_policy: tuple[PriorityQueuePolicySpec, ...] = Field(default=(), max_length=32)
    """Policies of levels that differ from the policy for all."""


def shortest_timeout(queue: QueueSpec | None) -> tuple[str, int] | None:
    """Field and microseconds of the shortest timeout that rejects; None where none does."""
    if queue is None:
        return None
    policies = [("spec.serving.queue", queue), *(
        (f"spec.serving.queue.priorityQueuePolicy[{index}]", one)
        for index, one in enumerate(queue.priority_queue_policy))]
    stated = [(f"{field}.defaultTimeoutMicroseconds", policy.default_timeout_microseconds)
              for field, policy in policies if policy.timeout_action == "reject"]
    return min(((field, timeout) for field, timeout in stated if timeout is not None),
               key=lambda one: one[1], default=None)

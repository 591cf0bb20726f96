"""What is wrong with batching that is to follow the traffic."""

from __future__ import annotations

from collections.abc import Iterator

from enginewright.core.problems import Problem
from enginewright.core.spec.model import Spec
from enginewright.core.spec.parse import show


def batching_problems(spec: Spec) -> Iterator[Problem]:
    if not spec.batching.adaptive:
        return
    field = "spec.batching.adaptive"
    if spec.batching.fixed:
        yield Problem(field=field, value=show(True), message="begins from what the build measures, and does not go "
                      "with preferredBatchSizes or maxQueueDelayMicroseconds", remedy="remove those, or adaptive")
    if spec.engine.max_batch_size < 2:
        yield Problem(field=field, value=show(True), message="needs batches, but spec.engine.maxBatchSize is 1",
                      remedy="raise maxBatchSize, or remove adaptive")

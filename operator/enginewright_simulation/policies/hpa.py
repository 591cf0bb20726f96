"""The Kubernetes HorizontalPodAutoscaler on queued requests a pod, as its controller computes it.

Sources: kubernetes.io, "Horizontal Pod Autoscaling" (algorithm details, default behaviour), and
kubernetes/kubernetes ``pkg/controller/podautoscaler`` (``replica_calculator.go``: ``calcPlainMetricReplicas``,
``GetExternalPerPodMetricReplicas``; ``horizontal.go``: ``stabilizeRecommendationWithBehaviors``,
``calculateScaleUpLimitWithScalingRules``).

Here a metric is never older than a second. Behind a real adapter it is as old as the scrape interval: the peer is
shown at its best.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from enginewright_simulation.policies.base import Seen

# kube-controller-manager: --horizontal-pod-autoscaler-sync-period and --horizontal-pod-autoscaler-tolerance.
SYNC = 15.0
TOLERANCE = 0.1
# kubernetes.io, "Horizontal Pod Autoscaling", default behaviour: scaleDown.stabilizationWindowSeconds; scale up by the
# larger of 100 % and 4 pods in 15 s, without stabilisation; down by 100 % in 15 s, which bounds nothing.
DOWN_WINDOW = 300.0
UP_PERCENT, UP_PODS, UP_PERIOD = 100.0, 4, 15.0


def pods_metric(values: Mapping[str, float], missing: int, current: int, target: float,
                tolerance: float = TOLERANCE) -> int:
    """Replicas by a metric of type Pods. ``values`` are of pods that have the metric, ``missing`` counts running pods
    that do not: those are taken as at their target before scaling down, and as at 0 before scaling up. Without any
    value the controller leaves the replicas as they are."""
    if not values:
        return current
    total, counted = sum(values.values()), len(values)
    ratio = total / counted / target
    if missing:
        counted += missing
        total += missing * target if ratio < 1.0 else 0.0
        new = total / counted / target
        if (ratio < 1.0 < new) or (new < 1.0 < ratio):
            return current
        ratio = new
    if abs(1.0 - ratio) <= tolerance:
        return current
    return math.ceil(round(ratio * counted, 9))


def external_metric(total: float, current: int, target: float, tolerance: float = TOLERANCE) -> int:
    """Replicas by a metric of type External with an average value: all pods asked for count, ready or not."""
    if abs(1.0 - total / (target * current)) <= tolerance:
        return current
    return math.ceil(round(total / target, 9))


@dataclass(frozen=True, kw_only=True)
class HpaSettings:
    target: float = 4.0
    down_window: float = DOWN_WINDOW
    min_replicas: int = 1
    max_replicas: int = 20


class Controller:
    """What follows a proposal: stabilisation, rate of change, limits."""

    def __init__(self, settings: HpaSettings) -> None:
        self._settings = settings
        self._recommended: deque[tuple[float, int]] = deque()
        self._added: deque[tuple[float, int]] = deque()

    def settle(self, proposed: int, current: int, now: float) -> int:
        wanted = self._rated(self._stabilised(proposed, current, now), current, now)
        wanted = max(max(1, self._settings.min_replicas), min(self._settings.max_replicas, wanted))
        if wanted > current:
            self._added.append((now, wanted - current))
        return wanted

    def _stabilised(self, proposed: int, current: int, now: float) -> int:
        """Down only as far as the most that was recommended in the window, and no way up: a recommendation of before
        may be more than what the rate of change allowed then. Up at once."""
        while self._recommended and self._recommended[0][0] <= now - self._settings.down_window:
            self._recommended.popleft()
        stable = proposed
        if proposed < current:
            stable = min(current, max([proposed, *(replicas for _, replicas in self._recommended)]))
        self._recommended.append((now, proposed))
        return stable

    def _rated(self, wanted: int, current: int, now: float) -> int:
        while self._added and self._added[0][0] <= now - UP_PERIOD:
            self._added.popleft()
        before = current - sum(replicas for _, replicas in self._added)
        limit = max(before + UP_PODS, math.ceil(before * (1 + UP_PERCENT / 100)))
        return min(wanted, max(current, limit))


class Hpa:
    """Type Pods: the queue of each ready replica."""

    def __init__(self, settings: HpaSettings) -> None:
        self._settings = settings
        self._controller = Controller(settings)
        self._next = SYNC
        self.initial = max(1, settings.min_replicas)

    def decide(self, seen: Seen) -> int:
        if seen.time < self._next:
            return seen.desired
        self._next += SYNC
        proposed = pods_metric(seen.pending, len(seen.starting), seen.desired, self._settings.target)
        return self._controller.settle(proposed, seen.desired, seen.time)

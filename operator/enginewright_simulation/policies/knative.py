"""Knative's pod autoscaler (KPA) on concurrency: requests in a replica, queued or being computed.

Sources: knative/serving ``pkg/autoscaler/scaling/autoscaler.go`` (``Scale``, followed line by line here),
``pkg/reconciler/autoscaling/resources/target.go`` (``ResolveMetricTarget``), and the defaults in
``config/core/configmaps/autoscaler.yaml``. Knative's queue-proxy averages concurrency over each second; here it is
looked at once a second, which has the same mean.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from enginewright_simulation.policies.base import Seen

# config/core/configmaps/autoscaler.yaml: tick-interval, stable-window, panic-window-percentage,
# panic-threshold-percentage, max-scale-up-rate, max-scale-down-rate, scale-to-zero-grace-period,
# container-concurrency-target-percentage.
TICK = 2.0
STABLE_WINDOW = 60.0
PANIC_SHARE = 0.10
PANIC_THRESHOLD = 2.0
MAX_SCALE_UP_RATE = 1000.0
MAX_SCALE_DOWN_RATE = 2.0
ZERO_GRACE = 30.0
TARGET_UTILISATION = 0.70
# pkg/apis/autoscaling/annotation_validation.go and register.go: TargetMin.
TARGET_MIN = 0.01


@dataclass(frozen=True, kw_only=True)
class KnativeSettings:
    """``target`` is the annotation ``autoscaling.knative.dev/target``; Knative aims at 70 % of it."""

    target: float = 4.0
    stable_window: float = STABLE_WINDOW
    min_replicas: int = 1
    max_replicas: int = 20

    @property
    def panic_window(self) -> float:
        return max(1.0, round(self.stable_window * PANIC_SHARE))

    @property
    def aim(self) -> float:
        return max(TARGET_MIN, self.target * TARGET_UTILISATION)


class Knative:
    def __init__(self, settings: KnativeSettings) -> None:
        self._settings = settings
        self._seen: deque[tuple[float, float]] = deque()
        self._next = TICK
        self.initial = max(1, settings.min_replicas)
        # "We always start in the panic mode, if the deployment is scaled up over 1 pod."
        self._panicked: float | None = 0.0 if self.initial > 1 else None
        self._most = self.initial if self.initial > 1 else 0
        self._idle: float | None = None

    def decide(self, seen: Seen) -> int:
        self._seen.append((seen.time, seen.queued + seen.inflight))
        while self._seen[0][0] <= seen.time - self._settings.stable_window:
            self._seen.popleft()
        if seen.time < self._next:
            return seen.desired
        self._next += TICK
        wanted = self.scale(self._mean(self._settings.stable_window, seen.time),
                            self._mean(self._settings.panic_window, seen.time), seen.ready, seen.time)
        return self._bounded(wanted, seen)

    def scale(self, stable: float, panic: float, ready: int, now: float) -> int:
        """Replicas before limits, from the mean concurrency over both windows."""
        pods = max(1, ready)
        most, least = math.ceil(MAX_SCALE_UP_RATE * pods), math.floor(pods / MAX_SCALE_DOWN_RATE)
        for_stable = math.ceil(stable / self._settings.aim)
        for_panic = math.ceil(panic / self._settings.aim)
        wanted = min(max(for_stable, least), most)
        if for_panic / pods >= PANIC_THRESHOLD:
            self._panicked = now
        elif self._panicked is not None and self._panicked + self._settings.stable_window < now:
            self._panicked, self._most = None, 0
        if self._panicked is not None:
            # No replica is taken away in panic.
            self._most = max(self._most, wanted, min(max(for_panic, least), most))
            return self._most
        return wanted

    def _mean(self, window: float, now: float) -> float:
        recent = [value for time, value in self._seen if time > now - window]
        return sum(recent) / len(recent) if recent else 0.0

    def _bounded(self, wanted: int, seen: Seen) -> int:
        wanted = max(self._settings.min_replicas, min(self._settings.max_replicas, wanted))
        if wanted > 0:
            self._idle = None
            return wanted
        self._idle = seen.time if self._idle is None else self._idle
        return 0 if seen.time - self._idle >= ZERO_GRACE else min(1, seen.desired)

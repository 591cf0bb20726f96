"""KEDA: the HPA behind it scales between one and the maximum, KEDA itself between zero and one.

Sources: keda.sh, "Scaling Deployments" (``pollingInterval`` 30 s, ``cooldownPeriod`` 300 s, which counts for scaling to
zero only, ``useCachedMetrics`` false: each of the HPA's questions, every 15 s, is asked of the trigger again), and
kedacore/keda ``pkg/scaling/executor/scale_scaledobjects.go`` (``RequestScale``, ``scaleToZero``, ``scaleFromZero``).
The HPA's metric is External with an average value.
"""

from __future__ import annotations

from dataclasses import dataclass

from enginewright_simulation.policies.base import Seen
from enginewright_simulation.policies.hpa import DOWN_WINDOW, SYNC, Controller, HpaSettings, external_metric

POLL = 30.0
COOLDOWN = 300.0


@dataclass(frozen=True, kw_only=True)
class KedaSettings:
    """``window`` is the HPA's scaleDown.stabilizationWindowSeconds, set through the ScaledObject."""

    target: float = 4.0
    window: float = DOWN_WINDOW
    cooldown: float = COOLDOWN
    min_replicas: int = 1
    max_replicas: int = 20


class Keda:
    """A queue above 0 is active, as a Prometheus trigger's is by default (``activationThreshold`` 0)."""

    def __init__(self, settings: KedaSettings) -> None:
        self._settings = settings
        self._controller = Controller(
            HpaSettings(target=settings.target, down_window=settings.window, min_replicas=settings.min_replicas,
                        max_replicas=settings.max_replicas)
        )
        self._next_sync, self._next_poll = SYNC, POLL
        self._active = 0.0
        self.initial = settings.min_replicas

    def decide(self, seen: Seen) -> int:
        wanted = seen.desired
        if seen.time >= self._next_sync:
            self._next_sync += SYNC
            if wanted:  # at zero the HPA is disabled
                proposed = external_metric(seen.queued, wanted, self._settings.target)
                wanted = self._controller.settle(proposed, wanted, seen.time)
        if seen.time >= self._next_poll:
            self._next_poll += POLL
            wanted = self._poll(seen, wanted)
        return wanted

    def _poll(self, seen: Seen, wanted: int) -> int:
        if seen.queued > 0:
            self._active = seen.time
            return max(wanted, 1)
        if self._settings.min_replicas == 0 and seen.time - self._active > self._settings.cooldown:
            return 0
        return wanted

"""The operator's own scaler, the very code that runs in production."""

from __future__ import annotations

from collections.abc import Callable

from enginewright.core.scaling import Capacity, ScaleLimits, decide_replicas
from enginewright.core.scaling.decide import ALL_PARTS
from enginewright.core.scaling.needs import Parts
from enginewright.core.signals import Sample
from enginewright.observe.sizes import gauges
from enginewright.observe.window import Window
from enginewright_simulation.policies.base import Seen


class Enginewright:
    """One sample a second, as the operator's scraper takes it. Without ``capacity`` queue depth alone decides; a study
    leaves some of the rule's ``parts`` out. ``limits`` may differ from moment to moment, in seconds of the trace."""

    def __init__(self, limits: ScaleLimits | Callable[[float], ScaleLimits], capacity: Capacity | None,
                 parts: Parts = ALL_PARTS) -> None:
        self._limits = (lambda _: limits) if isinstance(limits, ScaleLimits) else limits
        self._capacity = capacity
        self._parts = parts
        self._window = Window(started=0.0)
        self.initial = self._limits(0.0).min_replicas

    def decide(self, seen: Seen) -> int:
        self._window.ask(seen.time, seen.desired)
        self._window.add(self._of_tokens(seen) if seen.metrics else self._of_requests(seen))
        view = self._window.view()
        found = decide_replicas(view, seen.desired, self._limits(seen.time), seen.time, self._capacity, self._parts)
        self._window.recommend(seen.time, *found.wishes)
        return found.replicas

    def _of_requests(self, seen: Seen) -> Sample:
        return Sample(time=seen.time, ready=seen.ready, pending=seen.pending, arrived=float(seen.arrived),
                      inflight=float(seen.inflight), starting=seen.starting, served=seen.served, spent=seen.spent,
                      held=float(seen.held))

    def _of_tokens(self, seen: Seen) -> Sample:
        """As the operator's scraper makes it of the counters of vLLM."""
        grown = self._window.arrived(seen.time, seen.metrics, seen.pending, self._capacity)
        running, caches = gauges(seen.metrics)
        return Sample(time=seen.time, ready=seen.ready, pending=self._window.pending(seen.metrics, self._capacity),
                      arrived=grown.arrived, inflight=float(seen.inflight), starting=seen.starting,
                      served=grown.served, held=float(seen.held), running=running, caches=caches)

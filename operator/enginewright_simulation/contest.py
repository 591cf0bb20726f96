"""All policies on one trace: the same requests, the same replicas, the same luck."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from enginewright.core.spec import AutoscalingSpec
from enginewright_simulation.foresight import Bounds, Trial, search
from enginewright_simulation.ours import Ours
from enginewright_simulation.policies.base import Policy
from enginewright_simulation.policies.enginewright import Enginewright
from enginewright_simulation.policies.hpa import DOWN_WINDOW, Hpa, HpaSettings
from enginewright_simulation.policies.keda import Keda, KedaSettings
from enginewright_simulation.policies.knative import STABLE_WINDOW, Knative, KnativeSettings
from enginewright_simulation.policies.oracle import Oracle
from enginewright_simulation.run import Run, Scenario, simulate, throw_dice
from enginewright_simulation.tokens import TokenService

NAMES = ("enginewright", "hpa", "keda", "knative", "oracle")
PEERS = ("hpa", "keda", "knative")
TARGETS = (1.0, 2.0, 4.0, 8.0)
WINDOWS = (30.0, 60.0, 120.0, 300.0)


class Contest:
    """``ours`` is what an object says of its autoscaling; left out, no more than its fewest and most replicas."""

    def __init__(self, arrivals: Sequence[float], scenario: Scenario, ours: Ours | None = None) -> None:
        self._arrivals = arrivals
        self.scenario = scenario
        self.ours = ours or Ours(autoscaling=AutoscalingSpec(
            min_replicas=scenario.min_replicas, max_replicas=scenario.max_replicas))
        self._dice = throw_dice(arrivals, scenario.seed)

    def run(self, name: str) -> Run:
        """One of :data:`NAMES`, with its default settings."""
        if name == "oracle":
            return self._oracle()
        if name == "enginewright":
            return self.play(Enginewright(self.ours.limits, self.ours.asked(self.scenario.measured)))
        return self.play(self.peer(name, {}))

    def play(self, policy: Policy) -> Run:
        return simulate(self._arrivals, policy, self.scenario, self._dice)

    def peer(self, name: str, settings: Mapping[str, float]) -> Policy:
        """``settings`` are ``target`` and ``window``; what is left out has its default."""
        scenario = self.scenario
        low, high = scenario.min_replicas, scenario.max_replicas
        target = settings.get("target", 4.0)
        if name == "hpa":
            return Hpa(HpaSettings(target=target, down_window=settings.get("window", DOWN_WINDOW),
                                   min_replicas=low, max_replicas=high))
        if name == "keda":
            return Keda(KedaSettings(target=target, window=settings.get("window", DOWN_WINDOW),
                                     min_replicas=low, max_replicas=high))
        return Knative(KnativeSettings(target=target, stable_window=settings.get("window", STABLE_WINDOW),
                                       min_replicas=low, max_replicas=high))

    def grid(self, names: Iterable[str]) -> Iterable[tuple[str, dict[str, float], Run]]:
        """Each peer among ``names`` with every target and window."""
        for name in names:
            if name not in PEERS:
                continue
            for target in TARGETS:
                for window in WINDOWS:
                    settings = {"target": target, "window": window}
                    yield name, settings, self.play(self.peer(name, settings))

    def _oracle(self) -> Run:
        scenario, service = self.scenario, self.scenario.service
        if isinstance(service, TokenService):
            raise ValueError("the oracle knows no language model")
        low, high, cold = scenario.min_replicas, scenario.max_replicas, scenario.cold_start
        tried: list[tuple[Sequence[int], Run]] = []

        def attempt(plan: Sequence[int]) -> Trial:
            run = self.play(Oracle(plan, cold, low, high))
            tried.append((plan, run))
            return Trial(late=len(run.ledger.late), replica_seconds=run.replica_seconds)

        best = search(self._arrivals, self._dice, service, scenario.slo, 1 - scenario.percentile / 100,
                      Bounds(low=low, high=high, cold_start=cold), attempt)
        return next(run for plan, run in tried if plan is best)

"""Often to zero and back under requests at any moment: none is lost, none is answered twice.

``ENGINEWRIGHT_CYCLES`` is how often in the study (200; 1,000 take 40 s).

Decisions are the real ones. Around them: replicas that take a while to start and go on answering for the drain only,
Services whose change reaches the nodes late, passes that come late, and an activator that refuses what it must.
"""

from __future__ import annotations

import os
import random
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from enginewright.core.config import OperatorConfig
from enginewright.core.decide.desired import Way
from enginewright.core.observed import PodView
from enginewright.core.signals import Sample, SignalWindow
from support.cluster import SPEC, Cluster

CYCLES = int(os.environ.get("ENGINEWRIGHT_CYCLES", "200"))
HOLD = 60
MOST = 1000
ZERO = {"minReplicas": 0, "maxReplicas": 3, "scaleToZeroAfterSeconds": 5, "holdSeconds": HOLD,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 2}}}


@dataclass
class Service:
    """What nodes know of it: the pods behind it, ``lag`` seconds late."""

    past: deque[frozenset[str]] = field(default_factory=deque)

    def tell(self, pods: frozenset[str], lag: int) -> None:
        self.past.append(pods)
        while len(self.past) > lag + 1:
            self.past.popleft()

    @property
    def pods(self) -> list[str]:
        return sorted(self.past[0]) if self.past else []


class Net:
    """Requests, and who gets them. A second at a time."""

    def __init__(self, seed: int, config: OperatorConfig | None = None) -> None:
        self.luck = random.Random(seed)
        self.cluster = Cluster(spec={**SPEC, "autoscaling": ZERO, "rollout": {"analysis": {"seconds": 0}}},
                               config=config or OperatorConfig())
        self.front, self.backend = Service(), Service()
        self.ending: dict[str, tuple[PodView, int]] = {}
        self.held: deque[tuple[int, int]] = deque()
        self.asked = 0
        self.answers: Counter[int] = Counter()
        self.lost: list[str] = []
        self.cold = 3
        self.lag = 1
        self.most_held = 0
        self.cluster.settle()

    @property
    def now(self) -> int:
        return int(self.cluster.monotonic)

    def second(self, requests: int) -> None:
        cluster = self.cluster
        if self.luck.random() < 0.8:
            cluster.operate()
        self._kubernetes()
        served = sum(self._ask() for _ in range(requests))
        served += self._deliver()
        self._sample(served)
        cluster.now += timedelta(seconds=1)

    def _kubernetes(self) -> None:
        cluster, before = self.cluster, dict(self.cluster.pods)
        cluster.deployment_controller()
        drain = cluster.config.drain_seconds
        self.ending |= {name: (pod, self.now) for name, pod in before.items() if name not in cluster.pods and pod.ready}
        # Dead ones are still behind the Service for a second.
        self.ending = {name: one for name, one in self.ending.items() if self.now - one[1] <= drain + 1}
        for name, pod in cluster.pods.items():
            if pod.created and (cluster.now - pod.created).total_seconds() >= self.cold:
                cluster.pods[name] = replace(pod, ready=True, phase="Running")
        for name in cluster.deployments:
            cluster._count(name)
        cluster.endpoint_controller()
        assert cluster.service is not None
        selected = None if cluster.service.activator else cluster.service.revision
        self.front.tell(frozenset(cluster.activators) if selected is None else self._behind(selected), self.lag)
        self.backend.tell(self._behind(cluster.backend), self.lag)

    def _behind(self, revision: str | None) -> frozenset[str]:
        """As kube-proxy: those that are ready; where none is, those that end."""
        mine = {name for name, pod in self.cluster.pods.items() if pod.ready and revision in ("", pod.revision)}
        return frozenset(mine or {name for name, (pod, _) in self.ending.items() if revision in ("", pod.revision)})

    def _alive(self, name: str) -> bool:
        if name in self.ending:
            return self.now - self.ending[name][1] <= self.cluster.config.drain_seconds
        return name in self.cluster.pods and self.cluster.pods[name].ready

    def _ask(self) -> bool:
        """Whether a replica got it."""
        number, self.asked = self.asked, self.asked + 1
        behind = self.front.pods
        if not behind:
            self.lost.append(f"{number} at {self.now}: nobody behind the Service")
            return False
        name = self.luck.choice(behind)
        if name in self.cluster.activators:
            if len(self.held) >= MOST:
                self.lost.append(f"{number} at {self.now}: full")
            self.held.append((number, self.now))
            self.most_held = max(self.most_held, len(self.held))
            return False
        if not self._alive(name):
            self.lost.append(f"{number} at {self.now}: {name} has ended")
            return False
        self.answers[number] += 1
        return True

    def _deliver(self) -> int:
        """What is held goes to a replica that takes the connection; else it stays."""
        late = [number for number, since in self.held if self.now - since > HOLD]
        self.lost += [f"{number} at {self.now}: late" for number in late]
        able = [name for name in self.backend.pods if self._alive(name)]
        if not able:
            return 0
        self.answers.update(number for number, _ in self.held)
        count = len(self.held)
        self.held.clear()
        return count

    def _sample(self, served: int) -> None:
        ready = sorted(name for name, pod in self.cluster.pods.items() if pod.ready)
        sample = Sample(time=float(self.now), ready=len(ready), pending=dict.fromkeys(ready, 0.0),
                        arrived=float(served) if ready else None, held=float(len(self.held)))
        window = self.cluster.signals or SignalWindow(started=float(self.now))
        self.cluster.signals = replace(window, samples=(*window.samples, sample)[-120:])

    def cycle(self) -> None:
        """Until no replica is left, with a request now and then in the worst moments; then until one is back."""
        self.cold, self.lag = self.luck.randint(1, 12), self.luck.randint(0, 3)
        stray = self.luck.choice([0.0, 0.1, 0.2])
        for _ in range(400):
            self.second(int(self.luck.random() < stray))
            if not any(self.cluster.replicas().values()) and not self.held and not self.luck.randint(0, 6):
                break
        else:
            raise AssertionError("it never slept")
        for _ in range(self.luck.randint(1, 40)):
            self.second(self.luck.choice([0, 1, 5]))
        for _ in range(60):
            if not self.held:
                return
            self.second(0)
        raise AssertionError("what is held is never delivered")


@pytest.mark.parametrize("cycles", [15, pytest.param(CYCLES, marks=pytest.mark.study)])
def test_nothing_is_lost_to_zero_and_back(cycles: int) -> None:
    net = Net(seed=6)
    for _ in range(cycles):
        net.cycle()
    print(f"\n{cycles} times to zero, {net.asked} requests, {len(net.lost)} lost, at most {net.most_held} held")
    assert net.lost == []
    assert net.answers == dict.fromkeys(range(net.asked), 1)


def test_the_network_loses_what_nobody_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nothing is lost is no property of this network."""
    monkeypatch.setattr("enginewright.core.decide.traffic._way", lambda *_: Way.DIRECT)
    net = Net(seed=6)
    for _ in range(5):
        net.cycle()
    assert any("nobody behind the Service" in said for said in net.lost)


def test_the_network_loses_what_reaches_a_replica_that_ends_at_once() -> None:
    net = Net(seed=6, config=OperatorConfig(drain_seconds=0))
    for _ in range(50):
        net.cycle()
        if net.lost:
            break
    assert any("has ended" in said for said in net.lost)

"""Watching replicas while load comes and goes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rich.console import Console

from demo.shell import Kube, StepError


@dataclass
class ReplicaWatch:
    """Follows one model's ready replicas and prints each change with the operator's reason."""

    kube: Kube
    namespace: str
    name: str
    console: Console
    peak: int = 0
    last: tuple[int, int] = (-1, -1)

    def until(self, wanted: str, reached: int, timeout: float) -> None:
        """Waits for at least (``wanted`` is ``up``) or exactly (``down``) ``reached`` ready replicas.

        Raises :class:`StepError` after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            ready, desired = self.look()
            done = ready >= reached if wanted == "up" else ready == desired == reached
            if done:
                return
            time.sleep(0.5)
        raise StepError(f"{self.name} did not scale {wanted} to {reached} within {timeout:.0f} s; last seen: "
                         f"{self.last[0]} ready of {self.last[1]}")

    def look(self) -> tuple[int, int]:
        """(ready, desired) replicas now."""
        status = self.kube.json("get", "optimisedmodel", self.name, "-n", self.namespace).get("status", {})
        scaling = status.get("autoscaling", {})
        selector = f"enginewright.io/model={self.name},app.kubernetes.io/component=server"
        deployments = self.kube.json("get", "deployment", "-n", self.namespace, "-l", selector)["items"]
        ready = sum(d.get("status", {}).get("readyReplicas", 0) for d in deployments)
        desired = sum(d["spec"].get("replicas", 0) for d in deployments)
        self.peak = max(self.peak, ready)
        if (ready, desired) != self.last:
            decisions = scaling.get("decisions", [])
            reason = decisions[0]["reason"] if decisions else ""
            self.console.print(f"  {ready} ready of {desired} wanted, queue {scaling.get('queueDepth', 0)}"
                               + (f"; last decision: {reason}" if reason else ""), highlight=False)
            self.last = (ready, desired)
        return ready, desired

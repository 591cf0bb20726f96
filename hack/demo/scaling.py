"""Watching replicas while load comes and goes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from demo.follow import Followed
from demo.shell import Kube, StepError

Object = dict[str, Any]


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
        with (Followed(self.kube, "optimisedmodel", self.namespace, self.name) as models,
              Followed(self.kube, "deployment", self.namespace, "-l", self._servers) as deployments):
            while time.monotonic() < deadline:
                ready, desired = self._note(models.now(timeout)[0], deployments.now(timeout))
                done = ready >= reached if wanted == "up" else ready == desired == reached
                if done:
                    return
                time.sleep(0.5)
        raise StepError(f"{self.name} did not scale {wanted} to {reached} within {timeout:.0f} s; last seen: "
                         f"{self.last[0]} ready of {self.last[1]}")

    def look(self) -> tuple[int, int]:
        """(ready, desired) replicas now."""
        model = self.kube.json("get", "optimisedmodel", self.name, "-n", self.namespace)
        deployments = self.kube.json("get", "deployment", "-n", self.namespace, "-l", self._servers)["items"]
        return self._note(model, deployments)

    @property
    def _servers(self) -> str:
        return f"enginewright.io/model={self.name},app.kubernetes.io/component=server"

    def _note(self, model: Object, deployments: Sequence[Object]) -> tuple[int, int]:
        scaling = model.get("status", {}).get("autoscaling", {})
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

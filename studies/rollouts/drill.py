"""The drill itself: one move a method, each waits as a user would and counts what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from demo.shell import StepError
from enginewright.core import labels
from enginewright.core.reasons import Reason
from rollouts import models
from rollouts.cluster import MODEL, SERVERS, STORE_URI, Corner, condition
from rollouts.summary import Summary

REPLICAS = 2
# Limits of waits, in seconds, which end a drill that hangs: a busy machine takes several times as long as another.
PROMOTED_SECONDS, REPLACED_SECONDS = 600, 300
# Seconds between two looks: each starts kubectl twice, beside what it looks at.
PATIENCE = 1.0


@dataclass
class Drill:
    """``asked`` gives the part of a spec that is the model's: of variant 0 for the real build, and of each number after
    it for a candidate with an engine of its own. A replica that goes is replaced within ``replaced_seconds``, a
    revision promoted or rolled back within ``promoted_seconds``. Where the analysis of an equal candidate could not
    tell, the drill annotates the object for a retry, as the operator's message says: ``tries_again`` times in all."""

    corner: Corner
    summary: Summary
    console: Console
    strategy: str = "Canary"
    analysis_seconds: int = 20
    analysis: Mapping[str, Any] = field(default_factory=dict)
    max_surge: int = 1
    asked: Callable[[int], dict[str, Any]] = models.spec
    replaced_seconds: float = REPLACED_SECONDS
    promoted_seconds: int = PROMOTED_SECONDS
    tries_again: int = 0
    variant: int = 0
    replicas: int = REPLICAS
    engine: str = ""
    good_spec: dict[str, Any] = field(default_factory=dict)

    def build(self) -> None:
        """The one real build; all candidates are copies of its engine."""
        self.corner.apply(self._spec())
        self.corner.wait("condition=Ready", self.promoted_seconds)
        self.engine = self.corner.model()["status"]["engine"]["fingerprint"]
        self.good_spec = self._spec()

    def promote(self) -> None:
        """A candidate that equals the stable engine within noise must take over."""
        self.summary.equal_candidates += 1
        self.summary.rollouts += 1
        fingerprint = self._offer("equal")
        promoted = self._settled(fingerprint)
        while not promoted and self.tries_again and Reason.ANALYSIS_INCONCLUSIVE in self._rollout():
            self._try_again()
            promoted = self._settled(fingerprint)
        if promoted:
            self.summary.equal_promoted += 1
            self.good_spec = self._spec()
            self._no_other_traffic()
        else:
            self._surprise(f"an equal candidate was not promoted: {self._rollout()}")
            self.return_to_good()

    def refuse(self, fault: str) -> None:
        """A bad candidate must be rolled back by itself, and the stable engine serve on."""
        self.summary.bad_candidates += 1
        before = self.corner.traffic_revisions()
        fingerprint = self._offer(fault)
        if self._settled(fingerprint):
            self._surprise(f"a candidate that is {fault} was promoted")
            return
        self.summary.bad_rolled_back += 1
        self.summary.rollbacks += 1
        self.console.print(f"    {self._rollout()}", soft_wrap=True)
        self._until(lambda: self.corner.traffic_revisions() == before, self.replaced_seconds,
                    f"traffic to go back to {', '.join(before)} alone")
        self.return_to_good()

    def kill(self, *, abruptly: bool) -> None:
        """One replica goes: deleted, or abruptly, by SIGKILL."""
        victim = next(pod for pod in self.corner.servers() if _is_ready(pod))
        name = victim["metadata"]["name"]
        if abruptly:
            self.corner.strike(victim)
        else:
            self.corner.kube("delete", "pod", name, "-n", self.corner.namespace, "--wait=false")
        self.summary.kills += 1
        gone = (name, _restarts(victim)) if abruptly else (name, None)
        self._until(lambda: self._full(without=gone), self.replaced_seconds, "the replica to be replaced")

    def drain(self) -> None:
        """As for a node's maintenance, of the model's pods alone: the node is the only one."""
        kube, node = self.corner.kube, self.corner.servers()[0]["spec"]["nodeName"]
        before = {pod["metadata"]["uid"] for pod in self.corner.servers()}
        kube("cordon", node)
        try:
            # The budget lets one replica go; the other has nowhere to go to and stays, so that this does not end well.
            kube("drain", node, f"--pod-selector={SERVERS}", "--ignore-daemonsets", "--delete-emptydir-data",
                 "--timeout=15s", "--disable-eviction=false", timeout=60)
        except StepError as held:
            self.console.print(f"    {str(held).splitlines()[-1]}", soft_wrap=True)
        finally:
            kube("uncordon", node)
        self.summary.drains += 1
        self._until(self._full, self.replaced_seconds, "the evicted replicas to be replaced")
        if {pod["metadata"]["uid"] for pod in self.corner.servers()} == before:
            self._surprise("the drain evicted no pod")

    def scale(self, replicas: int) -> None:
        self.corner.kube("scale", f"om/{MODEL}", "-n", self.corner.namespace, f"--replicas={replicas}")
        self.replicas = replicas
        self.summary.scalings += 1
        self._until(self._full, self.replaced_seconds, f"{replicas} replicas")
        self.good_spec = {**self.good_spec, "replicas": replicas}

    def return_to_good(self) -> None:
        self.corner.apply(self.good_spec)
        self.corner.wait("condition=Ready", self.promoted_seconds)
        self._no_other_traffic()

    def _offer(self, fault: str) -> str:
        """Has the spec ask for a new engine that is in the store already, and returns its fingerprint."""
        self.variant += 1
        # Suspended, the operator names the engine that it would build and does not build it.
        generation = self.corner.apply({**self._spec(), "suspend": True})
        self._until(lambda: self.corner.model()["status"].get("observedGeneration", 0) >= generation,
                    self.replaced_seconds, "the fingerprint of the new spec")
        fingerprint = str(self.corner.model()["status"]["fingerprint"])
        self.corner.plant(self.engine, fingerprint, fault)
        self.console.print(f"  {fault} candidate {fingerprint[:8]}")
        self.corner.apply(self._spec())
        return fingerprint

    def _try_again(self) -> None:
        """Annotates the object and waits until the operator offers the revision once more."""
        self.console.print(f"    {self._rollout()}", soft_wrap=True)
        self.tries_again -= 1
        self.corner.kube("annotate", f"om/{MODEL}", "-n", self.corner.namespace, "--overwrite",
                         f"{labels.RETRY}={self.variant}-{self.tries_again}")
        self._until(lambda: not self._rollout().startswith(Reason.ROLLED_BACK), self.replaced_seconds,
                    "the retry to begin")

    def _settled(self, fingerprint: str) -> bool:
        """True when it was promoted, False when it was rolled back. Raises :class:`StepError` for neither."""
        ended: list[bool] = []

        def has_ended() -> bool:
            self._look()
            model = self.corner.model()
            if model["status"].get("observedGeneration") == model["metadata"]["generation"]:
                if condition(model, "Ready")["status"] == "True":
                    ended.append(bool(model["status"]["engine"]["fingerprint"] == fingerprint))
                elif condition(model, "RolloutComplete")["reason"] == "RolledBack":
                    ended.append(False)
            return bool(ended)

        self._until(has_ended, self.promoted_seconds, f"candidate {fingerprint[:8]} to be promoted or rolled back")
        return ended[0]

    def _no_other_traffic(self) -> None:
        """Right after Ready: who still gets traffic?"""
        revisions = self.corner.traffic_revisions()
        if len(revisions) != 1:
            self.summary.foreign_traffic += 1
            self._surprise(f"Ready is True and revisions {', '.join(sorted(revisions))} get traffic")

    def _full(self, without: tuple[str, int | None] = ("", None)) -> bool:
        """All replicas are ready; not counted is the one named in ``without``, while it has restarted so often only."""
        pods = self.corner.servers()
        ready = [pod for pod in pods if _is_ready(pod)
                 and not (pod["metadata"]["name"] == without[0] and without[1] in (None, _restarts(pod)))]
        return len(ready) == self.replicas == len([pod for pod in pods if not _leaving(pod)])

    def _look(self) -> None:
        there = [pod for pod in self.corner.servers() if not _leaving(pod)]
        self.summary.most_pods = max(self.summary.most_pods, len(there))

    def _until(self, reached: Any, seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                raise StepError(f"waited {seconds:.0f} s in vain for {what}: {self._rollout()}")
            time.sleep(PATIENCE)

    def _rollout(self) -> str:
        found = condition(self.corner.model(), "RolloutComplete")
        return f"{found['reason']}: {found['message']}"

    def _surprise(self, what: str) -> None:
        self.console.print(f"  [bold red]{what}[/]", soft_wrap=True)
        self.summary.surprises.append(what)

    def _spec(self) -> dict[str, Any]:
        return {
            **self.asked(self.variant),
            "placement": {"accelerator": "cpu"},
            "replicas": self.replicas,
            "rollout": {"strategy": self.strategy, "analysis": {"seconds": self.analysis_seconds, **self.analysis},
                        "maxSurge": self.max_surge},
            "store": {"uri": STORE_URI},
        }


def _leaving(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return not _leaving(pod) and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

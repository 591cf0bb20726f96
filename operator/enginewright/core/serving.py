"""Who serves now: facts about revisions, read off the world rather than off status, which may be lost or late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from enginewright.core.observed import DeploymentView, Observed, PodView
from enginewright.core.routing import Weights
from enginewright.core.status import RolloutStatus


@dataclass(frozen=True, kw_only=True)
class Serving:
    """``stable`` is the revision that traffic relies on: it must not be touched before another one is ready. ``alive``
    are all Deployments that are not on their way out; ``traffic`` counts ready addresses of replicas by revision,
    ``answering`` ready pods: a Deployment's own counts lag behind its pods. ``routes`` are the weights by revision of
    each route."""

    stable: DeploymentView | None
    alive: tuple[DeploymentView, ...]
    traffic: Mapping[str, int]
    answering: Mapping[str, int]
    routes: tuple[Weights, ...] = ()

    @classmethod
    def of(cls, observed: Observed, memory: RolloutStatus | None) -> Self:
        alive = tuple(deployment for deployment in observed.deployments if not deployment.deleting)
        answering = Counter(pod.revision for pod in observed.pods if pod.ready and not pod.deleting)
        traffic = Counter(entry.revision for entry in observed.endpoints if entry.ready and not entry.terminating
                          and not entry.activator)
        selected = observed.service.revision if observed.service else ""
        stable = _stable(alive, answering, selected, (memory.stable if memory else None) or "")
        return cls(stable=stable, alive=alive, traffic=traffic, answering=answering,
                   routes=tuple(observed.gateway.weights.values()))

    def deployment(self, revision: str) -> DeploymentView | None:
        return next((deployment for deployment in self.alive if deployment.revision == revision), None)

    def full(self, deployment: DeploymentView | None, replicas: int) -> bool:
        """Whether ``replicas`` of its newest spec are available, by its own counts and by its pods."""
        if deployment is None or deployment.observed_generation < deployment.generation:
            return False
        return min(deployment.available, self.answering.get(deployment.revision, 0)) >= replicas

    def answers(self, deployment: DeploymentView | None) -> bool:
        return deployment is not None and self.answering.get(deployment.revision, 0) > 0


def _stable(
    alive: tuple[DeploymentView, ...], answering: Mapping[str, int], selected: str, proven: str
) -> DeploymentView | None:
    """The Service's word first: it is the traffic. Then what was proven, should its replicas be down for the moment.
    Then the ready one. A revision that never got ready is not relied on."""
    ready = [deployment for deployment in alive if answering.get(deployment.revision)]
    in_order = (
        *(deployment for deployment in ready if deployment.revision == selected),
        *(deployment for deployment in alive if deployment.revision == proven),
        *sorted(ready, key=lambda deployment: (deployment.created, deployment.name)),
    )
    return in_order[0] if in_order else None


def pods_of(observed: Observed, revision: str) -> tuple[PodView, ...]:
    """Of the Deployment of ``revision`` that is there. Without those on their way out, and those that have ended: what
    was evicted lies about after it was replaced. And without those that an earlier Deployment of the same name has left
    for the garbage collector, which may take its time: they say nothing of the one in its place. The Deployment does
    not count them, and is younger; one of the two alone is no proof, as its counts lag behind its pods and the clocks
    of two apiservers differ."""
    deployed = observed.deployment(revision)
    if deployed is None:
        return ()
    found = tuple(pod for pod in observed.pods if pod.revision == revision and not pod.deleting
                  and pod.phase not in ("Failed", "Succeeded"))
    if len(found) <= deployed.replicas:
        return found
    return tuple(pod for pod in found if pod.created is None or pod.created >= deployed.created)


def unwatched(serving: Serving) -> str:
    """Of revisions that a rollout which does not go on left with a part of the traffic: a sentence each, with a space
    before it."""
    if serving.stable is None:
        return ""
    shares = {name: f"{ready} of {sum(serving.traffic.values())} replicas" for name, ready in serving.traffic.items()}
    for weights in serving.routes:
        shares |= {name: f"{share} % of what comes through the Gateway" for name, share in weights.items() if share}
    return "".join(
        f" Revision {name}, which is not proven, keeps its share of the traffic ({share}), and no analysis watches it."
        for name, share in sorted(shares.items())
        if name != serving.stable.revision
    )

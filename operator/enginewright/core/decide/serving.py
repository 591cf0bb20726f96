"""Who serves now: facts about revisions, read off the world rather than off status, which may be lost or late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from enginewright.core.observed import DeploymentView, Observed, PodView
from enginewright.core.status import RolloutStatus


@dataclass(frozen=True, kw_only=True)
class Serving:
    """``stable`` is the revision that traffic relies on: it must not be touched before another one is ready. ``alive``
    are all Deployments that are not on their way out; ``traffic`` counts ready addresses by revision."""

    stable: DeploymentView | None
    alive: tuple[DeploymentView, ...]
    traffic: dict[str, int]

    @classmethod
    def of(cls, observed: Observed, memory: RolloutStatus | None) -> Self:
        alive = tuple(deployment for deployment in observed.deployments if not deployment.deleting)
        traffic: dict[str, int] = {}
        for endpoint in observed.endpoints:
            if endpoint.ready and not endpoint.terminating:
                traffic[endpoint.revision] = traffic.get(endpoint.revision, 0) + 1
        return cls(stable=_stable(observed, alive, memory), alive=alive, traffic=traffic)

    def deployment(self, revision: str) -> DeploymentView | None:
        return next((deployment for deployment in self.alive if deployment.revision == revision), None)


def _stable(
    observed: Observed, alive: tuple[DeploymentView, ...], memory: RolloutStatus | None
) -> DeploymentView | None:
    """The Service's word first: it is the traffic. Then what was proven, should its replicas be down for the moment.
    Then whoever is ready. A revision that never got ready is nobody's to rely on."""
    selected = observed.service.revision if observed.service else ""
    proven = memory.stable if memory else None
    for deployment in alive:
        if deployment.revision == selected and (deployment.ready or deployment.revision == proven):
            return deployment
    for deployment in alive:
        if deployment.revision == proven:
            return deployment
    ready = sorted((d for d in alive if d.ready), key=lambda deployment: (deployment.created, deployment.name))
    return ready[0] if ready else None


def current(deployment: DeploymentView) -> bool:
    """Whether its counts speak of its newest spec."""
    return deployment.observed_generation >= deployment.generation


def pods_of(observed: Observed, revision: str) -> tuple[PodView, ...]:
    return tuple(pod for pod in observed.pods if pod.revision == revision and not pod.deleting)

"""From an object that changed to the keys that should run a pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from enginewright.clients.resources import CLAIM, CONFIG_MAP, DISRUPTION_BUDGET, JOB, LEASE, OPTIMISED_MODEL, Resource
from enginewright.core import labels
from enginewright.observe.keys import Key

Body = Mapping[str, Any]


class Hints(Protocol):
    """Which models wait for what carries no label of theirs."""

    def of_claim(self, namespace: str, claim: str) -> Iterable[Key]: ...

    def of_fingerprint(self, namespace: str, fingerprint: str) -> Iterable[Key]: ...

    def of_job(self, namespace: str, job: str) -> Iterable[Key]: ...


@dataclass(frozen=True)
class Translator:
    """Pure translation; nothing here reads or decides."""

    hints: Hints

    def keys(self, resource: Resource, body: Body) -> Iterable[Key]:
        """Those that a change of ``body`` is news for. The status of a disruption budget and the renewals of a lease
        are news for none."""
        if resource in (DISRUPTION_BUDGET, LEASE):
            return ()
        translations = {OPTIMISED_MODEL: self.itself, CONFIG_MAP: self.config_map, CLAIM: self.claim, JOB: self.job}
        return translations.get(resource, self.child)(body)

    def asked(self, resource: Resource, body: Body) -> bool:
        """Whether it is an object whose spec no pass has looked at yet."""
        if resource != OPTIMISED_MODEL:
            return False
        return bool((body.get("status") or {}).get("observedGeneration") != body["metadata"].get("generation"))

    def itself(self, body: Body) -> Iterable[Key]:
        """And the fleet that it serves a class of."""
        metadata = body["metadata"]
        names = (metadata["name"], _owner(metadata))
        return tuple(Key(metadata["namespace"], name) for name in names if name)

    def child(self, body: Body) -> Iterable[Key]:
        """By the controlling owner, else by label: pods are owned by Jobs and ReplicaSets, slices by Services."""
        metadata = body["metadata"]
        name = _owner(metadata) or (metadata.get("labels") or {}).get(labels.MODEL)
        return (Key(metadata["namespace"], name),) if name else ()

    def job(self, body: Body) -> Iterable[Key]:
        """Its own object, and those that wait for what it tells."""
        metadata = body["metadata"]
        return (*self.child(body), *self.hints.of_job(metadata["namespace"], metadata["name"]))

    def config_map(self, body: Body) -> Iterable[Key]:
        """A build request belongs to one object, an engine record is news for all that want this engine."""
        metadata = body["metadata"]
        found = metadata.get("labels") or {}
        if found.get(labels.ENGINE) != "true":
            return self.child(body)
        return self.hints.of_fingerprint(metadata["namespace"], found.get(labels.FINGERPRINT, ""))

    def claim(self, body: Body) -> Iterable[Key]:
        metadata = body["metadata"]
        return self.hints.of_claim(metadata["namespace"], metadata["name"])


def _owner(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or ()
    return next((str(ref["name"]) for ref in owners if ref.get("kind") == labels.KIND), "")

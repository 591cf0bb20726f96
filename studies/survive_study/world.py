"""What is in a namespace, as the apiserver has it at one time or nearly so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import (
    CLAIM,
    CLAIM_TEMPLATE,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    JOB,
    LEASE,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels

# Kinds that the operator makes for a model.
CHILDREN = (JOB, DEPLOYMENT, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, CLAIM_TEMPLATE, LEASE)
KINDS = (OPTIMISED_MODEL, POD, CLAIM, *CHILDREN)


@dataclass(frozen=True)
class World:
    """``of`` has the objects by the plural of their kind. ``proven`` are the fingerprints that the builder said were
    built and accurate, ``foreign`` names of objects that are not the operator's, by plural, as they were made."""

    of: Mapping[str, list[Object]]
    proven: frozenset[str] = frozenset()
    foreign: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __getitem__(self, resource: Resource) -> list[Object]:
        return self.of.get(resource.plural, [])

    def ours(self, resource: Resource) -> Iterator[Object]:
        """Those that bear the operator's mark and are not ``foreign``."""
        strange = self.foreign.get(resource.plural, {})
        for item in self[resource]:
            marks = item["metadata"].get("labels") or {}
            if marks.get(labels.MANAGED_BY) == labels.PRODUCT and item["metadata"]["name"] not in strange:
                yield item


async def look(kube: KubeClient, namespace: str, proven: frozenset[str],
               foreign: Mapping[str, Mapping[str, Any]]) -> World:
    found = await asyncio.gather(*(kube.list_all(resource, namespace) for resource in KINDS))
    return World({resource.plural: list(items) for resource, items in zip(KINDS, found, strict=True)}, proven, foreign)


def ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return not pod["metadata"].get("deletionTimestamp") and any(
        one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def matches(selector: Mapping[str, str], item: Object) -> bool:
    marks = item["metadata"].get("labels") or {}
    return bool(selector) and all(marks.get(key) == value for key, value in selector.items())


def condition(model: Object, kind: str) -> Object:
    """Of the spec that there is; empty where the operator has not spoken of it."""
    status = model.get("status") or {}
    if status.get("observedGeneration") != model["metadata"]["generation"]:
        return {}
    return next((one for one in status.get("conditions") or () if one["type"] == kind), {})


def versions(world: World) -> dict[str, str]:
    """resourceVersions of models and of what belongs to them, but for leases of leaders."""
    return {f"{resource.plural}/{item['metadata']['name']}": item["metadata"]["resourceVersion"]
            for resource in (OPTIMISED_MODEL, JOB, DEPLOYMENT, SERVICE, CONFIG_MAP) for item in world[resource]}

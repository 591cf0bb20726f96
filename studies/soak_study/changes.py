"""Changes of what is there, as a cluster makes most of them: none asks the operator to write anything but status."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from enginewright.clients.errors import ClientError
from enginewright.clients.kube import MERGE, Object
from enginewright.clients.resources import (
    CONFIG_MAP,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    JOB,
    OPTIMISED_MODEL,
    POD,
    SERVICE,
    Resource,
)
from enginewright.core import labels
from support.apiserver import Models

# Out of a hundred changes, and what each is made to.
SHARES: Final[Mapping[str, tuple[int, Resource]]] = {
    "message in a pod's status": (45, POD), "readiness of a pod, lost and found": (3, POD),
    "spec that asks for the same pods": (6, OPTIMISED_MODEL), "annotation of a model": (8, OPTIMISED_MODEL),
    "annotation of a Deployment": (8, DEPLOYMENT), "annotation of a Service": (8, SERVICE),
    "annotation of an EndpointSlice": (12, ENDPOINT_SLICE), "annotation of a Job": (5, JOB),
    "annotation of a ConfigMap": (5, CONFIG_MAP)}
# Seconds: for which a pod is not ready, and between two looks at what there is.
LOST: Final = 1.0
LOOK: Final = 60.0


class Changes:
    """To ``names``, objects that stay, and to their children. ``made`` counts changes by what they are, ``refused``
    those that the apiserver did not take."""

    def __init__(self, models: Models, names: frozenset[str], seed: int) -> None:
        self._models, self._names = models, names
        self._chance = random.Random(seed)  # noqa: S311
        self._there: dict[Resource, list[str]] = {}
        self._looked = -math.inf
        self.made: Counter[str] = Counter()
        self.refused = 0

    async def look(self) -> None:
        """What there is to change, of objects that stay."""
        self._looked, there = time.monotonic(), dict[Resource, list[str]]()
        for resource in {resource for _, resource in SHARES.values()}:
            selector = "" if resource == OPTIMISED_MODEL else labels.MODEL
            found = await self._models.kube.list_all(resource, self._models.namespace, labels=selector)
            there[resource] = [one["metadata"]["name"] for one in found if _model_of(one) in self._names]
        self._there = there

    async def one(self) -> None:
        """Of a kind by chance, of which there is an object."""
        try:
            if time.monotonic() - self._looked > LOOK:
                await self.look()
            kinds = {what: share for what, (share, resource) in SHARES.items() if self._there[resource]}
            what = self._chance.choices(list(kinds), list(kinds.values()))[0]
            await self._make(what, self.made.total())
            self.made[what] += 1
        except ClientError:
            self.refused += 1

    async def _make(self, what: str, number: int) -> None:
        resource = SHARES[what][1]
        name = self._chance.choice(self._there[resource])
        if what.startswith("annotation"):
            await self._patch(resource, name, {"metadata": {"annotations": {"soak": str(number)}}})
        elif what.startswith("spec"):
            await self._patch(resource, name, {"spec": {"revisionHistoryLimit": 5 + number % 5}})
        elif what.startswith("message"):
            await self._patch(resource, name, {"status": {"message": f"change {number}"}}, "status")
        else:
            await self._patch(resource, name, _readiness("False"), "status")
            await asyncio.sleep(LOST)
            await self._patch(resource, name, _readiness("True"), "status")

    async def _patch(self, resource: Resource, name: str, body: dict[str, Any], subresource: str = "") -> None:
        path = resource.path(self._models.namespace, name, subresource)
        await self._models.kube._json("patch", resource, path, query={"fieldManager": "soak"}, body=body,
                                      content_type=MERGE)


def _model_of(one: Object) -> str:
    """The model that an object belongs to, or is."""
    metadata = one["metadata"]
    return str((metadata.get("labels") or {}).get(labels.MODEL, metadata["name"]))


def _readiness(verdict: str) -> dict[str, Any]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"status": {"conditions": [{"type": kind, "status": verdict, "lastTransitionTime": now}
                                      for kind in ("Ready", "ContainersReady")]}}

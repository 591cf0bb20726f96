"""What happens to an object from its creation until it is gone: changes by users, pods that go, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from attack.rows import Row
from enginewright.clients.errors import NotFoundError
from enginewright.clients.resources import OPTIMISED_MODEL, POD
from enginewright.core import labels
from scale_study.settled import until
from support.apiserver import Models, model

FIELDS: Final = ('{.metadata.name} {.metadata.generation} {.status.observedGeneration} '
                 '{.status.conditions[?(@.type=="Ready")].status} {.status.source.digest}')
CHANGES: Final = 4
PATIENCE: Final = 300.0
SPECS: Final[tuple[dict[str, Any], ...]] = (
    {"replicas": 2, "autoscaling": None}, {"replicas": 1, "autoscaling": None},
    {"replicas": None, "autoscaling": {"minReplicas": 1, "maxReplicas": 3}},
    {"replicas": None, "autoscaling": {"minReplicas": 2, "maxReplicas": 4, "targetQueueDepth": 3}})


@dataclass
class Seen:
    """Which objects are ready with the generation that they have, by a watch of kubectl's."""

    ready: dict[str, bool] = field(default_factory=dict)
    digest: str = ""

    def take(self, row: Row) -> None:
        name, generation, observed, ready, digest = row
        self.ready[name] = ready == "True" and generation == observed
        self.digest = digest or self.digest


class Lives:
    """``begun`` and ``ended`` count objects, ``changed`` what was done to them. Names never come again."""

    def __init__(self, models: Models, seen: Seen, seed: int) -> None:
        self._models, self._seen = models, seen
        self._chance = random.Random(seed)  # noqa: S311
        self._numbers = itertools.count()
        self.begun = self.ended = self.changed = 0

    async def until(self, enough: Callable[[], bool], at_once: int) -> None:
        """So many objects live at once, one after another in each place, until it is enough; all have gone then."""
        async def place() -> None:
            while not enough():
                await self._life(f"life-{next(self._numbers)}")

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(place())

    async def _life(self, name: str) -> None:
        source = {"uri": "pvc://models/minilm", "digest": self._seen.digest}
        await self._models.create(model(name, source=source))
        self.begun += 1
        await self._ready(name)
        for _ in range(CHANGES):
            await self._change(name)
            await self._ready(name)
        await self._models.delete(name)
        await self._models.gone(OPTIMISED_MODEL, name)
        self._seen.ready.pop(name, None)
        self.ended += 1

    async def _change(self, name: str) -> None:
        self.changed += 1
        if self._chance.random() < 0.5:
            self._seen.ready[name] = False
            await self._models.patch({"spec": self._chance.choice(SPECS)}, name)
            await self._models.patch({"metadata": {"annotations": {"soak": str(self.changed)}}}, name)
            self._seen.ready[name] = await self._is_ready(name)
            return
        pods = await self._models.kube.list_all(POD, self._models.namespace, labels=f"{labels.MODEL}={name}")
        if pods:
            gone = self._chance.choice(pods)["metadata"]["name"]
            with contextlib.suppress(NotFoundError):  # its Deployment was faster
                await self._models.kube.delete(POD, self._models.namespace, gone)

    async def _ready(self, name: str) -> None:
        await until(lambda: self._seen.ready.get(name, False), PATIENCE, f"{name} is ready")

    async def _is_ready(self, name: str) -> bool:
        return (await self._models.condition("Ready", name)).get("status") == "True"

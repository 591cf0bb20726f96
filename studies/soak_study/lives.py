"""What happens to an object from its creation until it is gone: changes by users, pods that go, and its end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from attack.rows import Row
from enginewright.clients.errors import AlreadyExistsError, ClientError, NotFoundError
from enginewright.clients.resources import OPTIMISED_MODEL, POD
from enginewright.core import labels
from scale_study.settled import until
from support.apiserver import Models, model

FIELDS: Final = ('{.metadata.name} {.metadata.generation} {.status.observedGeneration} '
                 '{.status.conditions[?(@.type=="Ready")].status} {.status.source.digest}')
CHANGES: Final = 4
PATIENCE: Final = 900.0
PAUSE: Final = 1.0
T = TypeVar("T")
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
    """``ended`` counts objects, ``changed`` what was done to them, and ``refused`` calls that were made again. Names
    never come again."""

    def __init__(self, models: Models, seen: Seen, seed: int) -> None:
        self._models, self._seen = models, seen
        self._chance = random.Random(seed)  # noqa: S311
        self._numbers = itertools.count()
        self.ended = self.changed = self.refused = 0

    async def one(self) -> None:
        name = f"life-{next(self._numbers)}"
        await self.begin(name)
        for _ in range(CHANGES):
            await self._change(name)
            await self._ready(name)
        await self._insist(lambda: self._models.delete(name))
        await self._models.gone(OPTIMISED_MODEL, name)
        self._seen.ready.pop(name, None)
        self.ended += 1

    async def begin(self, name: str) -> None:
        """An object that is served."""
        source = {"uri": "pvc://models/minilm", "digest": self._seen.digest}
        await self._insist(lambda: self._models.create(model(name, source=source)))
        await self._ready(name)

    async def _change(self, name: str) -> None:
        self.changed += 1
        if self._chance.random() < 0.5:
            self._seen.ready[name] = False
            spec, number = self._chance.choice(SPECS), self.changed
            await self._insist(lambda: self._models.patch({"spec": spec}, name))
            await self._insist(lambda: self._models.patch({"metadata": {"annotations": {"soak": str(number)}}}, name))
            self._seen.ready[name] = await self._insist(lambda: self._is_ready(name)) or False
            return
        pods = await self._insist(lambda: self._models.kube.list_all(POD, self._models.namespace,
                                                                     labels=f"{labels.MODEL}={name}"))
        if pods:
            gone = self._chance.choice(pods)["metadata"]["name"]
            # Its Deployment may be faster.
            await self._insist(lambda: self._models.kube.delete(POD, self._models.namespace, gone))

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Again until the apiserver takes it, which another load may keep from answering; None where the answer to the
        call before was lost."""
        while True:
            try:
                return await call()
            except (NotFoundError, AlreadyExistsError):
                return None
            except ClientError:
                self.refused += 1
                await asyncio.sleep(PAUSE)

    async def _ready(self, name: str) -> None:
        await until(lambda: self._seen.ready.get(name, False), PATIENCE, f"{name} is ready")

    async def _is_ready(self, name: str) -> bool:
        return (await self._models.condition("Ready", name)).get("status") == "True"

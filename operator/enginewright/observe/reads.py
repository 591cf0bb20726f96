"""Two ways to read the same: from the apiserver, and from what the operator remembers. And a third in between:
whether the apiserver still has just what was remembered."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Final, Protocol, TypeAlias

import structlog

from enginewright.clients.errors import NotFoundError, RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CLAIM, CONFIG_MAP, DISRUPTION_BUDGET, LEASE, OPTIMISED_MODEL, Resource
from enginewright.core.observed import Version
from enginewright.observe.fields import Raw, name_of
from enginewright.observe.memory import Memory
from enginewright.observe.together import in_turn, together
from enginewright.observe.views import version_of

# Kinds of which a look that is confirmed may be late: see :mod:`enginewright.reconcile.looks`. The object itself is
# asked for last.
UNCONFIRMED: Final = frozenset({OPTIMISED_MODEL, CLAIM, LEASE, DISRUPTION_BUDGET})
Place: TypeAlias = tuple[Resource, str, str]  # a kind, the namespace, the name
log = structlog.get_logger(__name__)


class Reads(Protocol):
    """All raise :class:`~enginewright.clients.errors.ClientError`."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Raises :class:`~enginewright.clients.errors.NotFoundError` where there is no such object."""
        ...

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """As :meth:`get`, of a kind that the operator may list and not get; None where there is no such object."""
        ...

    async def list_all(self, resource: Resource, namespace: str, *, labels: str = "") -> list[Object]:
        """``labels`` is a label selector of equalities and of keys that must be there."""
        ...


class Fresh:
    """From the apiserver. What it says is remembered."""

    def __init__(self, kube: KubeClient, memory: Memory) -> None:
        self._kube = kube
        self._memory = memory

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        began = self._memory.now()
        try:
            raw = await self._kube.get(resource, namespace, name)
        except NotFoundError:
            self._memory.gone(resource, namespace, name, began)
            raise
        self._memory.confirm(resource, raw, began)
        return raw

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        began = self._memory.now()
        raw = await self._kube.find(resource, namespace, name)
        if raw is None:
            self._memory.gone(resource, namespace, name, began)
        else:
            self._memory.confirm(resource, raw, began)
        return raw

    async def list_all(self, resource: Resource, namespace: str, *, labels: str = "") -> list[Object]:
        began = self._memory.now()
        found = await self._kube.list_all(resource, namespace, labels=labels)
        self._memory.read(resource, namespace, labels, found, began)
        return found


class Trail:
    """What a look has taken from memory, each object with its version. ``asked`` is what the apiserver was asked for
    since the pass began: what memory has of that is as late as that at most. ``before`` is the trail of an earlier look
    of the same pass."""

    def __init__(self, before: Trail | None = None) -> None:
        self.seen: dict[Place, Version] = {}
        self.asked: set[Place] = before.asked if before is not None else set()

    def __len__(self) -> int:
        return len(self.seen)

    def note(self, resource: Resource, namespace: str, found: Iterable[Raw]) -> None:
        if resource not in UNCONFIRMED:
            self.seen |= {(resource, namespace, name_of(raw)): version_of(raw) for raw in found}


class Confirming:
    """Asks the apiserver for the metadata of objects by their names. That costs it the same however many others there
    are in the namespace, where a list by labels makes it go through all of them."""

    def __init__(self, kube: KubeClient, memory: Memory, fresh: Reads) -> None:
        self._kube = kube
        self._memory = memory
        self._fresh = fresh

    async def all_as_seen(self, trail: Trail) -> bool:
        """Whether the apiserver has every object of ``trail`` that it was not asked for yet in just that version. Those
        that it has in another one are read and remembered."""
        unasked = trail.seen.keys() - trail.asked
        same: list[bool] = await together(*(self._as_seen(*place, trail.seen[place]) for place in unasked))
        trail.asked |= unasked
        return all(same)

    async def _as_seen(self, resource: Resource, namespace: str, name: str, seen: Version) -> bool:
        began = self._memory.now()
        try:
            if version_of(await self._kube.get_metadata(resource, namespace, name)) == seen:
                return True
            await self._fresh.get(resource, namespace, name)
        except NotFoundError:
            self._memory.gone(resource, namespace, name, began)
        except RefusedError as error:  # the rights are of an earlier release: the pass lists by labels
            log.warning("cannot ask for an object by name; update the operator's role", error=str(error))
        return False


class Remembered:
    """From memory where it knows, else from the apiserver. ``trail`` notes what memory gave."""

    def __init__(self, memory: Memory, fresh: Reads, trail: Trail | None = None) -> None:
        self._memory = memory
        self._fresh = fresh
        self._trail = trail if trail is not None else Trail()

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self._memory.one(resource, namespace, name)
        if found is None:
            return await self._fresh.get(resource, namespace, name)
        if not found:
            raise NotFoundError(f"{name} is not remembered", call=f"get {resource.path(namespace, name)}", status=404)
        self._trail.note(resource, namespace, found)
        return found[0]

    async def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        found = self._memory.one(resource, namespace, name)
        if found is None:
            return await self._fresh.find(resource, namespace, name)
        self._trail.note(resource, namespace, found)
        return next(iter(found), None)

    async def list_all(self, resource: Resource, namespace: str, *, labels: str = "") -> list[Object]:
        # Of ConfigMaps memory has the versions alone.
        found = None if resource == CONFIG_MAP else self._memory.select(resource, namespace, labels)
        if found is None:
            return await self._fresh.list_all(resource, namespace, labels=labels)
        self._trail.note(resource, namespace, found)
        return found


async def all_of(source: Reads, *reads: Coroutine[Any, Any, Any]) -> list[Any]:
    """All results of ``reads``, which are from ``source``. From memory they come one after the other: as they need not
    wait, the first of many passes that begin at one moment asks the apiserver before the last has begun."""
    return await (in_turn if isinstance(source, Remembered) else together)(*reads)

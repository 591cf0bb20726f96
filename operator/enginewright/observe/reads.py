"""Two ways to read the same: from the apiserver, and from what the operator remembers."""

from __future__ import annotations

from typing import Protocol

from enginewright.clients.errors import NotFoundError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import CONFIG_MAP, Resource
from enginewright.observe.memory import Memory


class Reads(Protocol):
    """Both raise :class:`~enginewright.clients.errors.ClientError`."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Raises :class:`~enginewright.clients.errors.NotFoundError` where there is no such object."""
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

    async def list_all(self, resource: Resource, namespace: str, *, labels: str = "") -> list[Object]:
        began = self._memory.now()
        found = await self._kube.list_all(resource, namespace, labels=labels)
        self._memory.read(resource, namespace, labels, found, began)
        return found


class Remembered:
    """From memory where it knows, else from the apiserver."""

    def __init__(self, memory: Memory, fresh: Reads) -> None:
        self._memory = memory
        self._fresh = fresh

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self._memory.one(resource, namespace, name)
        if found is None:
            return await self._fresh.get(resource, namespace, name)
        if not found:
            raise NotFoundError(f"{name} is not remembered", call=f"get {resource.path(namespace, name)}", status=404)
        return found[0]

    async def list_all(self, resource: Resource, namespace: str, *, labels: str = "") -> list[Object]:
        # Of ConfigMaps memory has the versions alone.
        found = None if resource == CONFIG_MAP else self._memory.select(resource, namespace, labels)
        return await self._fresh.list_all(resource, namespace, labels=labels) if found is None else found

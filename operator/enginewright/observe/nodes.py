"""Nodes with GPUs and who holds devices there: read when a pass has a use for it, and at most every so often.

A watch on all pods of all namespaces would be there all the time for what is asked for rarely (docs/adr/0013).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from enginewright.clients.errors import ClientError, RefusedError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import NODE, POD
from enginewright.core.observed import NodeView, ObjectView, Observed
from enginewright.core.placement import PRODUCT_LABEL
from enginewright.core.planner.objects import name_of, node_view
from enginewright.core.spec import Spec

FRESH: Final = 30.0  # seconds that a reading serves all passes
LONGEST: Final = 20.0  # seconds that a pass waits for a reading
REFUSED_FOR: Final = 600.0  # seconds until it is tried again where RBAC refused it
AT_ONCE: Final = 8
log = structlog.get_logger(__name__)


class NodeReader:
    """One for the process. ``clock`` is monotonic, in seconds."""

    def __init__(self, kube: KubeClient, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._clock = clock
        self._lock = asyncio.Lock()
        self._views: tuple[NodeView, ...] | None = None
        self._until = float("-inf")

    async def views(self) -> tuple[NodeView, ...] | None:
        """None where they cannot be read: what is said of room is an advice, and no pass fails for lack of it."""
        async with self._lock:  # who comes meanwhile waits for the same reading
            if self._clock() >= self._until:
                self._views, keep = await self._read()
                self._until = self._clock() + keep
            return self._views

    async def _read(self) -> tuple[tuple[NodeView, ...] | None, float]:
        try:
            # Nodes of which GPU feature discovery has not said what they have cannot be planned with.
            async with asyncio.timeout(LONGEST):
                nodes = await self._kube.list_cached(NODE, labels=PRODUCT_LABEL)
                pods = await self._pods([name_of(node) for node in nodes])
        except RefusedError as error:
            log.info("the operator does not read nodes: conditions repeat only the scheduler's words", error=str(error))
            return None, REFUSED_FOR
        except (ClientError, TimeoutError) as error:
            log.warning("cannot read nodes", error=str(error) or repr(error))
            return None, FRESH
        return tuple(node_view(node, pods[name_of(node)]) for node in sorted(nodes, key=name_of)), FRESH

    async def _pods(self, nodes: list[str]) -> Mapping[str, list[Object]]:
        """By node. Raises :class:`ClientError`."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def of(node: str) -> list[Object]:
            async with gate:
                return await self._kube.list_cached(POD, fields=f"spec.nodeName={node}")

        try:
            async with asyncio.TaskGroup() as group:
                reads = {node: group.create_task(of(node)) for node in nodes}
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {node: read.result() for node, read in reads.items()}


def wanted(spec: Spec | None, view: ObjectView, seen: Observed) -> bool:
    """Whether a pass has a use for nodes: a pod waits for a device that nodes count, or a build is about to begin for a
    server image that asks for a driver."""
    if spec is None or spec.placement.accelerator == "cpu" or (spec.placement.mig and spec.placement.mig.dra):
        return False
    if any(pod.unschedulable for pods in (seen.pods, *(job.pods for job in seen.jobs)) for pod in pods):
        return True
    fingerprint = str(view.status.get("fingerprint") or "")
    built = {*seen.records, *(job.fingerprint for job in seen.jobs if job.outcome and job.outcome.ok)}
    known = built | {job.fingerprint for job in seen.jobs if job.fingerprint}
    return fingerprint not in known and _asks_for_a_driver(view, seen)


def _asks_for_a_driver(view: ObjectView, seen: Observed) -> bool:
    """By what was remembered of the server image, or is just being answered."""
    server = view.status.get("server")
    remembered = server.get("cuda") if isinstance(server, Mapping) else None
    facts = (job.outcome.facts for job in seen.jobs if job.outcome)
    return bool(remembered) or any(one and one.server.cuda for one in facts)

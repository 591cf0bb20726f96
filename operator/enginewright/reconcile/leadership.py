"""Who of several operators works: the one that holds a Lease. The others stand by and take over when it falls silent.

The rules are those of client-go's leader election: a standby judges a lease by how long *it* has not seen it change, so
that clocks need not agree; a leader that cannot renew gives up before a standby may take over, and ends its process.
Little else hangs on it: claims carry a resourceVersion and what is created has a name that only one can create, so
that a leader which was stopped in the middle of a pass and wakes up late builds nothing twice (ADR 0001). One call of
it may still come late, and the next pass of the new leader finds it so; the deletion of a Job, a Deployment or a
fleet's class carries the UID of what it had seen, so that none of the same name goes that has been made since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from enginewright.clients.errors import AlreadyExistsError, ClientError, ConflictError, NotFoundError, TransientError
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import LEASE
from enginewright.core.conditions import micro_time

log = structlog.get_logger(__name__)


class LeadershipLostError(RuntimeError):
    """Somebody else may lead now; the process must end."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Seconds. A lease that has not changed for ``free_after`` may be taken; its holder renews it every ``renew`` and
    gives up when it could not for ``give_up``, which must be less; a standby looks every ``look``."""

    free_after: float = 3.5
    give_up: float = 2.5
    renew: float = 1.0
    look: float = 0.5


class Leadership:
    """``me`` must be another name in each process."""

    def __init__(self, kube: KubeClient, namespace: str, name: str, me: str, *, terms: Terms | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._me = me
        self._terms = terms or Terms()
        self._clock = clock
        self._version = ""
        self._seen = ("", clock())
        self.leads = False

    async def win(self) -> None:
        """Returns when the lease is held. The apiserver's troubles only make it take longer; raises
        :class:`~enginewright.clients.errors.RefusedError` when it may not have one at all."""
        log.info("stands by", lease=f"{self._namespace}/{self._name}", identity=self._me)
        while not await self._try():  # noqa: ASYNC110  (nobody tells: the lease is looked at)
            await asyncio.sleep(self._terms.look)
        self.leads = True
        log.info("leads", lease=f"{self._namespace}/{self._name}", identity=self._me)

    async def hold(self) -> None:
        """For ever, once it is won. Raises :class:`LeadershipLostError`."""
        renewed = self._clock()
        while True:
            left = renewed + self._terms.give_up - self._clock()
            await asyncio.sleep(max(0.0, min(self._terms.renew, left)))
            # Standbys count from when it is written, which is after this.
            asked = self._clock()
            try:
                async with asyncio.timeout(max(0.0, renewed + self._terms.give_up - asked)):
                    await self._renew()
                renewed = asked
            except NotFoundError as error:
                raise self._lost(f"somebody deleted it: {error}") from error
            except (ClientError, TimeoutError) as error:
                if self._clock() - renewed >= self._terms.give_up:
                    raise self._lost(f"not renewed for {self._terms.give_up:g} s: {error}") from error

    async def release(self) -> None:
        """Lets a standby take over at once. Does nothing when it is not held, and when the apiserver does not answer:
        then they wait."""
        if not self.leads:
            return
        self.leads = False
        try:
            async with asyncio.timeout(self._terms.give_up):
                await self._write({"holderIdentity": ""})
        except (ClientError, TimeoutError) as error:
            log.warning("lease is not released", error=str(error))

    async def _try(self) -> bool:
        """One look, and the lease if it is free."""
        try:
            lease = await self._kube.get(LEASE, self._namespace, self._name)
        except NotFoundError:
            return await self._create()
        except TransientError as error:
            log.warning("lease is not read", error=str(error))
            return False
        self._version = version = str(lease["metadata"]["resourceVersion"])
        if version != self._seen[0]:
            self._seen = (version, self._clock())
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._me) and self._clock() - self._seen[1] < self._terms.free_after:
            return False
        changes = int(spec.get("leaseTransitions") or 0)
        return await self._take(changes + (holder != self._me))

    async def _take(self, changes: int) -> bool:
        try:
            await self._write({**self._mine(), "acquireTime": self._now(), "leaseTransitions": changes})
        except TransientError:  # a conflict is one: somebody else was quicker
            return False
        return True

    async def _create(self) -> bool:
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": {"name": self._name},
                "spec": {**self._mine(), "acquireTime": self._now(), "leaseTransitions": 0}}  # fmt: skip
        try:
            made = await self._kube.create(body, namespace=self._namespace)
        except AlreadyExistsError:
            return False
        except TransientError as error:
            log.warning("lease is not created", error=str(error))
            return False
        self._version = str(made["metadata"]["resourceVersion"])
        return True

    async def _renew(self) -> None:
        """Raises :class:`LeadershipLostError`, ClientError."""
        try:
            await self._write({"renewTime": self._now()})
        except ConflictError as error:
            # Of another one, or of an earlier renewal of ours whose answer was lost.
            lease = await self._kube.get(LEASE, self._namespace, self._name)
            if (lease.get("spec") or {}).get("holderIdentity") != self._me:
                raise self._lost(f"another one wrote it: {error}") from error
            self._version = str(lease["metadata"]["resourceVersion"])

    async def _write(self, spec: dict[str, Any]) -> None:
        body: Object = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        written = await self._kube.patch(LEASE, self._namespace, self._name, body)
        self._version = str(written["metadata"]["resourceVersion"])

    def _mine(self) -> dict[str, Any]:
        # For those who look at it; whole seconds are all that the field takes.
        return {"holderIdentity": self._me, "leaseDurationSeconds": round(self._terms.free_after + 0.5),
                "renewTime": self._now()}  # fmt: skip

    def _now(self) -> str:
        return micro_time(datetime.now(UTC))

    def _lost(self, why: str) -> LeadershipLostError:
        self.leads = False
        return LeadershipLostError(f"lease {self._namespace}/{self._name} is lost: {why}")

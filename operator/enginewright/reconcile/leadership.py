"""Which of several operators works: the one that holds a Lease. The others stand by until the holder falls silent.

The rules are those of client-go's leader election, with its durations. A standby measures by its own clock how long the
Lease has not changed, so that clocks need not agree. A leader that cannot renew the Lease ends its process, before a
standby may take the Lease.

Three things keep a leader that was paused from undoing what another one has decided since (ADR 0027):
:class:`LeaseThread` renews where no pass can hold it up; :class:`Fence` refuses each write after the last renewal has
run out, before it is sent; and what is sent all the same is bound to the objects that it was decided on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import structlog

from enginewright.clients.errors import (
    AlreadyExistsError,
    ClientError,
    ConflictError,
    NotFoundError,
    NotLeadingError,
    RefusedError,
    TransientError,
)
from enginewright.clients.kube import KubeClient, Object
from enginewright.clients.resources import LEASE
from enginewright.core.conditions import micro_time

log = structlog.get_logger(__name__)

# Linux stops its monotonic clock while the machine is suspended; this one runs on, as other operators do.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    return time.clock_gettime(_CLOCK)


class LeadershipLostError(RuntimeError):
    """Another operator may lead now; the process must end."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Seconds. A Lease that has not changed for ``lease_duration`` may be taken. Its holder renews it every
    ``retry_period``, and gives up when it could not for ``renew_deadline``, which must be less. A standby looks at it
    every ``retry_period``."""

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    @property
    def call_deadline(self) -> float:
        """Of one call: one that hangs leaves time for another."""
        return self.renew_deadline / 2


class Fence:
    """Until when this process may write. Threads share it: one renews the Lease, the others write."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        self._clock = clock
        self._until = -math.inf

    def open(self, until: float) -> None:
        self._until = until

    def close(self) -> None:
        self._until = -math.inf

    def check(self) -> None:
        """Raises :class:`NotLeadingError`."""
        if self._clock() >= self._until:
            raise NotLeadingError("not sent: this operator has not renewed its Lease in time, and another operator may "
                                  "lead")


class Leadership:
    """``me`` must be another name in each process. ``fence`` is open while the Lease is held and renewed."""

    def __init__(self, kube: KubeClient, namespace: str, name: str, me: str, *, fence: Fence | None = None,
                 terms: Terms | None = None, clock: Callable[[], float] = seconds) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._me = me
        self._fence = fence or Fence(clock)
        self._terms = terms or Terms()
        self._clock = clock
        self._version = ""
        self._seen = ("", clock())
        self._renewed = -math.inf
        self.leads = False

    async def win(self) -> None:
        """Returns when the Lease is held. An apiserver that does not answer only makes it take longer. Raises
        :class:`RefusedError` when the operator may not use the Lease."""
        log.info("stands by", lease=f"{self._namespace}/{self._name}", identity=self._me)
        while True:
            asked = self._clock()
            if await self._try():
                break
            await asyncio.sleep(self._terms.retry_period)
        self._hold_since(asked)
        self.leads = True
        log.info("leads", lease=f"{self._namespace}/{self._name}", identity=self._me)

    async def hold(self) -> None:
        """Forever, once it is won. Raises :class:`LeadershipLostError`."""
        while True:
            await asyncio.sleep(max(0.0, min(self._terms.retry_period, self._left())))
            # Standbys count from when the renewal is written, which is after this.
            asked = self._clock()
            try:
                async with asyncio.timeout(max(0.0, self._left())):
                    await self._renew()
                self._hold_since(asked)
            except NotFoundError as error:
                raise self._lost(f"it was deleted: {error}") from error
            except (ClientError, TimeoutError) as error:
                if self._left() <= 0:
                    raise self._lost(f"not renewed for {self._terms.renew_deadline:g} s: {error}") from error
                log.warning("could not renew the lease", error=str(error) or repr(error), left=round(self._left(), 1))

    async def release(self) -> None:
        """Lets a standby take over at once. Does nothing when the Lease is not held. When the apiserver does not
        answer, standbys wait until the Lease has run out."""
        if not self.leads:
            return
        self.leads = False
        self._fence.close()
        try:
            async with asyncio.timeout(self._terms.call_deadline):
                await self._write({"holderIdentity": ""})
        except (ClientError, TimeoutError) as error:
            log.warning("could not release the lease", error=str(error))

    def _hold_since(self, asked: float) -> None:
        self._renewed = asked
        self._fence.open(asked + self._terms.renew_deadline)

    def _left(self) -> float:
        return self._renewed + self._terms.renew_deadline - self._clock()

    async def _try(self) -> bool:
        """One look, and the Lease if it is free."""
        try:
            lease = await self._kube.get(LEASE, self._namespace, self._name)
        except NotFoundError:
            return await self._create()
        except TransientError as error:
            log.warning("could not read the lease", error=str(error))
            return False
        except RefusedError as error:
            raise self._refused(error) from error
        self._version = version = str(lease["metadata"]["resourceVersion"])
        if version != self._seen[0]:
            self._seen = (version, self._clock())
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._me) and self._clock() - self._seen[1] < self._terms.lease_duration:
            return False
        changes = int(spec.get("leaseTransitions") or 0)
        return await self._take(changes + (holder != self._me))

    async def _take(self, changes: int) -> bool:
        try:
            await self._write({**self._mine(), "acquireTime": self._now(), "leaseTransitions": changes})
        except TransientError:  # a conflict is one: another standby was quicker
            return False
        except RefusedError as error:
            raise self._refused(error) from error
        return True

    async def _create(self) -> bool:
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": {"name": self._name},
                "spec": {**self._mine(), "acquireTime": self._now(), "leaseTransitions": 0}}
        try:
            made = await self._kube.create(body, namespace=self._namespace)
        except AlreadyExistsError:
            return False
        except TransientError as error:
            log.warning("could not create the lease", error=str(error))
            return False
        except RefusedError as error:
            raise self._refused(error) from error
        self._version = str(made["metadata"]["resourceVersion"])
        return True

    async def _renew(self) -> None:
        """Raises :class:`LeadershipLostError`, ClientError."""
        try:
            await self._write({"renewTime": self._now()})
        except ConflictError as error:
            # Of another operator, or of an earlier renewal of this one whose answer was lost.
            lease = await self._kube.get(LEASE, self._namespace, self._name)
            if (lease.get("spec") or {}).get("holderIdentity") != self._me:
                raise self._lost(f"another operator wrote it: {error}") from error
            self._version = str(lease["metadata"]["resourceVersion"])
            # A renewal of this operator that was long on its way says nothing of now.
            await self._write({"renewTime": self._now()})

    async def _write(self, spec: dict[str, Any]) -> None:
        body: Object = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        written = await self._kube.patch(LEASE, self._namespace, self._name, body)
        self._version = str(written["metadata"]["resourceVersion"])

    def _mine(self) -> dict[str, Any]:
        # For people and tools; whole seconds are all that the field takes.
        return {"holderIdentity": self._me, "leaseDurationSeconds": math.ceil(self._terms.lease_duration),
                "renewTime": self._now()}

    def _now(self) -> str:
        return micro_time(datetime.now(UTC))

    def _lost(self, why: str) -> LeadershipLostError:
        self.leads = False
        self._fence.close()
        return LeadershipLostError(f"lease {self._namespace}/{self._name} is lost: {why}")

    def _refused(self, error: RefusedError) -> RefusedError:
        return RefusedError(
            f"the operator works only while it holds Lease {self._namespace}/{self._name}, and may not use it "
            f"({error.message}); grant get, create and patch on leases there, or name another one with --leader-lease",
            call=error.call, status=error.status, reason=error.reason,
        )


class LeaseThread:
    """Wins and renews the Lease on a thread that has an event loop and a client of its own: what blocks the loop of the
    passes does not delay a renewal. ``client`` and ``leadership`` are called on that thread."""

    def __init__(self, client: Callable[[], AbstractAsyncContextManager[KubeClient]],
                 leadership: Callable[[KubeClient], Leadership]) -> None:
        self._client = client
        self._leadership = leadership
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._leads: Callable[[], bool] = lambda: False

    @property
    def leads(self) -> bool:
        return self._leads()

    async def __aenter__(self) -> Self:
        self._passes = asyncio.get_running_loop()
        self._won: asyncio.Future[None] = self._passes.create_future()
        self._lost: asyncio.Future[None] = self._passes.create_future()
        self._begun = threading.Event()
        self._thread.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        """Releases the Lease, if it is held: nothing may write any more."""
        await asyncio.to_thread(self._begun.wait)
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    async def won(self) -> None:
        """Returns when the Lease is held. Raises :class:`ClientError` when it cannot be."""
        await asyncio.shield(self._won)

    async def lost(self) -> None:
        """Forever. Raises :class:`LeadershipLostError`, or what else ended the thread."""
        await asyncio.shield(self._lost)

    def _run(self) -> None:
        try:
            asyncio.run(self._lead())
        except BaseException as error:
            self._tell(self._ended, error)
        finally:
            self._begun.set()

    async def _lead(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        async with self._client() as kube:
            leadership = self._leadership(kube)
            self._leads = lambda: leadership.leads
            stopped = asyncio.create_task(self._stop.wait(), name="stop")
            holding = asyncio.create_task(self._win_and_hold(leadership), name="lease")
            await asyncio.wait({stopped, holding}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            holding.cancel()
            await asyncio.wait({holding})
            await leadership.release()
            if not holding.cancelled():
                holding.result()

    async def _win_and_hold(self, leadership: Leadership) -> None:
        await leadership.win()
        self._tell(self._won.set_result, None)
        await leadership.hold()

    def _ended(self, error: BaseException) -> None:
        (self._lost if self._won.done() else self._won).set_exception(error)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop of the passes has ended
            self._passes.call_soon_threadsafe(call, *arguments)

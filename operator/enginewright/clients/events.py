"""Kubernetes events that do not flood: one object for each distinct event, repeats in its count.

They are written through ``v1``, as only there an event has its ``lastTimestamp``: ``kubectl describe`` sorts by it, and
so does everybody who writes ``kubectl get events --sort-by=.lastTimestamp``. It has whole seconds, within which
the apiserver lists by name: names begin with the place of the event's action on the way from source to traffic.

The name of an event is a hash of what it says about whom, so that a restarted operator finds its own events again.
Three limits protect the apiserver: repeats within ``SERIES_INTERVAL`` are only counted, each object has a budget of
``BURST`` distinct events that refills slowly, and the cache of known events is bounded.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from enginewright.clients.errors import AlreadyExistsError, NotFoundError
from enginewright.clients.kube import KubeClient
from enginewright.clients.resources import EVENT, OPTIMISED_MODEL
from enginewright.core.conditions import timestamp
from enginewright.core.events import ACTIONS, shorten
from enginewright.core.plan import Event

SERIES_INTERVAL: Final = 60.0
BURST: Final = 25.0
REFILL_PER_SECOND: Final = 1 / 30
CACHE: Final = 4096
CONTROLLER: Final = "enginewright.io/operator"
_PLACES: Final = {action: place for place, action in enumerate(ACTIONS.values())}


@dataclass(frozen=True)
class Subject:
    """The ``OptimisedModel`` that an event is about."""

    namespace: str
    name: str
    uid: str


@dataclass
class _Sent:
    name: str
    count: int
    patched: float


@dataclass
class _Budget:
    left: float
    refilled: float


class EventRecorder:
    """``instance`` names this process in the events; ``clock`` is monotonic seconds."""

    def __init__(self, kube: KubeClient, instance: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._instance = instance[:128]
        self._clock = clock
        self._sent: OrderedDict[str, _Sent] = OrderedDict()
        self._budgets: OrderedDict[str, _Budget] = OrderedDict()

    async def record(self, subject: Subject, event: Event) -> bool:
        """Sends or counts the event, and says whether the apiserver was called. Raises
        :class:`~enginewright.clients.errors.ClientError`."""
        name = event_name(subject, event)
        known = self._sent.get(name)
        if known is None:
            if not self._spend(subject.uid):
                return False
            await self._first(subject, event, name)
            return True
        known.count += 1
        if self._clock() - known.patched < SERIES_INTERVAL:
            return False
        await self._repeat(subject, event, known)
        return True

    async def _first(self, subject: Subject, event: Event, name: str) -> None:
        body = event_manifest(subject, event, name, self._instance, datetime.now(UTC))
        try:
            await self._kube.create(body, namespace=subject.namespace)
        except AlreadyExistsError:
            before = await self._kube.get(EVENT, subject.namespace, name)
            await self._repeat(subject, event, _Sent(name, int(before.get("count") or 1) + 1, 0.0))
            return
        self._remember(_Sent(name, 1, self._clock()))

    async def _repeat(self, subject: Subject, event: Event, sent: _Sent) -> None:
        body = {"count": sent.count, "lastTimestamp": timestamp(datetime.now(UTC))}
        try:
            await self._kube.patch(EVENT, subject.namespace, sent.name, body)
        except NotFoundError:
            # Events live an hour by default; one that still happens after that is sent again.
            self._sent.pop(sent.name, None)
            await self._first(subject, event, sent.name)
            return
        sent.patched = self._clock()
        self._remember(sent)

    def _remember(self, sent: _Sent) -> None:
        self._sent[sent.name] = sent
        self._sent.move_to_end(sent.name)
        if len(self._sent) > CACHE:
            self._sent.popitem(last=False)

    def _spend(self, uid: str) -> bool:
        now = self._clock()
        budget = self._budgets.setdefault(uid, _Budget(BURST, now))
        budget.left = min(BURST, budget.left + (now - budget.refilled) * REFILL_PER_SECOND)
        budget.refilled = now
        self._budgets.move_to_end(uid)
        if len(self._budgets) > CACHE:
            self._budgets.popitem(last=False)
        if budget.left < 1:
            return False
        budget.left -= 1
        return True


def event_name(subject: Subject, event: Event) -> str:
    """The object's name, two digits that put events of one second in order, and 16 hex digits of what is said."""
    said = "\0".join((subject.uid, event.type, event.reason, event.action, event.note))
    place = _PLACES.get(event.action, len(ACTIONS))
    return f"{subject.name}.{place:02}{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def event_manifest(subject: Subject, event: Event, name: str, instance: str, now: datetime) -> dict[str, Any]:
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": name, "namespace": subject.namespace},
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
        "source": {"component": CONTROLLER},
        "reportingComponent": CONTROLLER,
        "reportingInstance": instance,
        "type": event.type,
        "reason": event.reason,
        "action": event.action,
        "message": shorten(event.note),
        "involvedObject": {
            "apiVersion": OPTIMISED_MODEL.api_version,
            "kind": OPTIMISED_MODEL.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
    }

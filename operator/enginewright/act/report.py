"""Says what was observed and done: one status write a pass, none when nothing changed, events after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

from structlog.typing import FilteringBoundLogger

from enginewright.clients.errors import ClientError, NotFoundError, RefusedError, UnexpectedError
from enginewright.clients.events import EventRecorder, Subject
from enginewright.clients.kube import KubeClient
from enginewright.core import conditions
from enginewright.core.conditions import bad
from enginewright.core.internal import INTERNAL, has_old_places, joined, stored
from enginewright.core.observed import ObjectView
from enginewright.core.plan import Event
from enginewright.core.reasons import Condition, Reason
from enginewright.core.spec.served import served
from enginewright_builder.contract import to_plain

FIELD = f"status.{INTERNAL}"
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


class Schema(Protocol):
    """``missing`` are paths of fields, as :func:`~enginewright.core.spec.served.missing_fields` gives them."""

    @property
    def missing(self) -> tuple[str, ...]: ...

    async def look(self) -> None: ...


class Reporter:
    """``schema`` knows what the cluster's CRD lacks; ``wrote`` is called after each status write."""

    def __init__(self, kube: KubeClient, events: EventRecorder, schema: Schema, wrote: Callable[[], None]) -> None:
        self._kube = kube
        self._events = events
        self._schema = schema
        self._wrote = wrote

    async def status(self, view: ObjectView, status: Mapping[str, Any]) -> ObjectView:
        """Writes ``status``, plain data, if it differs from what ``view`` holds, as far as the cluster's CRD has its
        fields, and returns the object as it is then. Raises :class:`~enginewright.clients.errors.ClientError`;
        :class:`UnexpectedError` when the apiserver keeps something else than was written, because every later pass
        would write again."""
        while True:
            missing = self._schema.missing
            if not missing and not view.old_status and status == view.status:
                return view
            known = served(stored(status, old_places=FIELD in missing), missing)
            if joined(known) == view.status and (FIELD in missing or not view.old_status):
                return view
            try:
                view, kept = await self._write(view, known)
                if kept == known:
                    return view
                raise UnexpectedError(f"status.{difference(known, kept)} was changed or dropped by the CRD")
            except (RefusedError, UnexpectedError) as error:
                if isinstance(error, NotFoundError) or not await self._learns():
                    raise

    async def _write(self, view: ObjectView, status: Mapping[str, Any]) -> tuple[ObjectView, Mapping[str, Any]]:
        """The object as it is then, and its status as the apiserver keeps it."""
        answer = await self._kube.apply_status(view.namespace, view.name, view.resource_version, status)
        self._wrote()
        kept = answer.get("status") or {}
        return replace(view, status=joined(kept), old_status=has_old_places(kept),
                       resource_version=str(answer["metadata"]["resourceVersion"])), kept

    async def _learns(self) -> bool:
        """Whether the CRD has been replaced since the last look."""
        before = self._schema.missing
        await self._schema.look()
        return self._schema.missing != before

    async def events(self, view: ObjectView, events: Iterable[Event], log: FilteringBoundLogger) -> None:
        """Events are sent once and may be lost; they never fail a pass."""
        subject = Subject(view.namespace, view.name, view.uid)
        for event in events:
            try:
                await self._events.record(subject, event)
            except ClientError as error:
                log.warning("could not send an event", reason=event.reason, note=event.note, error=str(error))


def refused(
    view: ObjectView, status: Mapping[str, Any], reason: Reason, message: str, now: datetime
) -> Mapping[str, Any]:
    """``status`` with ``Ready=False``, because an action of this pass could not be done. What else it says was
    observed, and stays true."""
    verdict = bad(Condition.READY, reason, message)
    return conditions.refused(view.status, status, (verdict,), view.generation, now)


def plain(value: Any) -> Any:
    """As it comes back from the apiserver: lists for tuples, no nulls, which a structural schema drops, and no empty
    objects. Server-side apply makes null of an object that loses its last field, and the schema then refuses it."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        fields = [(str(key), plain(item)) for key, item in value.items()]
        return {key: item for key, item in fields if item is not None and item != {}}
    if kind is list or kind is tuple:
        return [plain(item) for item in value]
    return str(value) if isinstance(value, str) else plain(to_plain(value))


def difference(wanted: Any, kept: Any, path: str = "") -> str:
    """Path of the first difference, for a message."""
    if isinstance(wanted, dict) and isinstance(kept, dict):
        for key in sorted(wanted.keys() | kept.keys()):
            if wanted.get(key) != kept.get(key):
                return difference(wanted.get(key), kept.get(key), f"{path}.{key}" if path else key)
    if isinstance(wanted, list) and isinstance(kept, list) and len(wanted) == len(kept):
        for index, (one, other) in enumerate(zip(wanted, kept, strict=True)):
            if one != other:
                return difference(one, other, f"{path}[{index}]")
    return path

"""One pass over one object: observe → decide → act → report."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger

from enginewright.act.execute import Actor
from enginewright.act.report import Reporter, plain, refused
from enginewright.clients.errors import ClientError, Family, LostRaceError, RefusedError, family_of
from enginewright.core.config import OperatorConfig
from enginewright.core.decide import decide
from enginewright.core.decide.history import without_new
from enginewright.core.labels import fingerprint_label
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import Action, Event, Plan, Scale
from enginewright.core.reasons import Reason
from enginewright.observe.keys import Key
from enginewright.observe.signals import Signals
from enginewright.observe.world import World
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.known import Known, Needs
from enginewright.reconcile.targets import needed_claims, target_of
from enginewright.tracing import Attribute, Span, note, span

DEADLINE: Final = 120.0
Decide = Callable[[ObjectView, Observed, OperatorConfig], Plan]


@dataclass(frozen=True)
class Parts:
    """What a pass works with."""

    world: World
    actor: Actor
    reporter: Reporter
    signals: Signals
    known: Known
    exposed: Exposed
    config: OperatorConfig
    decide: Decide = decide


@dataclass(frozen=True)
class Acted:
    """What came of actions: the first ``error``, and what was ``left`` for it, the one that failed first."""

    error: ClientError | None = None
    left: tuple[Action, ...] = ()


class Reconciler:
    """Never run twice at once for one key: the queue sees to that."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def reconcile(self, key: Key) -> float | None:
        """Returns seconds after which to look again, None to wait for events. Raises
        :class:`~enginewright.clients.errors.ClientError`, :class:`TimeoutError` after ``DEADLINE`` seconds, and
        whatever a defect raises."""
        number = uuid.uuid4().hex[:12]
        log = structlog.get_logger(__name__).bind(object=str(key), reconcile=number)
        about = {Attribute.NAMESPACE: key.namespace, Attribute.OBJECT: key.name, Attribute.RECONCILE_ID: number}
        with span(Span.RECONCILE, about):
            try:
                async with asyncio.timeout(DEADLINE):
                    requeue_after = await self._pass(key, log)
            except Exception as error:
                note(Attribute.OUTCOME, family_of(error).value)
                raise
            note(Attribute.OUTCOME, "ok")
            if requeue_after is not None:
                note(Attribute.REQUEUE_AFTER, requeue_after)
            return requeue_after

    async def _pass(self, key: Key, log: FilteringBoundLogger) -> float | None:
        parts = self._parts
        began = time.monotonic()
        view = await parts.world.find(key.namespace, key.name)
        if view is None:
            await self._forget(key, log)
            return None
        log = log.bind(generation=view.generation)
        note(Attribute.GENERATION, view.generation)
        try:
            requeue_after = await self._look_and_act(key, view, log)
        except Exception as error:
            if not isinstance(error, ClientError) or error.family is Family.BUG:
                await self._surface(view, error, log)
            raise
        log.debug("pass done", seconds=round(time.monotonic() - began, 3), requeue_after=requeue_after)
        return requeue_after

    async def _look_and_act(self, key: Key, view: ObjectView, log: FilteringBoundLogger) -> float | None:
        parts = self._parts
        with span(Span.OBSERVE):
            observed = await parts.world.observe(view, parts.signals.window(key))
        with span(Span.DECIDE):
            plan = parts.decide(view, observed, parts.config)
            note(Attribute.ACTIONS, len(plan.actions))
        self._remember(key, view, plan)
        if plan.actions and not await self._stays(view):
            log.info("object goes: nothing is done for it any more")
            return None
        building, serving = await self._act(view, plan, log)
        failure = building.error or serving.error
        if isinstance(failure, LostRaceError):
            # What the plan says stands on a claim that somebody else made.
            raise failure
        await self._report(view, observed, plan, failure, serving, log)
        await self._listen(key, view, observed, plan)
        if failure is not None:
            raise failure
        return plan.requeue_after

    async def _stays(self, view: ObjectView) -> bool:
        """Asked after the children were read, as Kubernetes' own controllers do before they adopt: a deletion with
        ``--cascade=orphan`` takes the owner off them, and given one that goes they would be collected along with it.
        Its event wakes the key again."""
        now = await self._parts.world.find(view.namespace, view.name)
        return now is not None and now.uid == view.uid and not now.deleting

    async def _act(self, view: ObjectView, plan: Plan, log: FilteringBoundLogger) -> tuple[Acted, Acted]:
        """What came of building and of serving. Failures are returned, not raised: status is written all the same, for
        it says what was observed."""
        building = serving = Acted()
        with contextlib.suppress(ClientError), span(Span.ACT):
            building = await self._carry_out(view, plan.building, log)
            if not isinstance(building.error, LostRaceError):
                serving = await self._carry_out(view, plan.serving, log)
            if failure := building.error or serving.error:
                raise failure
        return building, serving

    async def _carry_out(self, view: ObjectView, actions: tuple[Action, ...], log: FilteringBoundLogger) -> Acted:
        for index, action in enumerate(actions):
            try:
                await self._parts.actor.execute(view.namespace, (action,), log)
            except ClientError as error:
                return Acted(error, actions[index:])
        return Acted()

    async def _report(self, view: ObjectView, observed: Observed, plan: Plan, failure: ClientError | None,
                      serving: Acted, log: FilteringBoundLogger) -> None:
        status, events = plan.status, plan.events
        if serving.error is not None:
            scaled = not any(isinstance(action, Scale) for action in serving.left)
            status = without_new(status, view.status, scaled=scaled)
            events = tuple(event for event in events if scaled or event.reason != Reason.SCALING)
        if isinstance(failure, RefusedError):
            message = f"Kubernetes refused {failure.call}: {failure.message}"
            status = refused(view, status, Reason.API_REFUSED, message, observed.now)
            events = (*events, Event(type="Warning", reason=Reason.API_REFUSED, action="Reconcile", note=message))
        with span(Span.REPORT):
            written = await self._tell(view, status)
            note(Attribute.STATUS_WRITTEN, written)
            if written:
                log.info("status written", conditions=_conditions(status))
            await self._parts.reporter.events(view, events, log)

    async def _tell(self, view: ObjectView, status: Mapping[str, Any]) -> bool:
        """In status and as metrics; says whether status was written."""
        self._parts.exposed.remember(Key(view.namespace, view.name), plain(status))
        return await self._parts.reporter.status(view, status)

    async def _surface(self, view: ObjectView, error: Exception, log: FilteringBoundLogger) -> None:
        """A defect is told where the user looks, not only in our log. What could not be judged is not ready."""
        what = f"{type(error).__name__}: {error}"
        message = f"The operator failed on this object and tries again ({what}); please report it."
        status = refused(view, view.status, Reason.OPERATOR_ERROR, message, self._parts.world.now())
        event = Event(type="Warning", reason=Reason.OPERATOR_ERROR, action="Reconcile", note=message)
        try:
            await self._tell(view, status)
        except ClientError as second:
            log.warning("defect could not be told in status", error=str(second))
        await self._parts.reporter.events(view, [event], log)

    async def _listen(self, key: Key, view: ObjectView, observed: Observed, plan: Plan) -> None:
        signals = self._parts.signals
        if not plan.watch_queue:
            await signals.forget(key)
            return
        signals.watch(key, target_of(view, observed, plan))
        if plan.recommendation is not None:
            signals.recommend(key, plan.recommendation)

    def _remember(self, key: Key, view: ObjectView, plan: Plan) -> None:
        fingerprint = fingerprint_label(str(plan.status.get("fingerprint") or ""))
        self._parts.known.remember(key, Needs(needed_claims(view), fingerprint))

    async def _forget(self, key: Key, log: FilteringBoundLogger) -> None:
        """Children go by their owner references; what is left is ours in memory."""
        await self._parts.signals.forget(key)
        self._parts.world.forget(key)
        self._parts.exposed.forget(key)
        if key in self._parts.known:
            self._parts.known.forget(key)
            log.info("object is gone")


def _conditions(status: object) -> dict[str, str]:
    """Type to reason, for one readable line."""
    entries = status.get("conditions", ()) if isinstance(status, dict) else ()
    return {str(entry["type"]): f"{entry['status']}/{entry['reason']}" for entry in entries}

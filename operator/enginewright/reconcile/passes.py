"""One pass over one object: observe → decide → act → report.

A pass looks at what the operator remembers first. Most passes find nothing to do there, and read nothing from the
apiserver. :class:`~enginewright.reconcile.looks.Look` says what may stand on that look alone: nothing that lasts, and
of actions a number of replicas. Where there is more to do, the apiserver confirms what was seen, or the pass looks
again, at the apiserver, and acts on what it decides then. So memory that is late can delay an act, and cause none but
that a queue gets replicas which a newer spec forbids, until status is written. Memory is not trusted for long while a
model is on its way, and not at all after a pass that failed.

A pass that finds a number of replicas and nothing else to change writes that first, as requests wait for it. Where the
queues of other objects rise as well, it leaves it to the next pass over its object to say so. That pass waits until no
queue rises any more, a few seconds at most, and so does any other that would only say how things stand: the apiserver
has the numbers of all first.

Likewise where many objects are new at one moment: the Deployments of all are made before status says so of any, and
one write of status says what several would have said.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger

from enginewright.act.execute import Actor
from enginewright.act.report import Reporter, plain, refused
from enginewright.clients.errors import (
    ClientError,
    ConflictError,
    Family,
    LostRaceError,
    NotFoundError,
    RefusedError,
    TransientError,
    family_of,
)
from enginewright.core.conditions import find
from enginewright.core.config import OperatorConfig
from enginewright.core.decide import decide
from enginewright.core.labels import fingerprint_label
from enginewright.core.observed import ObjectView, Observed
from enginewright.core.plan import KEPT, Action, Event, Plan, Scale, keep
from enginewright.core.reasons import Condition, Reason
from enginewright.observe.keys import Key
from enginewright.observe.reads import Trail
from enginewright.observe.signals import Signals
from enginewright.observe.world import World
from enginewright.reconcile.exposed import Exposed
from enginewright.reconcile.known import Known, Needs
from enginewright.reconcile.looks import Look, on_its_way, same
from enginewright.reconcile.targets import needed_claims, target_of
from enginewright.tracing import Attribute, Span, note, span

DEADLINE: Final = 120.0
# Seconds for which memory is trusted while a model is on its way, after a look at the apiserver or a settled state:
# fifty models that scale at one moment are not to be looked at afresh then. Where many are on their way, it is trusted
# longer: so many of them a second are looked at for that. The comparison heals memory at any rate.
TRUST: Final = 20.0
DOUBTED: Final = 0.5
# Looks at memory that the apiserver did not confirm, after which it is looked at itself.
TRIES: Final = 3
# Seconds for which status of a new object may wait, while other new objects wait for their first look.
LATEST: Final = 5.0
# Seconds for which status of any object may wait, while the queues of others rise: figures are no newer without that.
# And after which it is seen whether these still rise.
HELD: Final = 10.0
PAUSE: Final = 0.5
Decide = Callable[[ObjectView, Observed, OperatorConfig], Plan]


@dataclass(frozen=True)
class Parts:
    """What a pass works with. ``looked`` is called with where each look was at: ``memory``, ``fresh`` at the apiserver,
    ``confirmed`` by it. ``urgent`` says whether the queues of other objects ask for replicas, ``crowded`` whether other
    objects are new."""

    world: World
    actor: Actor
    reporter: Reporter
    signals: Signals
    known: Known
    exposed: Exposed
    config: OperatorConfig
    decide: Decide = decide
    looked: Callable[[str], None] = lambda _: None
    urgent: Callable[[], bool] = lambda: False
    crowded: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Done:
    """What came of actions: the first ``error``, and what was ``left`` for it, the one that failed first."""

    error: ClientError | None = None
    left: tuple[Action, ...] = ()


@dataclass
class Acted:
    """What came of a plan so far. ``view`` is the object as it is now: its status may have been written."""

    view: ObjectView
    building: Done = Done()
    keeping: Done = Done()
    serving: Done = Done()

    @property
    def failure(self) -> ClientError | None:
        return self.building.error or self.keeping.error or self.serving.error

    @property
    def scaled(self) -> bool:
        return not any(isinstance(action, Scale) for action in self.serving.left)

    def status(self, plan: Plan, before: Mapping[str, Any]) -> Mapping[str, Any]:
        """That of ``plan``, without what could not be done: the next pass does it again."""
        undone = (*(plan.status_of_building if self.building.error else ()), *(KEPT if self.keeping.error else ()),
                  *(plan.status_of_serving if self.serving.error else ()))
        status = keep(plan.status, before, undone)
        if not self.scaled and "autoscaling" in status:
            status["autoscaling"] = keep(status["autoscaling"], before.get("autoscaling") or {}, ("decisions",))
        return status


@dataclass(frozen=True)
class Owed:
    """What a pass has done and not yet said."""

    look: Look
    acted: Acted


@dataclass(frozen=True)
class Untold:
    """What a pass has made sure of and acted on, and left to a later one to write: the ``status`` of the object of this
    ``uid`` and ``generation``, at ``since`` on the monotonic clock."""

    uid: str
    generation: int
    status: Mapping[str, Any]
    since: float


class Reconciler:
    """Never run twice at once for one key: the queue sees to that."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # Keys whose last pass has not ended well, those of models on their way, and since when memory of each is
        # trusted: a look at the apiserver, or a pass that began with a settled model.
        self._distrusted: set[Key] = set()
        self._on_their_way: set[Key] = set()
        self._trusted_since: dict[Key, float] = {}
        self._owed: dict[Key, Owed] = {}
        # Since when there is something to say of objects, on the monotonic clock, that waits as other queues rise.
        self._held: dict[Key, float] = {}
        self._untold: dict[Key, Untold] = {}

    async def reconcile(self, key: Key, *, hurried: bool = False) -> float | None:
        """``hurried`` says that the queue of this object rises. Returns seconds after which to look again, None to wait
        for events. Raises :class:`~enginewright.clients.errors.ClientError`, :class:`TimeoutError` after ``DEADLINE``
        seconds, and whatever a defect raises."""
        number = uuid.uuid4().hex[:12]
        log = structlog.get_logger(__name__).bind(object=str(key), reconcile=number)
        about = {Attribute.NAMESPACE: key.namespace, Attribute.OBJECT: key.name, Attribute.RECONCILE_ID: number}
        with span(Span.RECONCILE, about):
            try:
                async with asyncio.timeout(DEADLINE):
                    requeue_after = await self._pass(key, log, hurried)
            except Exception as error:
                note(Attribute.OUTCOME, family_of(error).value)
                raise
            note(Attribute.OUTCOME, "ok")
            if requeue_after is not None:
                note(Attribute.REQUEUE_AFTER, requeue_after)
            return requeue_after

    async def _pass(self, key: Key, log: FilteringBoundLogger, hurried: bool) -> float | None:
        parts = self._parts
        began = time.monotonic()
        if key in self._owed and not hurried and self._lets_others_go_first(key):
            return PAUSE
        await self._say_owed(key, log)
        view = await self._trusted(key)
        fresh = view is None
        self._distrusted.add(key)
        if view is None:
            view = await parts.world.find(key.namespace, key.name)
        if view is None:
            await self._forget(key, log)
            return None
        log = log.bind(generation=view.generation)
        note(Attribute.GENERATION, view.generation)
        try:
            requeue_after = await self._look_and_act(key, view, log, fresh=fresh)
        except Exception as error:
            if not isinstance(error, ClientError) or error.family is Family.BUG:
                await self._surface(view, error, log)
            raise
        self._distrusted.discard(key)
        log.debug("pass done", seconds=round(time.monotonic() - began, 3), requeue_after=requeue_after)
        return requeue_after

    async def _trusted(self, key: Key) -> ObjectView | None:
        """The object as it is remembered; None where the apiserver has to be asked."""
        if key in self._distrusted:
            return None
        view, now = await self._parts.world.find(key.namespace, key.name, fresh=False), time.monotonic()
        if view is None:
            return None
        if not on_its_way(view):
            self._trusted_since[key] = now
        elif not view.status.get("conditions"):  # nothing has been done for it yet that could be missed
            self._trusted_since.setdefault(key, now)
        trust = max(TRUST, len(self._on_their_way) / DOUBTED)
        return view if now - self._trusted_since.get(key, -math.inf) <= trust else None

    async def _look_and_act(
        self, key: Key, view: ObjectView, log: FilteringBoundLogger, *, fresh: bool,
    ) -> float | None:
        look: Look | None = await self._look(key, view, None if fresh else Trail())
        if look is not None and not look.fresh and not look.idle:
            look = await self._made_sure(key, look)
        if look is None:
            await self._forget(key, log)
            return None
        view, observed, plan = look.view, look.observed, look.plan
        self._remember(key, view, observed, plan)
        if look.fresh and plan.actions and not await self._stays(view):
            log.info("the object is being deleted: the operator stops work on it")
            return None
        # Before anything is written: what the apiserver refuses must not keep replicas from being measured.
        await self._listen(key, view, observed, plan)
        acted = await self._act(look, log)
        if isinstance(acted.failure, LostRaceError) or (isinstance(acted.failure, NotFoundError) and not look.fresh):
            # The plan stands on a claim that another operator or object made, or on a Deployment that is gone.
            raise acted.failure
        if look.scales and acted.failure is None and self._parts.urgent():
            self._owed[key] = Owed(look, acted)
            return PAUSE
        if look.told_later and acted.failure is None:
            since = self._untold[key].since if key in self._untold else time.monotonic()
            self._untold[key] = Untold(view.uid, view.generation, plan.status, since)
        if (left := self._may_wait(key, look)) and acted.failure is None:
            return min(left, plan.requeue_after or left)
        if look.idle and _only_figures(view.status, plan.status) and self._lets_others_go_first(key):
            return PAUSE
        self._untold.pop(key, None)
        await self._report(view, observed, plan, acted, log)
        if acted.failure is not None:
            raise acted.failure
        return plan.requeue_after

    def _lets_others_go_first(self, key: Key) -> bool:
        """Whether what there is to say of the object still waits, as requests wait for the passes of others."""
        now = time.monotonic()
        return self._parts.urgent() and now - self._held.setdefault(key, now) < HELD

    def _may_wait(self, key: Key, look: Look) -> float:
        """Seconds for which status may still wait."""
        untold = self._untold.get(key)
        if untold is None or not self._parts.crowded() or (look.plan.actions and not look.told_later):
            return 0.0
        serves = find(look.plan.status.get("conditions"), Condition.READY).get("status") == "True"
        return 0.0 if serves else max(0.0, untold.since + LATEST - time.monotonic())

    def _made_sure_of(self, key: Key, view: ObjectView) -> Mapping[str, Any] | None:
        """The status that an earlier pass has left untold, where it is of this very object and spec."""
        untold = self._untold.get(key)
        same = untold is not None and (untold.uid, untold.generation) == (view.uid, view.generation)
        if untold is not None and same and not view.status.get("conditions"):
            return untold.status
        self._untold.pop(key, None)
        return None

    async def _say_owed(self, key: Key, log: FilteringBoundLogger) -> None:
        """What the pass before left unsaid. Where the object has changed since, or status is refused for good, its log
        alone says it: this pass looks at what there is now, and is not to fail before it does."""
        if (owed := self._owed.pop(key, None)) is None:
            return
        look = owed.look
        try:
            await self._report(look.view, look.observed, look.plan, owed.acted, log)
        except (ConflictError, NotFoundError) as error:
            self._distrusted.add(key)
            log.info("the object has changed before status said that it was scaled", error=str(error))
        except (TransientError, asyncio.CancelledError):
            self._owed[key] = owed
            raise
        except ClientError as error:
            log.warning("status could not say that the object was scaled", error=str(error))

    async def _made_sure(self, key: Key, look: Look) -> Look | None:
        """A look like ``look``, at memory, that the pass may act on; None where the object is gone."""
        world = self._parts.world
        if look.grows:
            return look
        if look.may_be_remembered:
            now = await world.find(key.namespace, key.name)
            if now is not None and same(look.view, now):
                return look
            return None if now is None else await self._look(key, now)
        for _ in range(TRIES):
            if look.trail is None or not look.may_be_confirmed:
                break
            look = replace(look, told_later=look.begins and self._parts.crowded())
            if await world.confirm(look.view, look.asks_for, itself=not look.told_first):
                self._parts.looked("confirmed")
                return look
            again = await world.find(key.namespace, key.name, fresh=False)
            if again is None:
                break
            look = await self._look(key, again, Trail(look.trail))
            if look.idle:
                return look
        now = await world.find(key.namespace, key.name)
        return None if now is None else await self._look(key, now)

    async def _look(self, key: Key, view: ObjectView, trail: Trail | None = None) -> Look:
        """At memory with a ``trail``, else at the apiserver."""
        parts, fresh = self._parts, trail is None
        with span(Span.OBSERVE):
            note(Attribute.FRESH, fresh)
            observed = await parts.world.observe(view, parts.signals.window(key), trail)
        with span(Span.DECIDE):
            plan = parts.decide(view, observed, parts.config)
            plan = replace(plan, status=plain(plan.status))
            note(Attribute.ACTIONS, len(plan.actions))
        if fresh:
            self._trusted_since[key] = time.monotonic()
        parts.looked("fresh" if fresh else "memory")
        return Look(view=view, observed=observed, plan=plan, trail=trail, untold=self._made_sure_of(key, view))

    async def _stays(self, view: ObjectView) -> bool:
        """Asked after the children were read, as Kubernetes' own controllers do before they adopt: a deletion with
        ``--cascade=orphan`` takes the owner off them, and given one that goes they would be collected along with it.
        Its event wakes the key again."""
        now = await self._parts.world.find(view.namespace, view.name)
        return now is not None and now.uid == view.uid and not now.deleting

    async def _act(self, look: Look, log: FilteringBoundLogger) -> Acted:
        """In the order that :class:`~enginewright.core.plan.Plan` gives. What an action fails with is returned, not
        raised: status is written all the same, for it says what was observed. Raises
        :class:`~enginewright.clients.errors.ClientError` where status could not be written before the actions."""
        acted = Acted(look.view)
        try:
            with span(Span.ACT):
                await self._write(acted, look, log)
                if acted.failure is not None:
                    raise acted.failure
        except ClientError as error:
            if error is not acted.failure:
                raise
        return acted

    async def _write(self, acted: Acted, look: Look, log: FilteringBoundLogger) -> None:
        plan = look.plan
        if look.scales or look.told_later:
            acted.serving = await self._carry_out(acted.view, plan.serving, log)
            return
        acted.building = await self._carry_out(acted.view, plan.first, log)
        if isinstance(acted.failure, LostRaceError):
            return
        acted.keeping = await self._carry_out(acted.view, plan.keeping, log)
        if plan.actions:
            ahead = plan.ahead(acted.view.status, kept=acted.keeping.error is None)
            acted.view = await self._tell_ahead(acted.view, plan, ahead)
            await self._unchanged(acted.view, look)
        if acted.building.error is None:
            acted.building = await self._carry_out(acted.view, plan.then, log)
        if not isinstance(acted.failure, LostRaceError):
            acted.serving = await self._carry_out(acted.view, plan.serving, log)

    async def _tell_ahead(self, view: ObjectView, plan: Plan, ahead: Mapping[str, Any]) -> ObjectView:
        """Writes what the actions stand on. Raises :class:`~enginewright.clients.errors.ClientError`, and then no
        action follows: a revision whose refusal is not on record would be tried again. Replicas are scaled all the
        same where status is refused for good, as a number of replicas is worked out afresh in each pass."""
        try:
            return await self._tell(view, ahead)
        except RefusedError:
            if all(isinstance(action, Scale) for action in plan.actions):
                return view
            raise

    async def _unchanged(self, view: ObjectView, look: Look) -> None:
        """Raises :class:`~enginewright.clients.errors.LostRaceError` where the look left it to the write of status to
        find out whether the object has changed, nothing was written, as where the CRD lacks the field, and it has."""
        written = view.resource_version != look.view.resource_version
        if look.fresh or written or not look.told_first:
            return
        now = await self._parts.world.find(view.namespace, view.name)
        if now is None or not same(look.view, now):
            raise LostRaceError("the object has changed", call=f"get {view.namespace}/{view.name}")

    async def _carry_out(self, view: ObjectView, actions: tuple[Action, ...], log: FilteringBoundLogger) -> Done:
        for index, action in enumerate(actions):
            try:
                await self._parts.actor.execute(view.namespace, (action,), log)
            except ClientError as error:
                return Done(error, actions[index:])
        return Done()

    async def _report(self, before: ObjectView, observed: Observed, plan: Plan, acted: Acted,
                      log: FilteringBoundLogger) -> None:
        """``before`` is the object as the pass found it."""
        self._held.pop(Key(before.namespace, before.name), None)
        status, events = acted.status(plan, before.status), plan.events
        if not acted.scaled:
            events = tuple(event for event in events if event.reason != Reason.SCALING)
        if isinstance(failure := acted.failure, RefusedError):
            message = f"Kubernetes refused {failure.call}: {failure.message}"
            status = refused(before, status, Reason.API_REFUSED, message, observed.now)
            events = (*events, Event(type="Warning", reason=Reason.API_REFUSED, action="Reconcile", note=message))
        with span(Span.REPORT):
            told = await self._tell(acted.view, status)
            written = told.resource_version != before.resource_version
            note(Attribute.STATUS_WRITTEN, written)
            if written:
                log.info("status written", conditions=_conditions(status))
            await self._parts.reporter.events(before, events, log)

    async def _tell(self, view: ObjectView, status: Mapping[str, Any]) -> ObjectView:
        """In status and as metrics; returns the object as it is then."""
        self._parts.exposed.remember(Key(view.namespace, view.name), status, view.spec)
        return await self._parts.reporter.status(view, status)

    async def _surface(self, view: ObjectView, error: Exception, log: FilteringBoundLogger) -> None:
        """A defect is reported where the user looks, not only in our log. What could not be judged is not ready. The
        object is read again, since the pass may have written its status before it failed."""
        what = f"{type(error).__name__}: {error}"
        message = f"The operator failed on this object and tries again ({what}); please report it."
        event = Event(type="Warning", reason=Reason.OPERATOR_ERROR, action="Reconcile", note=message)
        try:
            if (now := await self._parts.world.find(view.namespace, view.name)) is None or now.uid != view.uid:
                return
            await self._tell(now, refused(now, now.status, Reason.OPERATOR_ERROR, message, self._parts.world.now()))
        except ClientError as second:
            log.warning("defect could not be written to status", error=str(second))
        await self._parts.reporter.events(view, [event], log)

    async def _listen(self, key: Key, view: ObjectView, observed: Observed, plan: Plan) -> None:
        signals = self._parts.signals
        if not plan.watch_queue:
            await signals.forget(key)
            return
        signals.watch(key, target_of(view, observed, plan))
        if plan.recommendation is not None:
            signals.recommend(key, plan.recommendation)

    def _remember(self, key: Key, view: ObjectView, observed: Observed, plan: Plan) -> None:
        fingerprint = fingerprint_label(str(plan.status.get("fingerprint") or ""))
        job = observed.elsewhere.name if observed.elsewhere else ""
        self._parts.known.remember(key, Needs(needed_claims(view), fingerprint, job))
        (self._on_their_way.add if on_its_way(view) else self._on_their_way.discard)(key)

    async def _forget(self, key: Key, log: FilteringBoundLogger) -> None:
        """Children go by their owner references; what is left is ours in memory."""
        self._distrusted.discard(key)
        self._on_their_way.discard(key)
        self._trusted_since.pop(key, None)
        self._owed.pop(key, None)
        self._held.pop(key, None)
        self._untold.pop(key, None)
        await self._parts.signals.forget(key)
        self._parts.world.forget(key)
        self._parts.exposed.forget(key)
        if key in self._parts.known:
            self._parts.known.forget(key)
            log.info("object is gone")


def _only_figures(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether ``status`` differs, and says as before whether the object serves."""
    ready, readied = (find(one.get("conditions"), Condition.READY).get("status") for one in (before, status))
    return status != before and ready == readied


def _conditions(status: object) -> dict[str, str]:
    """Type to reason, for one readable line."""
    entries = status.get("conditions", ()) if isinstance(status, dict) else ()
    return {str(entry["type"]): f"{entry['status']}/{entry['reason']}" for entry in entries}
